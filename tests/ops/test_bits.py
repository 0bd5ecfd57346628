"""Integers bit by bit: operators against numpy, interpreted and compiled."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import farrier
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def whole(rng, dtype, *shape):
    """Any bits."""
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits(check_operator, rng, op, dtype):
    check_operator(op, [whole(rng, dtype, 2, 3, 5), whole(rng, dtype, 3, 1)], opset=18)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_inverted_bits(check_operator, rng, dtype):
    check_operator("BitwiseNot", [whole(rng, dtype, 7)], opset=18)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_shift_by_any_amount(check_operator, rng, direction, dtype):
    x, amounts = whole(rng, dtype, 4, 17), rng.integers(0, 100, (4, 17)).astype(dtype)
    if np.dtype(dtype).kind == "i":
        amounts[0] = -amounts[0]
    shift = np.left_shift if direction == "LEFT" else np.right_shift
    check_operator(
        "BitShift", [x, amounts], opset=28, direction=direction, expected=[shift(x, amounts)]
    )


@pytest.mark.parametrize("dtype", INTEGERS)
def test_compiled_shifts(rng, dtype):
    nodes = [
        helper.make_node("BitShift", ["x", "n"], ["left"], direction="LEFT"),
        helper.make_node("BitShift", ["x", "n"], ["right"], direction="RIGHT"),
        helper.make_node("BitwiseXor", ["left", "right"], ["both"]),
        helper.make_node("BitwiseNot", ["both"], ["y"]),
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    infos = [helper.make_tensor_value_info(name, kind, [3, 37]) for name in "xn"]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)])
    x, n = whole(rng, dtype, 3, 37), rng.integers(0, 80, (3, 37)).astype(dtype)
    artifact = farrier.compile(model, verify=False, threads=1)
    expected = ~(np.left_shift(x, n) ^ np.right_shift(x, n))
    np.testing.assert_array_equal(artifact.run({"x": x, "n": n})["y"], expected)


@pytest.mark.parametrize(("source", "to"), [("float32", "int32"), ("uint64", "float64")])
def test_bits_as_another_type(rng, source, to):
    node = helper.make_node(
        "BitCast", ["x"], ["b"], to=helper.np_dtype_to_tensor_dtype(np.dtype(to))
    )
    double = helper.make_node("Add", ["b", "b"], ["y"])
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(source))
    info = helper.make_tensor_value_info("x", kind, [3, 5])
    graph = helper.make_graph([node, double], "g", [info], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)])
    x = (rng.random((3, 5)) * 3).astype(source)
    bits = x.view(to)
    imported = import_model(model.SerializeToString()).graph
    (reference,) = run_graph(imported, {imported.inputs[0].name: x}).values()
    np.testing.assert_array_equal(reference, bits + bits)
    artifact = farrier.compile(model, verify=False, threads=1)
    np.testing.assert_array_equal(artifact.run({"x": x})["y"], bits + bits)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_products(check_operator, rng, exclusive, reverse):
    x = rng.standard_normal((3, 5, 2)).astype(np.float32)
    turned = x[:, ::-1] if reverse else x
    products = np.cumprod(turned, axis=1)
    if exclusive:
        products = np.concatenate([np.ones_like(x[:, :1]), products[:, :-1]], 1)
    expected = products[:, ::-1] if reverse else products
    axis = {1: np.array(1, np.int64)}
    attrs = {"exclusive": exclusive, "reverse": reverse}
    check_operator("CumProd", [x], static=axis, opset=26, expected=[expected], **attrs)
