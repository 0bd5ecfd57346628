"""ONNX's backend interface: what it keeps compiled, what it takes, what it refuses."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from farrier.errors import InputMismatchError, UnresolvedShapeError, UsageError
from farrier.onnx_backend import backend as onnx_backend


def model(nodes, inputs, output="y"):
    infos = [helper.make_tensor_value_info(n, kind, dims) for n, (kind, dims) in inputs.items()]
    result = onnx.ValueInfoProto(name=output)
    graph = helper.make_graph(nodes, "g", infos, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def f32(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def test_a_static_model_is_compiled_once_and_when_prepared(monkeypatch):
    compiled = []
    original = onnx_backend.compile_model
    monkeypatch.setattr(
        onnx_backend, "compile_model", lambda *a, **k: compiled.append(1) or original(*a, **k)
    )
    relu = helper.make_node("Relu", ["x"], ["y"])
    prepared = onnx_backend.prepare(model([relu], {"x": (TensorProto.FLOAT, [2, 3])}), threads=1)
    assert compiled == [1]
    x = f32(2, 3)
    np.testing.assert_array_equal(prepared.run([x])[0], np.maximum(x, 0))
    np.testing.assert_array_equal(prepared.run({"x": -x}).y, np.maximum(-x, 0))
    assert compiled == [1]


def test_open_dims_are_those_of_the_inputs():
    add = helper.make_node("Add", ["x", "z"], ["y"])
    inputs = {"x": (TensorProto.FLOAT, ["n", 3]), "z": (TensorProto.FLOAT, ["n", 1])}
    prepared = onnx_backend.prepare(model([add], inputs), threads=1)
    for rows in (5, 1, 5):
        x, z = f32(rows, 3), f32(rows, 1)
        np.testing.assert_array_equal(prepared.run([x, z])[0], x + z)


def test_inputs_that_decide_a_rank_are_constants_of_a_compilation():
    nodes = [
        helper.make_node("Add", ["a", "a"], ["twice"]),
        helper.make_node("Squeeze", ["x", "twice"], ["flat"]),
        helper.make_node("Mul", ["flat", "flat"], ["y"]),
    ]
    inputs = {"x": (TensorProto.FLOAT, [1, "n", 1]), "a": (TensorProto.INT64, [1])}
    prepared = onnx_backend.prepare(model(nodes, inputs), threads=1)
    for rows, half in ((4, 0), (4, 1), (2, 0), (4, 0)):
        x, axis = f32(1, rows, 1), np.array([half])
        np.testing.assert_array_equal(prepared.run([x, axis])[0], (x * x).squeeze(2 * half))


def test_nothing_is_computed_while_compiling_that_a_caller_would_take_for_compiled():
    nodes = [
        helper.make_node("Constant", [], ["c"], value_floats=[1.0, 2.0, 3.0, 4.0]),
        helper.make_node("Unsqueeze", ["c", "axes"], ["y"]),
    ]
    prepared = onnx_backend.prepare(model(nodes, {"axes": (TensorProto.INT64, [1])}), threads=1)
    with pytest.raises(UnresolvedShapeError, match="every input decides a shape"):
        prepared.run([np.array([1])])


def test_sizes_that_values_decide_are_compiled():
    node = helper.make_node("Range", ["a", "b", "c"], ["y"])
    scalar = (TensorProto.FLOAT, [])
    prepared = onnx_backend.prepare(model([node], dict.fromkeys("abc", scalar)), threads=1)
    (y,) = prepared.run([np.float32(0), np.float32(4), np.float32(1)])
    np.testing.assert_array_equal(y, np.arange(4, dtype=np.float32))


def test_one_node():
    node = helper.make_node("Gather", ["x", "i"], ["y"], axis=1)
    x, i = f32(3, 5), np.array([4, 0], np.int64)
    (y,) = onnx_backend.run_node(node, [x, i], opset_version=13, threads=1)
    np.testing.assert_array_equal(y, x[:, [4, 0]])


def test_devices():
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA:1")
    relu = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.FLOAT, [1])})
    with pytest.raises(UsageError, match="CUDA"):
        onnx_backend.prepare(relu, "CUDA")


def test_the_number_of_inputs():
    relu = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.FLOAT, [1])})
    with pytest.raises(InputMismatchError, match="takes 1 inputs, not 2"):
        onnx_backend.run_model(relu, [f32(1), f32(1)], threads=1)
