"""Small models as bytes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def info(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(nodes, inputs, outputs, constants=None, **fields):
    """The bytes of a model."""
    graph = helper.make_graph(
        nodes,
        "net",
        inputs,
        outputs,
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, **fields)
    return model.SerializeToString()


def affine():
    """x f32[2, 3] → y = 2 x + 1, z = relu(x); `b` is an input that has a value."""
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["d"]),
        helper.make_node("Add", ["d", "b"], ["y"]),
        helper.make_node("Relu", ["x"], ["z"]),
    ]
    shape = [2, 3]
    return model_of(
        nodes,
        [info("x", TensorProto.FLOAT, shape), info("b", TensorProto.FLOAT, [1])],
        [info("y", TensorProto.FLOAT, shape), info("z", TensorProto.FLOAT, None)],
        {"two": np.float32(2), "b": np.ones(1, np.float32)},
        producer_name="tests",
        doc_string="what it is",
        domain="here",
        model_version=3,
    )


def changed(data, change):
    """The bytes of a model after `change(model)`."""
    model = onnx.load_model_from_string(data)
    change(model)
    return model.SerializeToString()


def named_batch():
    """x f32["batch", 3] → y = relu(x)."""
    node = helper.make_node("Relu", ["x"], ["y"])
    shape = ["batch", 3]
    return model_of(
        [node], [info("x", TensorProto.FLOAT, shape)], [info("y", TensorProto.FLOAT, shape)]
    )


def strings():
    """x string[2] → y, the same."""
    node = helper.make_node("Identity", ["x"], ["y"])
    kind = TensorProto.STRING
    return model_of([node], [info("x", kind, [2])], [info("y", kind, [2])])


def sequence():
    """x f32[2, 3] → y, the sequence of x and -x, and z = x."""
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("SequenceConstruct", ["x", "n"], ["y"]),
        helper.make_node("Identity", ["x"], ["z"]),
    ]
    x = info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    return model_of(nodes, [x], [y, info("z", TensorProto.FLOAT, [2, 3])])
