"""Quantized operators that are wrong end in a sentence that names the node; odd ones are right."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier.errors import FarrierError
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph

F32, U8, I8 = np.float32, np.uint8, np.int8
_BYTES, _FLOATS = TensorProto.UINT8, TensorProto.FLOAT
_MICROSOFT = "com.microsoft"


def _imported(op, element, constants, shape=(2, 4), opset=23, domain="", **attributes):
    """Import a node of an input x and constants, where None stands for an omitted operand."""
    names = [f"c{at}" if constant is not None else "" for at, constant in enumerate(constants)]
    node = helper.make_node(op, ["x", *names], ["y"], "node", domain=domain, **attributes)
    return _model([node], element, shape, dict(zip(names, constants, strict=True)), opset)


def _model(nodes, element, shape, constants, opset=23):
    initializers = [
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in constants.items()
        if array is not None
    ]
    x = helper.make_tensor_value_info("x", element, shape)
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(_MICROSOFT, 1)]
    return import_model(
        helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    )


def _run(imported, x):
    (value,) = imported.graph.inputs
    (actual,) = run_graph(imported.graph, {value.name: x}).values()
    return actual


SCALE = F32(0.5)
FOUR, GRID = np.full(4, 0.5, F32), np.full((2, 2), 0.5, F32)
PRODUCT = [SCALE, U8(3), np.ones((4, 2), I8), SCALE, I8(0), SCALE, U8(9)]
SUM = [SCALE, U8(3), np.ones((2, 4), U8), SCALE, U8(1), SCALE, U8(9)]


def _with(constants, at, value):
    return [*constants[:at], value, *constants[at + 1 :]]


WRONG = {
    "a zero point of another type": ("DequantizeLinear", _BYTES, [SCALE, I8(3)], {}, "i8"),
    "a zero point out of range": ("QuantizeLinear", _FLOATS, [SCALE, np.int32(300)], {}, "i32"),
    "a zero point of floats": ("QuantizeLinear", _FLOATS, [SCALE, F32(3)], {}, "f32"),
    "one scale, four zero points": (
        *("DequantizeLinear", _BYTES, [SCALE, np.zeros(4, U8)], {}),
        "scale () and zero point (4,) differ",
    ),
    "four scales, one zero point": (
        *("DequantizeLinear", _BYTES, [FOUR, U8(3)], {}),
        "scale (4,) and zero point () differ",
    ),
    "too few scales": (
        *("DequantizeLinear", _BYTES, [FOUR[:3]], {"axis": 1}),
        "3 scales for axis 1 of (2, 4)",
    ),
    "an axis beyond": ("DequantizeLinear", _BYTES, [FOUR], {"axis": 5}, "axis 5 of a tensor"),
    "blocks of the wrong number": (
        *("DequantizeLinear", _BYTES, [np.full((2, 3), 0.5, F32)], {"axis": 1, "block_size": 3}),
        "scales (2, 3) for blocks of 3 along axis 1 of (2, 4)",
    ),
    "blocks of less than nothing": (
        *("DequantizeLinear", _BYTES, [GRID], {"axis": 1, "block_size": -1}),
        "blocks of -1",
    ),
    "scales of rank two, no blocks": ("DequantizeLinear", _BYTES, [GRID], {}, "blocks of 0"),
    "scales of integers": ("DequantizeLinear", _BYTES, [np.int32(1)], {}, "i32"),
    "floats to dequantize": ("DequantizeLinear", _FLOATS, [SCALE], {}, "f32"),
    "floats as quantized": (
        *("QuantizeLinear", _FLOATS, [SCALE], {"output_dtype": TensorProto.FLOAT}),
        "its output_dtype is f32, and must be one of",
    ),
    "i32 as quantized": (
        *("QuantizeLinear", _FLOATS, [SCALE], {"output_dtype": TensorProto.INT32}),
        "its output_dtype is i32",
    ),
    "an output_dtype beside another zero point": (
        *("QuantizeLinear", _FLOATS, [SCALE, U8(1)], {"output_dtype": TensorProto.INT8}),
        "its output_dtype is i8, and its zero point u8",
    ),
    "a precision of integers": (
        *("QuantizeLinear", _FLOATS, [SCALE], {"precision": TensorProto.INT8}),
        "its precision is i8, and must be one of f32, f16, bf16",
    ),
    "integers as dequantized": (
        *("DequantizeLinear", _BYTES, [SCALE], {"output_dtype": TensorProto.INT8}),
        "its output_dtype is i8",
    ),
    "a product's zero point of another type": (
        *("QLinearMatMul", _BYTES, _with(PRODUCT, 1, I8(3)), {}),
        "i8",
    ),
    "a product's scales of the wrong number": (
        *("QLinearMatMul", _BYTES, _with(PRODUCT, 3, FOUR[:3]), {}),
        "do not broadcast",
    ),
    "a sum's zero point of another type": (
        *("QLinearAdd", _BYTES, _with(SUM, 6, I8(9)), {"domain": _MICROSOFT}),
        "an operand is u8, and the zero point of the result i8",
    ),
    "a sum's scale a channel": (
        *("QLinearAdd", _BYTES, _with(SUM, 0, FOUR), {"domain": _MICROSOFT}),
        "(4,)",
    ),
    "scales a channel before they existed": (
        *("DequantizeLinear", _BYTES, [FOUR], {"axis": 1, "opset": 11}),
        "no attribute 'axis' in opset 11",
    ),
    "bytes that are no operands": ("MatMul", _BYTES, [np.ones((4, 2), U8)], {}, "u8"),
}


@pytest.mark.parametrize(
    ("op", "element", "constants", "how", "message"), WRONG.values(), ids=WRONG
)
def test_what_is_wrong_is_told(op, element, constants, how, message):
    with pytest.raises(FarrierError) as caught:
        _imported(op, element, constants, **how)
    assert "node 'node'" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("scale", [0.0, -0.5, np.inf, np.nan])
def test_odd_scales_are_arithmetic_as_any(scale):
    bytes_ = np.array([[0, 3, 4, 255]] * 2, U8)
    actual = _run(_imported("DequantizeLinear", _BYTES, [F32(scale), U8(3)]), bytes_)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(actual, (bytes_.astype(F32) - 3) * F32(scale))


def test_a_scale_that_is_found_as_the_model_runs():
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["scale"], keepdims=0),
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    x = np.array([[-9.0, 1.0, 4.0, 10.0]] * 2, F32)
    actual = _run(_model(nodes, _FLOATS, (2, 4), {"zero": U8(2)}), x)
    np.testing.assert_array_equal(actual, np.rint(x / 10) * F32(10))


def test_weights_of_four_bits_are_dequantized():
    weights = helper.make_tensor("w", TensorProto.INT4, [4, 2], [1, -8, 7, 0, -1, 2, 3, 4])
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["real"]),
        helper.make_node("MatMul", ["x", "real"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", _FLOATS, (2, 4))
    y = helper.make_empty_tensor_value_info("y")
    scale = numpy_helper.from_array(np.array(SCALE), "scale")
    graph = helper.make_graph(nodes, "g", [x], [y], [weights, scale])
    opsets = [helper.make_opsetid("", 21)]
    imported = import_model(
        helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    )
    values = np.arange(8, dtype=F32).reshape(2, 4)
    real = np.array([[1, -8], [7, 0], [-1, 2], [3, 4]], F32) * SCALE
    np.testing.assert_array_equal(_run(imported, values), values @ real)


def test_blocks_that_do_not_divide_the_axis():
    x = np.arange(8, dtype=U8).reshape(2, 4)
    scales = np.array([[0.5, 2.0], [1.0, 4.0]], F32)
    actual = _run(_imported("DequantizeLinear", _BYTES, [scales], axis=1, block_size=3), x)
    np.testing.assert_array_equal(actual, x * scales[:, [0, 0, 0, 1]])
