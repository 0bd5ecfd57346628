"""Initializers that callers may override."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.errors import InputMismatchError, UsageError
from farrier.frontends.onnx.importer import import_model

node, info = helper.make_node, helper.make_tensor_value_info
X = np.arange(6, dtype="f4").reshape(2, 3)
W, B = np.eye(3, dtype="f4"), np.array([1, 2, 3], "f4")


def model_of(ir_version=8):
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["y"])]
    infos = [
        info("x", TensorProto.FLOAT, ["n", 3]),
        info("w", TensorProto.FLOAT, [3, 3]),
        info("b", TensorProto.FLOAT, ["k"]),
    ]
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(B, "b")]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name="y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = ir_version
    return bytes(model.SerializeToString())


def test_it_is_a_constant_unless_a_shape_is_given():
    assert import_model(model_of()).input_names == ("x",)
    imported = import_model(model_of(), {"w": (3, 3)})
    assert imported.input_names == ("x", "w")
    assert imported.declaration.defaults == ("b",)
    assert [value.name for value in imported.declaration.inputs] == ["x", "w"]
    imported = import_model(model_of(), {"b": ("?",), "w": ("?", "?")})
    assert imported.input_names == ("x", "w", "b")
    assert imported.graph.inputs[1].type.shape == (3, 3)


def test_an_overridden_initializer_counts_in_every_call():
    artifact = farrier.compile(model_of(), shapes={"b": (3,)}, threads=1)
    for bias in (B, -B):
        np.testing.assert_array_equal(artifact.run({"x": X, "b": bias})["y"], X + bias)
    with pytest.raises(InputMismatchError, match="inputs b, x; given: x"):
        artifact.run({"x": X})


def test_a_value_for_a_constant_is_an_error_that_says_what_to_do():
    artifact = farrier.compile(model_of(), threads=1, verify=False)
    with pytest.raises(InputMismatchError, match="takes the inputs x; given: b, x") as caught:
        artifact.run({"x": X, "b": B})
    assert "--shape b=" in caught.value.hint


def test_shapes_that_clash():
    with pytest.raises(UsageError, match="has 4 at axis 0, not 3"):
        import_model(model_of(), {"w": (4, 3)})
    with pytest.raises(UsageError, match="IR version 3"):
        import_model(model_of(ir_version=3), {"w": (3, 3)})
