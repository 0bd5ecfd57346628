"""Gradients of several nodes, and what ONNX's operator refuses."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.errors import InvalidModelError, UnsupportedOperatorError
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph

node = helper.make_node
RNG = np.random.default_rng(20261122)


def f64(*shape):
    return RNG.uniform(0.3, 1.7, shape)


def model(nodes, inputs, xs, y="y", results=None, constants=None):
    """The nodes, and the gradient of y by xs."""
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in inputs.items()}
    infos = [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in inputs.items()]
    wanted = results or [f"d{x}" for x in xs]
    gradient = node("Gradient", [*xs], wanted, xs=list(xs), y=y, domain="ai.onnx.preview.training")
    outputs = [helper.make_empty_tensor_value_info(n) for n in (y, *wanted)]
    held = [numpy_helper.from_array(np.array(a), n) for n, a in (constants or {}).items()]
    graph = helper.make_graph([*nodes, gradient], "g", infos, outputs, held)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.preview.training", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


CASES = {
    "shapes": (
        [node("Unsqueeze", ["a", "x"], ["u"]), node("Expand", ["u", "s"], ["e"]),
         node("Reshape", ["e", "r"], ["f"]), node("Concat", ["f", "b", "f"], ["k"], axis=-1),
         node("Transpose", ["k"], ["t"], perm=[1, 0]), node("Mul", ["t", "t"], ["y"])],
        {"a": f64(2, 3), "b": f64(6, 2)},
        {"x": [1], "s": [2, 2, 3], "r": [6, 2]},
    ),
    "many-paths": (
        [node("Exp", ["a"], ["e"]), node("Mul", ["e", "a"], ["m"]), node("Add", ["m", "b"], ["s"]),
         node("Div", ["s", "e"], ["q"]), node("Mul", ["q", "q"], ["y"])],
        {"a": f64(3), "b": f64(1)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_finite_differences(name):
    nodes, inputs, *rest = CASES[name]
    data = model(nodes, inputs, [*inputs], constants=rest[0] if rest else None)
    graph = import_model(data).graph

    def run(values):
        feeds = {v.name: a for v, a in zip(graph.inputs, values, strict=True)}
        return list(run_graph(graph, feeds).values())

    arrays = list(inputs.values())
    _, *gradients = run(arrays)
    for position, (array, actual) in enumerate(zip(arrays, gradients, strict=True)):
        assert actual.shape == array.shape
        for at in np.ndindex(array.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = array.copy()
                moved[at] += step
                y = run([*arrays[:position], moved, *arrays[position + 1 :]])[0]
                ends.append(y.sum())
            np.testing.assert_allclose(actual[at], (ends[0] - ends[1]) / 2e-5, atol=1e-6, rtol=1e-6)


def test_of_a_gradient():
    """The second derivative of x³ is 6x, and that by what it does not depend on 0."""
    nodes = [
        node("Pow", ["a", "three"], ["y"]),
        node("Gradient", ["a"], ["first"], xs=["a"], y="y", domain="ai.onnx.preview.training"),
    ]
    inputs = {"a": f64(4).astype(np.float32), "b": f64(2).astype(np.float32)}
    data = model(nodes, inputs, ["a", "b"], "first", ["da", "db"], {"three": np.float32(3)})
    actual = farrier.compile(data, threads=1).run(inputs)
    np.testing.assert_allclose(actual["da"], 6 * inputs["a"], rtol=1e-5)
    np.testing.assert_array_equal(actual["db"], [0, 0])


@pytest.mark.parametrize(
    ("nodes", "xs", "error", "message"),
    [
        ([node("Ceil", ["a"], ["y"])], ["a"], UnsupportedOperatorError, "gradient of Ceil"),
        ([node("Add", ["a", "c"], ["y"])], ["c"], UnsupportedOperatorError, "'c', which is a"),
        ([node("Cast", ["a"], ["y"], to=TensorProto.INT64)], ["a"], InvalidModelError, "'y' is no"),
    ],
)  # fmt: skip
def test_refused(nodes, xs, error, message):
    with pytest.raises(error, match=message):
        import_model(model(nodes, {"a": f64(3)}, xs, constants={"c": [1.0]}))


def test_other_values_are_refused():
    gradient = node("Gradient", ["b"], ["d"], xs=["a"], y="y", domain="ai.onnx.preview.training")
    nodes = [node("Exp", ["a"], ["y"]), gradient, node("Add", ["d", "d"], ["z"])]
    data = model(nodes, {"a": f64(3), "b": f64(3)}, ["a"], "z")
    with pytest.raises(UnsupportedOperatorError, match="other values"):
        import_model(data)
