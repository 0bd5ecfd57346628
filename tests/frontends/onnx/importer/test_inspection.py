"""The inspection of models that compile, and of models that do not."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.models import build
from farrier.frontends.inspection import (
    LEFT_OUT,
    MOST_BYTES,
    OpenDim,
    Parameters,
    Tensor,
)
from farrier.frontends.onnx.importer import inspection
from farrier.frontends.onnx.model.file import Model
from tests.fuzz.hostile import model_of

FLOAT, node = TensorProto.FLOAT, helper.make_node


def of(nodes, inputs, outputs, constants=(), opset=17) -> bytes:
    graph = helper.make_graph(nodes, "net", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("my.ops", 1)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="tests")
    return bytes(model.SerializeToString())


def info(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def test_a_model_that_compiles():
    weights = numpy_helper.from_array(np.ones((67, 13), np.float32), "w")
    actual = inspection(
        of(
            [node("MatMul", ["x", "w"], ["y"], "first"), node("Relu", ["y"], ["z"], "second")],
            [info("x", ["n", 67])],
            [info("z", None)],  # The import infers its shape.
            [weights],
        )
    )
    assert (actual.compiles, actual.problems) == (True, ())
    assert (actual.producer, actual.opset) == ("tests", 17)
    assert actual.inputs == (Tensor("x", "f32", ("n", 67)),)
    assert actual.outputs == (Tensor("z", "f32", ("n", 13)),)
    assert actual.parameters == Parameters(1, 67 * 13 * 4)
    assert [(use.op, use.count, use.supported) for use in actual.operators] == [
        ("MatMul", 1, True),
        ("Relu", 1, True),
    ]
    assert actual.open_dims == (OpenDim("n", 0, 65536, 1),)
    names = [(entry.kind, entry.op, entry.name) for entry in actual.graph.nodes]
    assert names == [
        ("input", "", "x"),
        ("node", "MatMul", "first"),
        ("node", "Relu", "second"),
        ("output", "", "z"),
    ]
    assert actual.graph.edges == ((0, 1, "x"), (1, 2, "y"), (2, 3, "z"))


def test_unknown_operators_are_told_with_the_rest():
    nodes = [node("Relu", ["x"], ["a"]), node("Warp", ["a"], ["y"], "w1", domain="my.ops")]
    actual = inspection(of(nodes, [info("x", ["n", 3])], [info("y", ["n", 3])]))
    assert not actual.compiles
    [problem] = actual.problems
    assert (problem.code, "my.ops:Warp" in problem.detail) == ("unsupported-operator", True)
    unknown = [use for use in actual.operators if not use.supported]
    assert [(use.op, use.domain, use.count) for use in unknown] == [("Warp", "my.ops", 1)]
    assert unknown[0].reason == "Farrier has no operator my.ops:Warp; first: 'w1'"
    assert len(actual.graph.nodes) == 4
    assert [dim.name for dim in actual.open_dims] == ["n"]


@pytest.mark.parametrize("data", [b"", b"no model", build("resnet18", classes=10)[:-40]])
def test_what_is_no_model_has_a_document_that_says_so(data):
    actual = inspection(data)
    [problem] = actual.problems
    assert problem.code == "invalid-model"
    assert (actual.opset, actual.inputs, actual.graph.nodes) == (0, (), ())
    assert json.loads(actual.to_json())["problems"][0]["detail"] == problem.detail


def test_an_input_that_is_no_tensor_is_shown_beside_the_problem():
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    sequence = helper.make_value_info("x", kind)
    nodes = [node("SequenceLength", ["x"], ["y"])]
    actual = inspection(of(nodes, [sequence], [info("y", [], TensorProto.INT64)]))
    assert actual.inputs == (Tensor("x", "seq(tensor(float))", None),)
    assert not actual.compiles


def test_open_dims_have_the_range_that_operators_leave():
    actual = inspection(
        of(
            [node("Reshape", ["x", "s"], ["y"])],
            [info("x", ["h"])],
            [info("y", None)],
            [numpy_helper.from_array(np.array([-1, 32]), "s")],
        )
    )
    [dim] = actual.open_dims
    assert (dim.name, dim.low % 32, dim.typical % 32) == ("h", 0, 0)
    assert actual.preconditions


def test_a_branch_that_does_not_compile_is_told_and_keeps_nothing():
    def branch(op, domain=""):
        body = [node(op, ["x"], ["r"], domain=domain)]
        return helper.make_graph(body, "b", [], [info("r", [3])])

    choice = node(
        "If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Warp", "my.ops")
    )
    inputs = [info("x", [3]), info("c", [], TensorProto.BOOL)]
    actual = inspection(of([choice], inputs, [info("y", [3])]))
    assert [problem.code for problem in actual.problems] == [LEFT_OUT]
    assert actual.compiles
    assert {use.op: use.supported for use in actual.operators} == {
        "If": True,
        "Relu": True,
        "Warp": False,
    }
    assert (0, 2, "x") in actual.graph.edges  # A branch reads this value.


def test_data_in_files_is_not_needed_to_count_it(tmp_path):
    model = onnx.load_from_string(build("resnet18", classes=10))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    whole = inspection(Model.of_path(tmp_path / "m.onnx"))
    assert whole.compiles
    assert whole.parameters.bytes > 40_000_000
    (tmp_path / "m.data").unlink()
    actual = inspection(Model.of_path(tmp_path / "m.onnx"))
    assert actual.parameters == whole.parameters
    assert "'m.data'" in actual.problems[0].detail


def test_a_large_graph_is_cut_and_says_so():
    chain = [node("Neg", [f"t{at}"], [f"t{at + 1}"]) for at in range(30_000)]
    data = of(chain, [info("t0", [3])], [info("t30000", [3])])
    actual = inspection(data)
    assert (len(actual.graph.nodes), actual.graph.left_out) == (20_000, 10_002)
    assert actual.operators[0].count == 30_000
    written = json.loads(actual.to_json())["graph"]
    assert (len(written["nodes"]), len(written["edges"])) == (20_000, 19_999)


def test_long_and_many_names_make_no_large_document():
    long = "\u202e<b>" + "ü" * 500
    chain = [node("Neg", [f"{long}{at}"], [f"{long}{at + 1}"], f"{at}{long}") for at in range(9000)]
    actual = inspection(of(chain, [info(f"{long}0", [3])], [info(f"{long}9000", [3])]))
    text = actual.to_json()
    assert len(text) <= MOST_BYTES
    graph = json.loads(text)["graph"]
    assert len(graph["nodes"]) + graph["left_out"] == 9002
    assert graph["left_out"] > 0
    assert all(end < len(graph["nodes"]) for edge in graph["edges"] for end in edge[:2])


def test_hostile_sizes_are_numbers_that_every_reader_has():
    weights = TensorProto(name="w", data_type=FLOAT, dims=[1 << 62, 1 << 62, -5])
    graph = helper.make_graph(
        [node("Neg", ["x"], ["y"])], "g", [info("x", [1 << 62])], [info("y", [3])], [weights]
    )
    actual = inspection(helper.make_model(graph).SerializeToString())
    assert actual.inputs[0].dims == ((1 << 53) - 1,)
    assert not actual.compiles
    assert inspection(model_of([node("Neg", ["x"], ["y"])])).compiles
