"""Operators that the importer takes apart, with open dims: imported once, right for every size."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from farrier.errors import UnresolvedShapeError
from farrier.importer import import_model
from farrier.ops import run_graph
from tests.ir.bind import at_sizes

node = helper.make_node
RNG = np.random.default_rng(20261122)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def number(value):
    return np.array(value, np.int64)


# opset, node, shapes as given, constants, and sizes to run at
CASES = {
    "STFT": (
        17,
        node("STFT", ["x", "s", "w", "n"], ["y"]),
        {"x": ("b:1..3", "l:13..90", 1)},
        {"s": number(5), "w": f32(13), "n": number(13)},
        [{"b": 1, "l": 13}, {"b": 3, "l": 90}, {"b": 2, "l": 57}],
    ),
    "STFT-complex": (
        17,
        node("STFT", ["x", "s", "", "n"], ["y"], onesided=0),
        {"x": ("b:1..3", "l:13..90", 2)},
        {"s": number(5), "n": number(13)},
        [{"b": 3, "l": 31}],
    ),
    "STFT-window": (
        17,
        node("STFT", ["x", "s", "w"], ["y"]),
        {"x": ("b:1..3", "l:13..90", 1), "w": (13,)},
        {"s": number(5)},
        [{"b": 2, "l": 32}],
    ),
    "DFT": (
        20,
        node("DFT", ["x", "n", "a"], ["y"], onesided=1),
        {"x": ("b:1..3", 7, "l:1..9", 1)},
        {"n": number(9), "a": number(1)},
        [{"b": 1, "l": 1}, {"b": 3, "l": 9}],
    ),
    "Attention": (
        23,
        node("Attention", ["q", "k", "v"], ["y"], is_causal=1, q_num_heads=4, kv_num_heads=2),
        {"q": ("b:1..3", "s:1..9", 32), "k": ("b", "t:1..20", 16), "v": ("b", "t", 16)},
        {},
        [{"b": 1, "s": 1, "t": 1}, {"b": 3, "s": 9, "t": 9}, {"b": 2, "s": 5, "t": 13}],
    ),
    "RotaryEmbedding": (
        23,
        node("RotaryEmbedding", ["x", "c", "s", "p"], ["y"]),
        {"x": ("b:1..3", 4, "t:1..9", 8), "p": ("b", "t")},
        {"c": f32(20, 4), "s": f32(20, 4)},
        [{"b": 1, "t": 1}, {"b": 3, "t": 9}],
    ),
}  # fmt: skip
INTEGERS = {"p": 20}  # by name: indices below that


@pytest.mark.parametrize("name", CASES)
def test_taken_apart(model, name):
    opset, made, shapes, constants, runs = CASES[name]
    kinds = {n: helper.np_dtype_to_tensor_dtype(np.dtype(np.int64)) for n in INTEGERS}
    names = {n: [str(d).split(":")[0] for d in dims] for n, dims in shapes.items()}
    declared = {n: [int(d) if d.isdigit() else d for d in dims] for n, dims in names.items()}
    data = model([made], declared, constants=constants, opset=opset, dtypes=kinds)
    imported = import_model(data, shapes)
    session = onnxruntime.InferenceSession(data)
    for sizes in runs:
        inputs = {}
        for key, dims in declared.items():
            shape = [sizes.get(d, d) for d in dims]
            inputs[key] = RNG.integers(0, INTEGERS[key], shape) if key in INTEGERS else f32(*shape)
        graph = at_sizes(imported.graph, {dim.symbol: sizes[dim.name] for dim in imported.dims})
        feeds = zip(graph.inputs, imported.input_names, strict=True)
        (got,) = run_graph(graph, {v.name: inputs[n] for v, n in feeds}).values()
        (want,) = session.run(None, inputs)
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        scale = float(np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * scale)


def test_a_size_that_must_be_a_number_is_named(model):
    made = node("DFT", ["x"], ["y"], axis=1)
    with pytest.raises(UnresolvedShapeError, match=r"'y' \(DFT\): n must be a number, .* n in 1"):
        import_model(model([made], {"x": [1, "n", 1]}), {"x": (1, "n:1..9", 1)})
