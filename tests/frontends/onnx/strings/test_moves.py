"""Operators that move strings, against ONNX's reference evaluator."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper

import farrier
from farrier.errors import InvalidModelError, UnsupportedOperatorError
from farrier.frontends.onnx.importer import import_model
from farrier.ir.strings import codes_of, strings_of
from farrier.ops import run_graph
from tests.frontends.onnx.strings.conftest import STRING, strings_model

node = helper.make_node
X = np.array([["a", "bcd", ""], ["é", "a", "𐐨ß"]], object)
FLAGS = np.array([[True, False, True], [False, False, True]])

CASES = {
    "identity": ([node("Identity", ["x"], ["y"])], {}),
    "reshape": ([node("Reshape", ["x", "s"], ["y"])], {"s": [-1, 0]}),
    "flatten": ([node("Flatten", ["x"], ["y"], axis=-1)], {}),
    "transpose": ([node("Transpose", ["x"], ["y"])], {}),
    "unsqueeze": ([node("Unsqueeze", ["x", "a"], ["y"])], {"a": [-1, 0]}),
    "squeeze": (
        [node("Unsqueeze", ["x", "a"], ["u"]), node("Squeeze", ["u"], ["y"])],
        {"a": [1, -1]},
    ),
    "expand": ([node("Expand", ["x", "s"], ["y"])], {"s": [2, 1, 3]}),
    "tile": ([node("Tile", ["x", "r"], ["y"])], {"r": [1, 2]}),
    "slice": (
        [node("Slice", ["x", "s", "e", "a", "t"], ["y"])],
        {"s": [-1], "e": [-9], "a": [-1], "t": [-2]},
    ),
    "slice-without-axes": ([node("Slice", ["x", "s", "e"], ["y"])], {"s": [1, 0], "e": [2, 2]}),
    "split": (
        [node("Split", ["x"], ["p", "q"], axis=-1, num_outputs=2),
         node("Concat", ["q", "p"], ["y"], axis=-1)],
        {},
    ),
    "concat": ([node("Concat", ["x", "c", "x"], ["y"], axis=0)], {"c": [["wide enough", "", "b"]]}),
    "gather": ([node("Gather", ["x", "i"], ["y"], axis=-1)], {"i": [[2, 0], [-1, 1]]}),
    "gather-elements": (
        [node("GatherElements", ["x", "i"], ["y"], axis=1)],
        {"i": [[2, 0], [-1, 1]]},
    ),
    "gather-nd": ([node("GatherND", ["x", "i"], ["y"])], {"i": [[1, 2], [0, 0]]}),
    "compress": ([node("Compress", ["x", "c"], ["y"])], {"c": [False, True, True, False, True]}),
    "compress-along": ([node("Compress", ["x", "c"], ["y"], axis=-1)], {"c": [False, True, True]}),
    "where": ([node("Where", ["f", "x", "c"], ["y"])], {"c": ["longer than x", "", "z"]}),
    "shape": ([node("Shape", ["x"], ["y"], start=-1)], {}),
    "size": ([node("Size", ["x"], ["y"])], {}),
    "constant": (
        [node("Constant", [], ["c"], value_strings=["k"]),
         node("Concat", ["c", "d"], ["y"], axis=0)],
        {"d": ["kk"]},
    ),
    "equal": ([node("Equal", ["x", "c"], ["y"])], {"c": ["a", "a", ""]}),
    "if": (
        [node("If", ["b"], ["y"],
              then_branch=helper.make_graph(
                  [node("Transpose", ["x"], ["t"], perm=[0, 1])], "t", [],
                  [helper.make_tensor_value_info("t", STRING, None)]),
              else_branch=helper.make_graph(
                  [node("Identity", ["x"], ["e"])], "e", [],
                  [helper.make_tensor_value_info("e", STRING, None)]))],
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_moved(name):
    nodes, constants = CASES[name]
    inputs = {"x": (STRING, X.shape), "f": (TensorProto.BOOL, FLAGS.shape)}
    inputs["b"] = (TensorProto.BOOL, ())
    model = strings_model(nodes, inputs, ["y"], constants)
    feeds = {"x": X, "f": FLAGS, "b": np.array(True)}
    (expected,) = onnx.reference.ReferenceEvaluator(onnx.load_from_string(model)).run(None, feeds)
    imported = import_model(model)
    arrays = [codes_of(a) if a.dtype == object else a for a in feeds.values()]
    by_value = {value.name: a for value, a in zip(imported.graph.inputs, arrays, strict=True)}
    (actual,) = run_graph(imported.graph, by_value).values()
    actual = strings_of(actual) if "y" in imported.strings else actual
    assert actual.shape == expected.shape
    assert actual.tolist() == expected.tolist()


def test_compiled():
    """Those whose kernels depend on the width, in one artifact for any."""
    nodes = [
        node("Concat", ["x", "c"], ["long"], axis=0),
        node("Transpose", ["long"], ["turned"]),
        node("Where", ["f", "x", "c"], ["chosen"]),
        node("Equal", ["x", "chosen"], ["same"]),
        node("Gather", ["x", "i"], ["gathered"], axis=1),
        node("Reshape", ["chosen", "s"], ["list"]),
    ]
    constants = {"c": [["wide enough", "", "b"]], "i": [2, 2, 0], "s": [-1]}
    outputs = ["turned", "chosen", "same", "gathered", "list"]
    model = strings_model(
        nodes,
        {"x": (STRING, ["n", 3]), "f": (TensorProto.BOOL, ["n", 3])},
        outputs,
        constants,
    )
    artifact = farrier.compile(model, threads=2, shapes={"x": ("n:1..64", 3)})
    reference = onnx.reference.ReferenceEvaluator(onnx.load_from_string(model))
    for x, f in (
        (X, FLAGS),
        (np.full((1, 3), ""), FLAGS[:1]),
        (np.array([["x" * 100, "y", "wide enough"]] * 40), np.resize(FLAGS, (40, 3))),
    ):
        actual = artifact.run({"x": x, "f": f})
        for name, array in zip(outputs, reference.run(None, {"x": x, "f": f}), strict=True):
            assert actual[name].tolist() == array.tolist(), name


@pytest.mark.parametrize(
    ("bad_node", "error", "message"),
    [
        (node("Cast", ["x"], ["y"], to=1), UnsupportedOperatorError, "Cast of strings to f32"),
        (node("Concat", ["x", "n"], ["y"], axis=0), InvalidModelError, "not a tensor of strings"),
        (node("Concat", ["x", "x"], ["y"], axis=2), InvalidModelError, "axis 2"),
        (node("StringConcat", ["n", "n"], ["y"]), InvalidModelError, "not a tensor of strings"),
        (node("Add", ["n", "x"], ["y"]), UnsupportedOperatorError, "'x' of strings"),
    ],
)
def test_refused(bad_node, error, message):
    inputs = {"x": (STRING, X.shape), "n": (TensorProto.UINT32, X.shape)}
    with pytest.raises(error, match=message):
        import_model(strings_model([bad_node], inputs, ["y"]))
