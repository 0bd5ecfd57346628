"""Small calls have the results, and the errors, of others."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import farrier
from farrier.errors import InputMismatchError, UsageError
from farrier.runtime.small_call import LARGEST


@pytest.fixture(scope="module")
def session():
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 3]) for name in ("x", "w")
    ]
    nodes = [
        helper.make_node("Sub", ["x", "w"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0),
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("y", "total")]
    graph = helper.make_graph(nodes, "g", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return farrier.compile(model, threads=1, verify=False).session()


def check(session, x, w):
    results = session.run({"x": x, "w": w})
    np.testing.assert_array_equal(results["y"], x - w)
    np.testing.assert_allclose(results["total"], (x - w).sum(), rtol=1e-5)
    return results


def test_calls_of_any_size_in_any_order(session):
    rng = np.random.default_rng(0)
    for rows in (1, 1, 2, LARGEST, 2, 2, 0, 0, 1):
        check(session, *(rng.integers(-9, 9, (2, rows, 3)).astype("f4")))


def test_results_stay_what_they_are(session):
    first = check(session, np.ones((2, 3), "f4"), np.zeros((2, 3), "f4"))["y"]
    check(session, np.zeros((2, 3), "f4"), np.zeros((2, 3), "f4"))
    np.testing.assert_array_equal(first, np.ones((2, 3)))


def test_arrays_that_are_not_plain(session):
    x, w = np.arange(12, dtype="f4").reshape(4, 3), np.ones((4, 3), "f4")
    check(session, x, w)
    check(session, np.asfortranarray(x), w)
    check(session, x[::-1], w)
    x.flags.writeable = False
    check(session, x, w)


def test_errors_are_those_of_other_calls(session):
    x = np.ones((2, 3), "f4")
    check(session, x, x)
    for inputs, words in (
        ({"x": x, "w": x.astype("f8")}, "float64"),
        ({"x": x, "w": x[:1]}, "rows"),
        ({"x": x}, "takes the inputs"),
        ({"x": x, "v": x}, "takes the inputs"),
        ({"x": x, "w": x, "v": x}, "takes the inputs"),
    ):
        with pytest.raises(InputMismatchError, match=words):
            session.run(inputs)
    check(session, x, x)


def test_a_closed_session_says_so():
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    node = helper.make_node("Neg", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    closed = farrier.compile(model, threads=1, verify=False).session()
    closed.run({"x": np.ones(2, "f4")})
    closed.close()
    with pytest.raises(UsageError, match="closed"):
        closed.run({"x": np.ones(2, "f4")})


def test_strings_in_and_out():
    info = helper.make_tensor_value_info("x", TensorProto.STRING, ["rows"])
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = farrier.compile(model, threads=1, verify=False).session()
    for words in (["a", "bc"], ["d", "ef"], ["longer", ""], [], ["é"]):
        for x in (np.array(words, object), np.array(words, "U7")):
            for _ in range(2):
                np.testing.assert_array_equal(session.run({"x": x})["y"], words)
