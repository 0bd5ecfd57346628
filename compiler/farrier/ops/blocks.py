"""Weights quantized to a few bits in blocks: unpacking their bytes, and matrix products with
them."""

from __future__ import annotations

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import Extent
from farrier.ir.expr import BinaryOp, Buffer, Expr, Reduce
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops.builder import Builder, Operand, attributes_of, total
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Kind,
    Mismatch,
    Operator,
    Types,
    fail_to_agree,
    optional,
    present,
    required,
)
from farrier.ops.scalar import Scalar, binary, cast, scalar
from farrier.ops.traits import Trait

# Positions of BlockMatMul's operands.
_X, _CODES, _SCALES, _ZEROS, _X_SCALES = range(5)


def _unpacked_kind(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    packed, to = required(types, 0), DType(str(attrs["to"]))
    if packed.dtype is not DType.U8 or not packed.rank or 8 % to.bits or not to.is_integer:
        raise Mismatch(f"elements of {to} in {packed.dtype} of rank {packed.rank}")
    return (TensorType(to, (*packed.shape[:-1], packed.shape[-1] * (8 // to.bits))),)


def _np_unpack(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    return (unpacked(present(arrays, 0), DType(str(attrs["to"]))),)


def unpacked(packed: Array, to: DType) -> Array:
    """Unpack elements of less than 8 bits from rows of bytes, [..., bytes] → [..., bytes · 8 /
    bits]. The first element of a byte is in its lowest bits.
    """
    shape = (*packed.shape[:-1], packed.shape[-1] * (8 // to.bits))
    parts = np.empty((*packed.shape, 8 // to.bits), np.uint8)
    for place in range(8 // to.bits):
        parts[..., place] = packed >> np.uint8(to.bits * place)
    if to.is_signed:
        parts <<= np.uint8(8 - to.bits)
        return (parts.view(np.int8) >> np.int8(8 - to.bits)).reshape(shape).astype(to.numpy)
    parts &= np.uint8((1 << to.bits) - 1)
    return parts.reshape(shape).view(to.numpy)


def _unpack(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, to = builder.operand(node, inputs, 0), DType(str(node.attr("to")))
    count = 8 // to.bits

    def body(*at: Expr) -> Scalar:
        place = cast(scalar(e.mul(e.mod(at[-1], count), to.bits)), DType.U8)
        byte = x(*at[:-1], e.floordiv(at[-1], count))
        return cast(binary(BinaryOp.SHR, byte, place), to)

    return (builder.output(node, body),)


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, codes, scales = (required(types, position) for position in (_X, _CODES, _SCALES))
    if codes.rank != 3 or not codes.dtype.is_integer or codes.dtype.bits > 8:
        raise Mismatch(f"weights {codes.dtype}{codes.shape} must be [blocks, block, columns]")
    blocks, block, columns = codes.shape
    if not x.rank or fail_to_agree(x.shape[-1], blocks * block):
        raise Mismatch(f"rows {x.shape} and {blocks} blocks of {block}")
    zeros = types[_ZEROS] if len(types) > _ZEROS else None
    for parameter in (scales, zeros):
        if parameter is not None and parameter.shape != (blocks, columns):
            raise Mismatch(f"parameters {parameter.shape} of {blocks} blocks and {columns} columns")
    if (x.dtype is DType.I8) != (len(types) > _X_SCALES):
        raise Mismatch(
            f"rows of {x.dtype} {'with' if len(types) > _X_SCALES else 'without'} scales"
        )
    return (TensorType(DType.F32, (*x.shape[:-1], columns)),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, codes, scales = (present(arrays, position) for position in (_X, _CODES, _SCALES))
    zeros, x_scales = optional(arrays, _ZEROS), optional(arrays, _X_SCALES)
    wide = np.float64 if x.dtype == np.float64 else np.float32
    blocks, block, columns = codes.shape
    weights: Array = codes.astype(wide)
    weights = weights - (_middle(attrs) if zeros is None else zeros.astype(wide)[:, None])
    weights = weights * scales.astype(wide)[:, None]
    rows: Array = x.astype(wide).reshape(*x.shape[:-1], blocks, block)
    if x_scales is not None:
        rows = rows * x_scales.astype(wide)[..., None]
    return (np.matmul(rows.reshape(x.shape), weights.reshape(blocks * block, columns)),)


def _middle(attrs: Attrs) -> int:
    zero = attrs.get("zero", 0)
    assert isinstance(zero, int)
    return zero


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    """Declare the stages that compute y = Σ scale · (Σ x · code − zero · Σ x). The outer sum is
    over the blocks, the inner sums are over the elements of a block. The integer codes are
    multiplied directly, without dequantizing them first."""
    x, codes, scales = (builder.operand(node, inputs, at) for at in (_X, _CODES, _SCALES))
    zeros = builder.optional(node, inputs, _ZEROS)
    x_scales = builder.optional(node, inputs, _X_SCALES)
    middle = _middle(attributes_of(node))
    blocks, block, columns = codes.shape
    kind = DType.I32 if x.dtype is DType.I8 else DType.F32
    lead = x.shape[:-1]
    names = (*(f"b{axis}" for axis in range(len(lead) - 1)), "m")[: len(lead)]

    def element(at: tuple[Expr, ...], b: Expr, i: Expr) -> Scalar:
        return cast(x(*at, e.add(e.mul(b, block), i)), kind)

    def sum_of(*at: Expr) -> Reduce:
        *point, b = at
        return total({"i": block}, lambda i: element(tuple(point), b, i))

    def part_of(*at: Expr) -> Reduce:
        *point, b, n = at

        def product(i: Expr) -> Scalar:
            code = cast(codes(b, i, n), kind)  # Dot products have the unsigned factor on the left.
            return code * element(tuple(point), b, i)

        return total({"i": block}, product)

    sums: Operand | None = None
    if zeros is not None or middle:
        sums = builder.local("block_sum", (*lead, blocks), kind, sum_of, axes=(*names, "b"))
    shape: tuple[Extent, ...] = (*lead, blocks, columns)
    parts = builder.local("block_part", shape, kind, part_of, axes=(*names, "b", "n"))

    def term(at: tuple[Expr, ...], b: Expr, n: Expr) -> Scalar:
        value = parts(*at, b, n)
        if sums is not None:
            zero = cast(zeros(b, n), DType.F32) if zeros is not None else None
            if zeros is not None and not zeros.dtype.is_float:
                zero = cast(zeros(b, n), kind)
            value = value - sums(*at, b) * (middle if zero is None else zero)
        scale = cast(scales(b, n), DType.F32)
        if x_scales is not None:
            scale = scale * cast(x_scales(*at, b), DType.F32)
        return cast(value, DType.F32) * scale

    def body(*at: Expr) -> Reduce:
        *point, n = at
        return total({"b": blocks}, lambda b: term(tuple(point), b, n))

    return (builder.output(node, body, hint="block_matmul", axes=(*names, "n")),)


# Elements of `to`, of less than a byte, out of bytes that hold several.
UNPACK_BITS = Operator(
    "UnpackBits",
    Kind.INJECTIVE,
    _unpacked_kind,
    _np_unpack,
    _unpack,
    traits=Trait.PACKED | Trait.DEQUANTIZES,
)
OPERATORS: tuple[Operator, ...] = (
    UNPACK_BITS,
    # x [.., blocks · block] by dequantized weights (codes − zeros) · scales, codes [blocks, block,
    # columns]. Omitted zero points are the attribute `zero`. Rows of i8 come with their scales, one
    # a block.
    Operator("BlockMatMul", Kind.CONTRACTION, _infer, _reference, _compute),
)
