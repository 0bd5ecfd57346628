"""Weights quantized in blocks, against ONNX Runtime, and against numpy where it has no kernel."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from farrier.errors import UnsupportedOperatorError
from farrier.frontends.onnx.importer import import_model
from tests.frontends.onnx.importer.microsoft.against import (
    Numbers,
    by_onnx_runtime,
    by_operators,
    check,
    one_node,
    same,
)

NUMBERS = Numbers(20261201)
f32, codes, positive = NUMBERS.f32, NUMBERS.codes, NUMBERS.positive


def zero_points(form, columns, blocks, bits):
    if form == "packed":
        return codes(np.uint8, columns, -(-blocks * bits // 8))
    return f32(columns, blocks) if form == "float" else None


@pytest.mark.parametrize("rows", [64, 80])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("form", ["none", "packed", "float"])
def test_products_with_weights_of_a_few_bits(rows, bits, form):
    if (bits, form) == (8, "float"):
        pytest.skip("ONNX Runtime has no kernel of it")
    columns, block = 6, 32
    blocks = -(-rows // block)
    weights, scales = codes(np.uint8, columns, blocks, block * bits // 8), positive(columns, blocks)
    operands = [f32(2, 3, rows), weights, scales, zero_points(form, columns, blocks, bits)]
    attrs = {"K": rows, "N": columns, "bits": bits, "block_size": block}
    fixed = range(1, 6)
    check("MatMulNBits", operands, fixed=fixed, **attrs)
    check("MatMulNBits", [*operands, None, f32(columns)], fixed=fixed, **attrs)
    check("MatMulNBits", operands, fixed=fixed, accuracy_level=4, **attrs)


@pytest.mark.parametrize("form", ["none", "packed", "float"])
def test_rows_that_choose_their_blocks(form):
    """Compare with numpy: ONNX Runtime ignores packed zero points where there is a `g_idx`."""
    columns, block = 6, 32
    weights, scales = codes(np.uint8, columns, 2, block // 2), positive(columns, 2)
    zeros, chosen, x = zero_points(form, columns, 2, 4), NUMBERS.below(2, 64), f32(3, 64)
    points = np.full((columns, 2), 8.0) if form == "none" else zeros
    if form == "packed":
        points = nibbles(zeros)
    real = (nibbles(weights) - points[:, chosen]) * scales[:, chosen]
    operands = [x, weights, scales, zeros, chosen]
    attrs = {"K": 64, "N": columns, "bits": 4, "block_size": block, "fixed": range(1, 5)}
    want = (x @ real.T).astype(np.float32)
    check("MatMulNBits", operands, expected=[want], accuracy_level=4, **attrs)


def nibbles(packed):
    """The numbers of each row of bytes, the lower half of a byte first."""
    return np.stack((packed & 15, packed >> 4), axis=-1).reshape(len(packed), -1).astype(float)


def test_half_precision_and_a_product_that_is_rounded_to_bytes():
    columns, block = 6, 32
    weights, scales = codes(np.uint8, columns, 2, block // 2), positive(columns, 2)
    operands = [NUMBERS.f16(3, 64), weights, scales.astype(np.float16)]
    attrs = {"K": 64, "N": columns, "bits": 4, "block_size": block, "fixed": (1, 2)}
    for level in (0, 4):
        options = {"accuracy_level": level, "tolerance": 1e-3}
        check("MatMulNBits", operands, is_compiled=level == 4, **options, **attrs)


def test_a_projection_that_is_left_out_is_zero():
    operands = [f32(3, 64), np.zeros((6, 0, 16), np.uint8), np.zeros(0, np.float32)]
    check("MatMulNBits", operands, fixed=(1, 2), K=64, N=6, bits=4, block_size=32)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("columns", [6, 5])
def test_codes_of_bitsandbytes(kind, columns):
    rows, block = 48, 16
    weights, scales = codes(np.uint8, columns * rows // 2), positive(columns * rows // block)
    attrs = {"K": rows, "N": columns, "block_size": block, "quant_type": kind}
    check("MatMulBnb4", [f32(2, rows), weights, scales], fixed=(1, 2), **attrs)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_rows_of_bytes(bits, has_zeros):
    table, scales = codes(np.uint8, 8, 64 * bits // 8), positive(8, 4)
    zeros = codes(np.uint8, 8, -(-4 * bits // 8)) if has_zeros else None
    indices = np.array([[1, 7, 0], [3, -1, 2]])
    attrs = {"bits": bits, "block_size": 16, "fixed": (0, 2, 3)}
    is_compiled = bits == 8 and has_zeros
    check("GatherBlockQuantized", [table, indices, scales, zeros], is_compiled=is_compiled, **attrs)
    check("GatherBlockQuantized", [table, indices, scales.astype(np.float16), zeros], **attrs)


@pytest.mark.parametrize("has_zeros", [False, True])
def test_rows_of_images_that_no_block_divides(has_zeros):
    table, scales = codes(np.uint8, 5, 3, 40), positive(5, 3, 3)
    zeros = codes(np.uint8, 5, 3, 3) if has_zeros else None
    attrs = {"bits": 8, "block_size": 16, "quantize_axis": 2, "fixed": (0, 2, 3)}
    check("GatherBlockQuantized", [table, np.array([4, 0]), scales, zeros], **attrs)


def table_model(kind, table, scales, zeros, indices, **attrs):
    """A table of an element type that numpy lacks."""
    names = ["table", "indices", "scales", *(["zeros"] if zeros is not None else [])]
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain="com.microsoft", **attrs)
    weights = [
        helper.make_tensor("table", kind, table.shape, table.flatten().tolist()),
        helper.make_tensor("scales", TensorProto.FLOAT, scales.shape, scales.flatten().tolist()),
    ]
    if zeros is not None:
        weights.append(helper.make_tensor("zeros", kind, zeros.shape, zeros.flatten().tolist()))
    info = helper.make_tensor_value_info("indices", TensorProto.INT64, indices.shape)
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [info], [value], weights)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return model.SerializeToString(), {"indices": indices}


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize(("gathered", "axis"), [(0, 2), (0, 1), (2, 1), (1, -1)])
def test_rows_of_four_bits(kind, has_zeros, gathered, axis):
    low = -8 if kind == TensorProto.INT4 else 0
    shape = [4, 32, 32]
    blocks = [4, 32, 32]
    blocks[axis] = 2
    table, zeros = (NUMBERS.below(16, *s) + low for s in (shape, blocks))
    attrs = {"block_size": 16, "gather_axis": gathered, "quantize_axis": axis}
    points = zeros if has_zeros else None
    data, feeds = table_model(kind, table, positive(*blocks), points, np.array([[3], [0]]), **attrs)
    same(by_operators(data, feeds), by_onnx_runtime(data, feeds))


def test_rows_of_eight_bit_floats_with_one_scale_for_all():
    table = NUMBERS.f32(6, 32).astype(ml_dtypes.float8_e4m3fn)
    scales, indices = positive(1, 2), np.array([5, 1])
    kind = TensorProto.FLOAT8E4M3FN
    data, feeds = table_model(kind, table.astype(np.float32), scales, None, indices, block_size=16)
    want = table.astype(np.float32)[indices] * scales.repeat(16, axis=1)
    same(by_operators(data, feeds), [want])


def test_an_index_out_of_range_names_a_row_of_zeros():
    operands = [codes(np.uint8, 8, 16), np.array([1, 8, -9, -8]), positive(8, 1)]
    attrs = {"bits": 8, "block_size": 16, "fixed": (0, 2)}
    check("GatherBlockQuantized", operands, **attrs)


def test_weights_that_the_model_computes_are_refused_by_name():
    operands = [f32(2, 64), codes(np.uint8, 6, 2, 16), positive(6, 2)]
    data, _ = one_node("MatMulNBits", operands, fixed=(2,), K=64, N=6, block_size=32)
    with pytest.raises(UnsupportedOperatorError, match="weights computed at run time"):
        import_model(data)
