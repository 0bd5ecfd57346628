"""Fused operators of com.microsoft against ONNX Runtime: what they mean, and compiled code."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import farrier
from farrier.errors import UnsupportedOperatorError
from farrier.importer import import_model
from farrier.ops import run_graph

RNG = np.random.default_rng(20261121)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def i32(*values):
    return np.array(values, np.int32)


def one_node(op, inputs, outputs=1, fixed=(), domain="com.microsoft", **attrs):
    """The bytes of a model of one node; inputs at `fixed` are initializers."""
    named = {f"x{i}": array for i, array in enumerate(inputs) if array is not None}
    names = [f"x{i}" if array is not None else "" for i, array in enumerate(inputs)]
    kept = {f"x{i}" for i in fixed}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in named.items()
        if n not in kept
    ]
    weights = [numpy_helper.from_array(named[name], name) for name in sorted(kept)]
    made = [
        f"y{i}" if wanted else ""
        for i, wanted in enumerate([1] * outputs if isinstance(outputs, int) else outputs)
    ]
    node = helper.make_node(op, names, made, domain=domain, **attrs)
    results = [onnx.ValueInfoProto(name=name) for name in made if name]
    graph = helper.make_graph([node], "g", infos, results, weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    return model.SerializeToString(), {n: a for n, a in named.items() if n not in kept}


COS, SIN = f32(16, 4), f32(16, 4)
B, S, H, D = 2, 5, 3, 8
E = H * D
CASES = {
    "FusedMatMul": ([f32(2, 5, 3), f32(2, 7, 5)], {"transA": 1, "transB": 1, "alpha": 0.5}, 1, ()),
    "FusedGemm": (
        [f32(3, 5), f32(5, 7), f32(7)],
        {"activation": "LeakyRelu", "activation_alpha": 0.2, "alpha": 1.5},
        1,
        (),
    ),
    "FusedConv": (
        [f32(1, 3, 7, 7), f32(4, 3, 3, 3), f32(4), f32(1, 4, 5, 5)],
        {"activation": "Relu"},
        1,
        (),
    ),
    "FusedConv-clip": (
        [f32(1, 3, 7, 7), f32(4, 3, 3, 3)],
        {"activation": "Clip", "activation_params": [-0.5, 0.5]},
        1,
        (),
    ),
    "Gelu": ([f32(3, 7)], {}, 1, ()),
    "FastGelu": ([f32(3, 7), f32(7)], {}, 1, ()),
    "BiasGelu": ([f32(3, 7), f32(7)], {}, 1, ()),
    "QuickGelu": ([f32(3, 7)], {"alpha": 1.5}, 1, ()),
    "SkipLayerNormalization": (
        [f32(2, 3, 8), f32(2, 3, 8), f32(8), f32(8), f32(8)],
        {"epsilon": 1e-3},
        [1, 0, 0, 1],
        (),
    ),
    "SkipSimplifiedLayerNormalization": (
        [f32(2, 3, 8), f32(2, 3, 8), f32(8), f32(8)],
        {"epsilon": 1e-3},
        [1, 0, 0, 1],
        (),
    ),
    "EmbedLayerNormalization": (
        [
            RNG.integers(0, 9, (2, 5)).astype(np.int32),
            RNG.integers(0, 2, (2, 5)).astype(np.int32),
            f32(9, 8), f32(6, 8), f32(2, 8), f32(8), f32(8),
            np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
        ],
        {"epsilon": 1e-3},
        2,
        (),
    ),
    "Attention": ([f32(B, S, E), f32(E, 3 * E), f32(3 * E)], {"num_heads": H}, 1, ()),
    "Attention-past-causal": (
        [f32(B, S, E), f32(E, 3 * E), f32(3 * E), None, f32(2, B, H, 4, D)],
        {"num_heads": H, "unidirectional": 1},
        2,
        (),
    ),
    "Attention-mask": (
        [f32(B, S, E), f32(E, 3 * E), f32(3 * E), np.array([[1] * S, [1, 1, 1, 0, 0]], np.int32)],
        {"num_heads": H},
        1,
        (),
    ),
    "Attention-lengths": (
        [f32(B, S, E), f32(E, 3 * E), f32(3 * E), i32(5, 3)],
        {"num_heads": H, "scale": 0.3},
        1,
        (),
    ),
    "MultiHeadAttention": (
        [f32(B, S, E), f32(B, 7, E), f32(B, 7, E), f32(3 * E), None, f32(1, H, S, 7)],
        {"num_heads": H},
        1,
        (),
    ),
    "MultiHeadAttention-past": (
        [*(f32(B, S, E) for _ in range(3)), None, None, None, *(f32(B, H, 4, D) for _ in range(2))],
        {"num_heads": H},
        3,
        (),
    ),
    "RotaryEmbedding": (
        [f32(2, 5, 24), RNG.integers(0, 16, (2, 5)), COS, SIN],
        {"num_heads": 3},
        1,
        (),
    ),
    "RotaryEmbedding-first": (
        [f32(2, 3, 5, 8), np.array([3], np.int64), COS, SIN],
        {"interleaved": 1},
        1,
        (),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_onnx_runtime(name):
    inputs, attrs, outputs, fixed = CASES[name]
    inputs = [None if a is None else np.asarray(a) for a in inputs]
    data, feeds = one_node(name.partition("-")[0], inputs, outputs, fixed, **attrs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = onnxruntime.InferenceSession(data, options).run(None, feeds)
    imported = import_model(data)
    pairs = zip(imported.graph.inputs, imported.input_names, strict=True)
    reference = run_graph(imported.graph, {v.name: feeds[n] for v, n in pairs})
    compiled = farrier.compile(data, verify=False, threads=2).run(feeds)
    for found in (reference.values(), compiled.values()):
        for got, want in zip(found, expected, strict=True):
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_packed_queries_keys_and_values():
    packed = f32(B, S, H, 3, D)
    data, feeds = one_node("MultiHeadAttention", [packed], num_heads=H)
    (got,) = farrier.compile(data, verify=False, threads=1).run(feeds).values()
    q, k, v = (packed[:, :, :, i].transpose(0, 2, 1, 3).astype(np.float64) for i in range(3))
    scores = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(D))
    want = (scores / scores.sum(-1, keepdims=True)) @ v
    np.testing.assert_allclose(got, want.transpose(0, 2, 1, 3).reshape(B, S, E), rtol=1e-4)


def test_rms_normalization_under_onnx_runtime_s_name():
    x, scale = f32(3, 8), f32(8)
    data, feeds = one_node("SimplifiedLayerNormalization", [x, scale], domain="", epsilon=1e-3)
    (got,) = farrier.compile(data, verify=False, threads=1).run(feeds).values()
    want = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * scale
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_form_that_is_not_compiled_is_refused_by_name():
    data, _ = one_node("QuickGelu", [f32(3)], 1)
    assert import_model(data).graph.nodes
    data, _ = one_node("Attention", CASES["Attention"][0], num_heads=H, do_rotary=1)
    with pytest.raises(UnsupportedOperatorError, match="do_rotary"):
        import_model(data)
