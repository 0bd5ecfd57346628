"""A model's own functions, against ONNX Runtime: their attributes, names and calls."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import AttributeProto, TensorProto, helper

from farrier.errors import InvalidModelError
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.importer.parse import parse
from farrier.ops import run_graph

node, info = helper.make_node, helper.make_tensor_value_info
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]


def reference(name, of, kind=AttributeProto.FLOAT):
    return AttributeProto(name=name, ref_attr_name=of, type=kind)


def leaky(x, y, of):
    leaky_relu = node("LeakyRelu", [x], [y])
    leaky_relu.attribute.append(reference("alpha", of))
    return leaky_relu


def call(name, inputs, outputs, **attrs):
    return node(name, inputs, outputs, domain="my", **attrs)


def passing(name, inputs, outputs, **references):
    """A call that passes attributes of the function around it."""
    caller = call(name, inputs, outputs)
    caller.attribute.extend(reference(inner, outer) for inner, outer in references.items())
    return caller


def function(name, nodes, inputs=("a",), outputs=("c",), required=(), **defaults):
    proto = helper.make_function("my", name, inputs, outputs, nodes, OPSETS, list(required))
    proto.attribute_proto.extend(helper.make_attribute(k, v) for k, v in defaults.items())
    return proto


def model_of(nodes, functions, inputs=("x",), outputs=("y",), opset=17):
    infos = [info(name, TensorProto.FLOAT, [2, 3]) for name in inputs]
    results = [info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", infos, results)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("my", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions)
    model.ir_version = 9
    return bytes(model.SerializeToString())


X = np.array([[-1, 2, -3], [4, -5, 6]], "f4")


def run(model, *arrays):
    graph = import_model(model).graph
    feeds = {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)}
    return list(run_graph(graph, feeds).values())


def compare(model, **feeds):
    feeds = feeds or {"x": X}
    expected = onnxruntime.InferenceSession(model).run(None, feeds)
    outputs = run(model, *feeds.values())
    for output, other in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, other, rtol=1e-5)
    return outputs


LEAKY = function("F", [leaky("a", "c", "slope")], slope=0.25)
# G's own default counts where it passes nothing on; F's where G has no default to pass.
NESTED = [
    LEAKY,
    function("G", [passing("F", ["a"], ["c"], slope="steep")], steep=0.5),
    function("H", [call("F", ["a"], ["c"])]),
    function("K", [passing("F", ["a"], ["c"], slope="none")], required=["none"]),
]


@pytest.mark.parametrize(
    ("call_node", "slope"),
    [
        (call("F", ["x"], ["y"]), 0.25),
        (call("F", ["x"], ["y"], slope=2.0), 2.0),
        (call("G", ["x"], ["y"]), 0.5),
        (call("G", ["x"], ["y"], steep=3.0), 3.0),
        (call("H", ["x"], ["y"]), 0.25),
        (call("K", ["x"], ["y"]), 0.25),
        (call("K", ["x"], ["y"], none=4.0), 4.0),
    ],
    ids=lambda item: item.op_type if isinstance(item, onnx.NodeProto) else None,
)
def test_defaults_of_attributes(call_node, slope):
    (y,) = run(model_of([call_node], NESTED), X)
    np.testing.assert_array_equal(y, np.where(X < 0, X * np.float32(slope), X))


def test_attributes_reach_the_graphs_within_a_function():
    """Branches have names of their own, and one is that of the caller's input."""
    then = helper.make_graph(
        [leaky("a", "x", "slope")], "t", [], [info("x", TensorProto.FLOAT, None)]
    )
    inner = helper.make_graph(
        [call("F", ["a"], ["t"]), node("Neg", ["t"], ["x"])],
        "e",
        [],
        [info("x", TensorProto.FLOAT, None)],
    )
    body = [
        node("ReduceSum", ["a"], ["s"], keepdims=0),
        node("Greater", ["s", "z"], ["positive"]),
        node("If", ["positive"], ["c"], then_branch=then, else_branch=inner),
    ]
    zero = node("Constant", [], ["z"], value_float=0.0)
    functions = [LEAKY, function("B", [zero, *body], slope=0.125)]
    for sign in (1, -1):
        model = model_of([call("B", ["x"], ["t"]), node("Neg", ["t"], ["y"])], functions)
        compare(model, x=X * np.float32(sign))


def test_calls_share_no_names():
    double = function("D", [node("Add", ["a", "a"], ["t"]), node("Mul", ["t", "a"], ["c"])])
    nodes = [call("D", ["x"], ["t"]), call("D", ["t"], ["a"]), node("Sub", ["a", "t"], ["y"])]
    compare(model_of(nodes, [double]))


def test_omitted_inputs_and_outputs():
    """Clip without its lower bound, and the first of two outputs is not read."""
    body = [node("Clip", ["a", "low", "high"], ["c"]), node("Neg", ["a"], ["n"])]
    clip = function("C", body, inputs=("a", "low", "high"), outputs=("n", "c"))
    high = node("Constant", [], ["h"], value_float=1.5)
    compare(model_of([high, call("C", ["x", "", "h"], ["", "y"])], [clip]))
    (y,) = run(model_of([call("C", ["x"], ["y"])], [clip]), X)  # ONNX Runtime rejects it.
    np.testing.assert_array_equal(y, -X)


def test_an_output_that_is_an_input():
    same = function("S", [node("Neg", ["a"], ["c"])], outputs=("a", "c"))
    model = model_of([call("S", ["x"], ["y", "z"])], [same], outputs=("y", "z"))
    y, z = run(model, X)
    np.testing.assert_array_equal(y, X)
    np.testing.assert_array_equal(z, -X)


def test_overloads_are_functions_of_their_own():
    plain, other = (function("F", [leaky("a", "c", "slope")], slope=s) for s in (0.25, 0.5))
    other.overload = "steep"
    steep = call("F", ["x"], ["z"])
    steep.overload = "steep"
    model = model_of([call("F", ["x"], ["y"]), steep], [plain, other], outputs=("y", "z"))
    y, z = run(model, X)
    assert (y[0, 0], z[0, 0]) == (-0.25, -0.5)


def test_nodes_are_named_by_their_calls():
    outer = function("O", [call("F", ["a"], ["c"])])
    named = call("O", ["x"], ["y"])
    named.name = "layer"
    (inner,) = parse(model_of([named], [LEAKY, outer])).model.graph.node
    assert inner.name == "layer/c/c"


def test_the_domains_of_functions_count_for_the_model():
    gelu = function("Q", [node("QuickGelu", ["a"], ["c"], domain="com.microsoft")])
    gelu.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    compare(model_of([call("Q", ["x"], ["y"])], [gelu]))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (model_of([call("F", ["x", "x"], ["y"])], [LEAKY]), "has 2 inputs, and the function 1"),
        (model_of([call("F", ["x"], ["y", "z"])], [LEAKY]), "has 2 outputs, and the function 1"),
        (
            model_of(
                [call("R", ["x"], ["y"])],
                [function("R", [node("ReduceMean", ["a"], ["c"], axes=[1])])],
                opset=18,
            ),
            "uses ReduceMean of opset 17, and the model opset 18",
        ),
    ],
)
def test_calls_that_do_not_fit(model, words):
    with pytest.raises(InvalidModelError, match=words):
        parse(model)
