"""Operators that the importer takes apart, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from farrier.errors import UnresolvedShapeError
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph

node = helper.make_node
RNG = np.random.default_rng(20261121)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def i64(*values):
    return np.array(values, np.int64)


CASES = {
    "DFT": (20, node("DFT", ["x"], ["y"]), {"x": f32(2, 7, 5, 2)}, {}),
    "DFT-axis": (
        20,
        node("DFT", ["x", "", "a"], ["y"], onesided=1),
        {"x": f32(3, 11, 2, 1)},
        {"a": np.array(1, np.int64)},
    ),
    "DFT-17-inverse": (17, node("DFT", ["x"], ["y"], inverse=1), {"x": f32(2, 7, 2)}, {}),
    "DFT-longer": (
        20,
        node("DFT", ["x", "n"], ["y"]),
        {"x": f32(2, 7, 1)},
        {"n": np.array(9, np.int64)},
    ),
    "STFT": (
        17,
        node("STFT", ["x", "s", "w", "n"], ["y"]),
        {"x": f32(2, 61, 1), "w": f32(13)},
        {"s": np.array(5, np.int64), "n": np.array(13, np.int64)},
    ),
    "Col2Im": (
        18,
        node("Col2Im", ["x", "i", "b"], ["y"], pads=[1, 0, 0, 1], strides=[2, 1]),
        {"x": f32(2, 3 * 6, 3 * 5)},
        {"i": i64(5, 6), "b": i64(2, 3)},
    ),
    "DeformConv": (
        19,
        node("DeformConv", ["x", "w", "o", "b", "m"], ["y"], pads=[1, 0, 1, 1], group=2,
             offset_group=2, strides=[1, 2], dilations=[1, 2]),
        {"x": f32(2, 4, 6, 9), "w": f32(6, 2, 3, 2), "o": f32(2, 24, 6, 4), "b": f32(6),
         "m": f32(2, 12, 6, 4)},
        {},
    ),
    "TfIdfVectorizer": (
        9,
        node("TfIdfVectorizer", ["x"], ["y"], mode="TFIDF", min_gram_length=1, max_gram_length=2,
             max_skip_count=2, ngram_counts=[0, 3], ngram_indexes=[0, 4, 2, 1, 3],
             pool_int64s=[2, 3, 5, 5, 4, 3, 2], weights=[0.5, 2.0, 1.5, 0.25, 3.0]),
        {"x": RNG.integers(2, 6, (4, 9))},
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_taken_apart(model, name):
    opset, node, inputs, constants = CASES[name]
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in inputs.items()}
    shapes = {n: a.shape for n, a in inputs.items()}
    data = model([node], shapes, constants=constants, opset=opset, dtypes=kinds)
    imported = import_model(data)
    feeds = zip(imported.graph.inputs, imported.input_names, strict=True)
    (got,) = run_graph(imported.graph, {v.name: inputs[n] for v, n in feeds}).values()
    (want,) = onnxruntime.InferenceSession(data).run(None, inputs)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    scale = float(np.abs(want).max())
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * scale)


def test_half_a_spectrum_gives_the_signal_back(model):
    nodes = [
        node("DFT", ["x"], ["s"], onesided=1),
        node("DFT", ["s", "n"], ["y"], onesided=1, inverse=1),
    ]
    for length in (8, 9):
        x = f32(3, length, 1)
        constants = {"n": np.array(length, np.int64)}
        graph = import_model(model(nodes, {"x": x.shape}, constants=constants, opset=20)).graph
        (got,) = run_graph(graph, {graph.inputs[0].name: x}).values()
        np.testing.assert_allclose(got, x, rtol=1e-4, atol=1e-5)


def test_mel_bands(model):
    constants = {
        "n": np.array(8, np.int64),
        "d": np.array(64, np.int64),
        "r": np.array(8192, np.int64),
        "l": np.array(125.0, np.float32),
        "h": np.array(2048.0, np.float32),
    }
    nodes = [node("MelWeightMatrix", list("ndrlh"), ["m"]), node("MatMul", ["x", "m"], ["y"])]
    data = model(nodes, {"x": [2, 33]}, constants=constants, opset=17)
    x = f32(2, 33)
    graph = import_model(data).graph
    (got,) = run_graph(graph, {graph.inputs[0].name: x}).values()
    (want,) = onnxruntime.InferenceSession(data).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_an_operand_that_decides_the_shape_is_named(model):
    nodes = [node("Neg", ["n"], ["m"]), node("DFT", ["x", "", "m"], ["y"])]
    shapes, kinds = {"x": [2, 7, 1], "n": []}, {"n": TensorProto.INT64}
    with pytest.raises(UnresolvedShapeError, match="its axis") as caught:
        import_model(model(nodes, shapes, opset=20, dtypes=kinds))
    assert caught.value.deciding == ("n",)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("...ii->...i", [(2, 3, 3)]),
        ("b...d,...d", [(2, 3, 4), (3, 4)]),
        ("i...,j...->ij...", [(2, 1), (3, 1)]),
    ],
)
def test_ellipses(model, equation, shapes):
    inputs = {name: f32(*shape) for name, shape in zip("ab", shapes, strict=False)}
    einsum = node("Einsum", list(inputs), ["y"], equation=equation)
    data = model([einsum], {n: a.shape for n, a in inputs.items()})
    graph = import_model(data).graph
    feeds = {v.name: a for v, a in zip(graph.inputs, inputs.values(), strict=True)}
    (got,) = run_graph(graph, feeds).values()
    np.testing.assert_allclose(got, np.einsum(equation, *inputs.values()), rtol=1e-5, atol=1e-6)
