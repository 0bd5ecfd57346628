"""Bitwise operators on integers: and, or, xor, not and shifts."""

from __future__ import annotations

import numpy as np

from farrier.ir.expr import BinaryOp
from farrier.ir.types import DType
from farrier.ops.operator import Array, Attrs, Mismatch, Operator, Types
from farrier.ops.pointwise import first_dtype, function, pointwise
from farrier.ops.scalar import Scalar, bits
from farrier.ops.traits import Trait


def _integer(types: Types, attrs: Attrs) -> DType:
    dtype = first_dtype(types, attrs)
    if not dtype.is_integer:
        raise Mismatch(f"its inputs are {dtype}, and must be integers")
    return dtype


def _bitwise(name: str, op: BinaryOp, reference: np.ufunc) -> Operator:
    return pointwise(
        name,
        lambda attrs, x, y: bits(op, x, y),
        lambda attrs, x, y: reference(x, y),
        result=_integer,
        traits=Trait.TOTAL,
    )


def _inverted(x: Scalar) -> Scalar:
    ones = -1 if x.dtype.is_signed else x.dtype.limits[1]
    return bits(BinaryOp.BIT_XOR, x, ones)


def _shift(attrs: Attrs, x: Scalar, y: Scalar) -> Scalar:
    return bits(BinaryOp.SHL if attrs["direction"] == "LEFT" else BinaryOp.SHR, x, y)


def _np_shift(attrs: Attrs, x: Array, y: Array) -> Array:
    return np.asarray((np.left_shift if attrs["direction"] == "LEFT" else np.right_shift)(x, y))


OPERATORS: tuple[Operator, ...] = (
    _bitwise("BitwiseAnd", BinaryOp.BIT_AND, np.bitwise_and),
    _bitwise("BitwiseOr", BinaryOp.BIT_OR, np.bitwise_or),
    _bitwise("BitwiseXor", BinaryOp.BIT_XOR, np.bitwise_xor),
    function("BitwiseNot", _inverted, np.invert, result=_integer, traits=Trait.TOTAL),
    pointwise("BitShift", _shift, _np_shift, result=_integer),
)
