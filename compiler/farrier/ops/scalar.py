"""Scalar formulas in ordinary notation: `1 / (1 + exp(-x))` builds the expression tree.

A number combined with a Scalar takes the Scalar's dtype. Only the `compute` rules of operators use
this module; the IR itself stays plain data.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from farrier.ir import expr as e
from farrier.ir.dim import Dim
from farrier.ir.expr import Binary, BinaryOp, ByteTable, Cast, Const, Expr, Select, Unary, UnaryOp
from farrier.ir.types import DType

Number: TypeAlias = int | float | bool | Dim


@dataclasses.dataclass(frozen=True, slots=True)
class Scalar:
    """An expression together with its dtype."""

    expr: Expr
    dtype: DType

    def __add__(self, other: Operand) -> Scalar:
        return binary(BinaryOp.ADD, self, other)

    def __radd__(self, other: Number) -> Scalar:
        return binary(BinaryOp.ADD, number(other, self.dtype), self)

    def __sub__(self, other: Operand) -> Scalar:
        return binary(BinaryOp.SUB, self, other)

    def __rsub__(self, other: Number) -> Scalar:
        return binary(BinaryOp.SUB, number(other, self.dtype), self)

    def __mul__(self, other: Operand) -> Scalar:
        return binary(BinaryOp.MUL, self, other)

    def __rmul__(self, other: Number) -> Scalar:
        return binary(BinaryOp.MUL, number(other, self.dtype), self)

    def __truediv__(self, other: Operand) -> Scalar:
        return binary(BinaryOp.DIV, self, other)

    def __rtruediv__(self, other: Number) -> Scalar:
        return binary(BinaryOp.DIV, number(other, self.dtype), self)

    def __neg__(self) -> Scalar:
        return unary(UnaryOp.NEG, self)

    def __lt__(self, other: Operand) -> Scalar:
        return binary(BinaryOp.LT, self, other)

    def __le__(self, other: Operand) -> Scalar:
        return binary(BinaryOp.LE, self, other)

    def __gt__(self, other: Operand) -> Scalar:
        return binary(BinaryOp.LT, coerce(other, self.dtype), self)

    def __ge__(self, other: Operand) -> Scalar:
        return binary(BinaryOp.LE, coerce(other, self.dtype), self)


Operand: TypeAlias = Scalar | Number


def scalar(expr: Expr) -> Scalar:
    """Wrap an expression as an operand of formulas."""
    return Scalar(expr, e.dtype_of(expr))


def number(value: Number, dtype: DType) -> Scalar:
    """Return a literal or a symbolic size as a Scalar of this dtype."""
    if isinstance(value, Dim):
        return cast(scalar(e.index(value)), dtype)
    if dtype is DType.BOOL:
        return Scalar(Const(bool(value), dtype), dtype)
    return Scalar(Const(float(value) if dtype.is_float else int(value), dtype), dtype)


def coerce(value: Operand, dtype: DType) -> Scalar:
    return value if isinstance(value, Scalar) else number(value, dtype)


def unary(op: UnaryOp, x: Scalar) -> Scalar:
    return Scalar(Unary(op, x.expr), x.dtype)


def binary(op: BinaryOp, x: Scalar, y: Operand) -> Scalar:
    right = coerce(y, x.dtype)
    return Scalar(Binary(op, x.expr, right.expr), DType.BOOL if op.is_comparison else x.dtype)


def exp(x: Scalar) -> Scalar:
    return unary(UnaryOp.EXP, x)


def exp_nonpositive(x: Scalar) -> Scalar:
    """Compute exp(x) for x <= 0, with 0 for results below the smallest normal number."""
    return unary(UnaryOp.EXP_NONPOSITIVE, x)


def expm1(x: Scalar) -> Scalar:
    """Compute exp(x) - 1 with all digits near 0."""
    return unary(UnaryOp.EXPM1, x)


def log(x: Scalar) -> Scalar:
    return unary(UnaryOp.LOG, x)


def log1p(x: Scalar) -> Scalar:
    """Compute log(1 + x) with all digits near 0."""
    return unary(UnaryOp.LOG1P, x)


def sqrt(x: Scalar) -> Scalar:
    return unary(UnaryOp.SQRT, x)


def tanh(x: Scalar) -> Scalar:
    return unary(UnaryOp.TANH, x)


def erf(x: Scalar) -> Scalar:
    return unary(UnaryOp.ERF, x)


def sigmoid(x: Scalar) -> Scalar:
    return unary(UnaryOp.SIGMOID, x)


def magnitude(x: Scalar) -> Scalar:
    return unary(UnaryOp.ABS, x)


def floor(x: Scalar) -> Scalar:
    return unary(UnaryOp.FLOOR, x)


def ceil(x: Scalar) -> Scalar:
    return unary(UnaryOp.CEIL, x)


def invert(x: Scalar) -> Scalar:
    """Return the logical negation of a bool."""
    return unary(UnaryOp.NOT, x)


def minimum(x: Scalar, y: Operand) -> Scalar:
    return binary(BinaryOp.MIN, x, y)


def maximum(x: Scalar, y: Operand) -> Scalar:
    return binary(BinaryOp.MAX, x, y)


def entry(entries: bytes, dtype: DType, x: Scalar) -> Scalar:
    """Return `entries[x]`, where `entries` holds 256 elements of `dtype` and x has 8 bits."""
    return Scalar(ByteTable(entries, dtype, x.expr), dtype)


def power(x: Scalar, y: Operand) -> Scalar:
    return binary(BinaryOp.POW, x, y)


def remainder(x: Scalar, y: Operand) -> Scalar:
    """Return the integer remainder with the divisor's sign."""
    return binary(BinaryOp.MOD, x, y)


def equal(x: Scalar, y: Operand) -> Scalar:
    return binary(BinaryOp.EQ, x, y)


def unequal(x: Scalar, y: Operand) -> Scalar:
    return binary(BinaryOp.NE, x, y)


def both(x: Scalar, y: Scalar) -> Scalar:
    return binary(BinaryOp.AND, x, y)


def either(x: Scalar, y: Scalar) -> Scalar:
    return binary(BinaryOp.OR, x, y)


def guarded(condition: Scalar, test: Scalar) -> Scalar:
    """Return `condition and test`; `test` is not evaluated if the condition is false."""
    return where(condition, test, False)


def bits(op: BinaryOp, x: Scalar, y: Operand) -> Scalar:
    """Combine the integers `x` and `y` bit by bit, or shift `x` by `y`."""
    return binary(op, x, y)


def where(condition: Scalar, then: Scalar, otherwise: Operand) -> Scalar:
    other = coerce(otherwise, then.dtype)
    return Scalar(Select(condition.expr, then.expr, other.expr), then.dtype)


def cast(x: Scalar, dtype: DType) -> Scalar:
    return x if x.dtype is dtype else Scalar(Cast(dtype, x.expr), dtype)


def truncate(x: Scalar) -> Scalar:
    """Round a float towards zero."""
    return where(x < 0, ceil(x), floor(x))
