"""One operator of com.microsoft against ONNX Runtime, or against a reference in numpy."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import farrier
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph

MICROSOFT = "com.microsoft"


class Numbers:
    """Random arrays, the same ones in each run."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def f32(self, *shape):
        return self._rng.standard_normal(shape).astype(np.float32)

    def f16(self, *shape):
        return self.f32(*shape).astype(np.float16)

    def positive(self, *shape):
        return np.asarray(self._rng.random(shape) * 0.2 + 0.01, np.float32)

    def codes(self, dtype, *shape):
        """Integers over all of a type's range."""
        limits = np.iinfo(dtype)
        return np.asarray(self._rng.integers(limits.min, limits.max + 1, shape), dtype)

    def below(self, limit, *shape, dtype=np.int32):
        return np.asarray(self._rng.integers(0, limit, shape), dtype)


def i32(*values):
    return np.array(values, np.int32)


def one_node(op, inputs, outputs=1, fixed=(), dims=None, domain=MICROSOFT, version=17, **attrs):
    """The bytes of a model of one node, and its feeds. Inputs are arrays, or None where omitted;
    those at positions `fixed` are initializers; `dims` holds shapes with names of open dims by
    position. `outputs` is a number, or a list with 0 for each omitted output."""
    named = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs) if x is not None}
    kept = {f"x{i}" for i in fixed if f"x{i}" in named}
    shapes = {f"x{i}": shape for i, shape in (dims or {}).items()}
    infos = [
        helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(a.dtype), shapes.get(n, a.shape)
        )
        for n, a in named.items()
        if n not in kept
    ]
    wanted = [1] * outputs if isinstance(outputs, int) else outputs
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    results = [f"y{i}" if is_wanted else "" for i, is_wanted in enumerate(wanted)]
    node = helper.make_node(op, names, results, domain=domain, **attrs)
    weights = [numpy_helper.from_array(named[name], name) for name in sorted(kept)]
    values = [onnx.ValueInfoProto(name=name) for name in results if name]
    graph = helper.make_graph([node], "g", infos, values, weights)
    imports = [helper.make_opsetid("", version), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    return model.SerializeToString(), {n: a for n, a in named.items() if n not in kept}


def by_onnx_runtime(data, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def by_operators(data, feeds):
    """Evaluate the imported graph, operator by operator."""
    imported = import_model(data)
    pairs = zip(imported.graph.inputs, imported.input_names, strict=True)
    return list(run_graph(imported.graph, {v.name: feeds[n] for v, n in pairs}).values())


def by_code(data, feeds):
    """Compile the model and run it."""
    return list(farrier.compile(data, verify=False, threads=1).run(feeds).values())


def same(results, expected, tolerance=1e-5, steps=0):
    """Compare results with the expected arrays: floats to a share of the range, integers to
    `steps`."""
    assert len(results) == len(expected)
    for got, want in zip(results, expected, strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        if want.dtype.kind in "iub":
            apart = np.abs(got.astype(np.int64) - want.astype(np.int64))
            assert apart.max(initial=0) <= steps
            continue
        finite = np.isfinite(want)
        np.testing.assert_array_equal(got[~finite], want[~finite])
        scale = np.abs(want[finite]).max(initial=0)
        np.testing.assert_allclose(got[finite], want[finite], rtol=0, atol=tolerance * scale)


def check(op, inputs, *, expected=None, is_compiled=False, tolerance=1e-5, steps=0, **model):
    """Compare the rewrite of one node, and compiled code where requested, with ONNX Runtime or with
    `expected`."""
    data, feeds = one_node(op, inputs, **model)
    want = by_onnx_runtime(data, feeds) if expected is None else expected
    same(by_operators(data, feeds), want, tolerance, steps)
    if is_compiled:
        same(by_code(data, feeds), want, tolerance, steps)
