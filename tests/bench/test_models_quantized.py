"""bench.models.quantized: what ONNX Runtime's quantizer makes, once."""

from __future__ import annotations

import collections

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench import models

pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def _operators(model: bytes) -> collections.Counter[str]:
    return collections.Counter(node.op_type for node in onnx.load_from_string(model).graph.node)


def _convolution(opset: int) -> bytes:
    image, result = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, channels, 8, 8))
        for name, channels in (("x", 3), ("y", 4))
    )
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    initializers = [numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph([node], "g", [image], [result], initializers)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize("opset", [11, 17])
def test_a_static_model_has_scales_a_channel(opset, tmp_path):
    samples = [{"x": np.ones((1, 3, 8, 8), np.float32)}]
    quantized = models.statically(_convolution(opset), samples)
    assert _operators(quantized)["QuantizeLinear"] == 2
    scales = [
        initializer.dims for initializer in onnx.load_from_string(quantized).graph.initializer
    ]
    assert [4] in scales
    (kept,) = (tmp_path / "farrier" / "models" / "quantized").iterdir()
    assert kept.read_bytes() == quantized
    kept.write_bytes(b"as it was")
    assert models.statically(_convolution(opset), samples) == b"as it was"


def test_a_dynamic_model_multiplies_integers():
    quantized = models.dynamically(models.build("bert_base", layers=1, tokens=8, vocabulary=50))
    assert _operators(quantized)["MatMulInteger"] == 7  # This includes the pooler.
    assert _operators(quantized)["MatMul"] == 2  # of two activations
