"""A cache that is watched, and a model that compiles in a fraction of a second."""

from __future__ import annotations

import os
import time

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from farrier.cache.cache import Cache, Request
from farrier.cache.settings import CacheSettings
from farrier.options import CompileOptions

WEIGHTS = np.linspace(-1, 1, 600 * 500, dtype=np.float32).reshape(600, 500)  # 1.2 MB: mapped


def model_bytes(scale=1.0):
    """x f32[2, 600] → y = x w, `scale` making contents that differ."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 600])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 500])],
        [numpy_helper.from_array(WEIGHTS * np.float32(scale), "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def long_ago(place):
    then = time.time() - 100
    os.utime(place, (then, then))


class Watched:
    """A cache that counts what it compiles, and keeps what it warns of."""

    def __init__(self, folder, limit_bytes=0):
        self.settings = CacheSettings(folder, limit_bytes)
        self.warned = []
        self.compiled = 0
        self.told = []  # The warnings of each compilation.
        self.then = lambda: None  # Called after a model was compiled.

    def artifact(self, model, **options):
        request = Request(model, CompileOptions(verify=False, threads=1, **options), {})
        return Cache(self.settings, self.warned.append).artifact(request, self._compile(request))

    def _compile(self, request):
        from farrier import pipeline

        def compile(model, warn):
            self.compiled += 1
            for message in self.told:
                warn(message)
            artifact = pipeline.compile_model(model, request.options)
            self.then()
            return artifact

        return compile
