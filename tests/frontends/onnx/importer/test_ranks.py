"""Inputs without a declared rank take that of the nodes that read them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.errors import UnresolvedShapeError
from farrier.frontends.onnx.importer import import_model

node, info = helper.make_node, helper.make_tensor_value_info
WEIGHTS = np.ones((4, 3, 1, 1), "f4")
RELU = node("Relu", ["x"], ["h"])


def model_of(nodes, declared=None, **constants):
    arrays = {name: numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()}
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, None)],
        [info("y", TensorProto.FLOAT, declared)],
        list(arrays.values()),
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("nodes", "rank"),
    [
        ([RELU, node("Conv", ["h", "w"], ["y"])], 4),
        ([node("Mul", ["two", "x"], ["h"]), node("Gemm", ["h", "m"], ["y"])], 2),
        ([node("Transpose", ["x"], ["y"], perm=[0, 2, 1])], 3),
        ([node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])], 4),
        (
            [
                node("Normalizer", ["x"], ["h"], domain="ai.onnx.ml"),
                node("Gemm", ["h", "m"], ["y"]),
            ],
            2,
        ),
        ([node("Resize", ["x", "", "scales"], ["y"])], 4),
    ],
)
def test_readers_tell(nodes, rank):
    scales = np.array([1, 1, 2, 2], "f4")
    data = model_of(nodes, w=WEIGHTS, m=np.ones((3, 2), "f4"), two=np.float32(2), scales=scales)
    assert import_model(data).graph.inputs[0].type.rank == rank


def test_a_declared_result_tells():
    data = model_of([RELU, node("Neg", ["h"], ["y"])], ["n", "c", 5])
    assert import_model(data).graph.inputs[0].type.rank == 3


def test_the_shape_that_is_given_counts():
    nodes = [RELU, node("Neg", ["h"], ["y"])]
    assert import_model(model_of(nodes, ["n"]), {"x": ("a", 3)}).graph.inputs[0].type.rank == 2
    with pytest.raises(UnresolvedShapeError, match="how many dimensions") as caught:
        import_model(model_of(nodes))
    assert "--shape x=" in caught.value.hint


def test_compiled():
    artifact = farrier.compile(model_of([node("Conv", ["x", "w"], ["y"])], w=WEIGHTS), threads=1)
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 7)).astype("f4")
    expected = np.repeat(x.sum(1, keepdims=True), 4, 1)
    np.testing.assert_allclose(artifact.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)
