"""Casts between integers and strings."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import farrier
from farrier.errors import UnsupportedOperatorError
from farrier.frontends.onnx.importer import import_model
from farrier.ir.strings import strings_of
from farrier.ops import run_graph


def model_of(kind, to):
    node = helper.make_node("Cast", ["x"], ["y"], to=to)
    infos = [helper.make_tensor_value_info("x", kind, ["n"])]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return bytes(model.SerializeToString())


def evaluated(data, x):
    graph = import_model(data).graph
    (y,) = run_graph(graph, {graph.inputs[0].name: x}).values()
    return y


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_digits(dtype):
    limits = np.iinfo(dtype)
    numbers = [limits.min, limits.max, 0, 1, 9, 10, 11, 99, 100, limits.max // 10]
    numbers += [-1, -10, -99] if limits.min else []
    x = np.array(numbers, dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    texts = strings_of(evaluated(model_of(kind, TensorProto.STRING), x))
    assert texts.tolist() == [str(value) for value in x.tolist()]


def test_truth():
    x = np.array([True, False])
    texts = strings_of(evaluated(model_of(TensorProto.BOOL, TensorProto.STRING), x))
    assert texts.tolist() == ["1", "0"]


@pytest.mark.parametrize("dtype", ["i4", "i8", "u1"])
def test_numbers_of_digits(dtype):
    x = np.array(["0", "7", "12", "+35", "0100", "-1" if dtype != "u1" else "1"])
    points = x.view("u4").reshape(len(x), -1)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    y = evaluated(model_of(TensorProto.STRING, kind), points)
    assert y.dtype == dtype
    assert y.tolist() == [int(text) for text in x]


def test_compiled():
    data = model_of(TensorProto.INT64, TensorProto.STRING)
    x = np.array([-(1 << 63), 5, (1 << 63) - 1, -10])
    texts = farrier.compile(data, threads=1, verify=False).run({"x": x})["y"]
    assert texts.tolist() == [str(value) for value in x.tolist()]


@pytest.mark.parametrize(
    ("kind", "to"),
    [(TensorProto.FLOAT, TensorProto.STRING), (TensorProto.STRING, TensorProto.FLOAT)],
)
def test_floats_are_refused(kind, to):
    with pytest.raises(UnsupportedOperatorError, match="a Cast of"):
        import_model(model_of(kind, to))
