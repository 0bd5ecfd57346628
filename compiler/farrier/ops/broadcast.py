"""Arithmetic of two or more operands under numpy's broadcasting, and Where."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence

import numpy as np

from farrier.ir.expr import Const, UnaryOp
from farrier.ir.special import real_power, whole_power
from farrier.ir.types import DType
from farrier.ops import affine, symbolic
from farrier.ops.conversion import np_whole, whole
from farrier.ops.derivative import Adjoint, unchanged
from farrier.ops.operator import Array, Attrs, Mismatch, Operator, Types, required
from farrier.ops.pointwise import first_dtype, pointwise
from farrier.ops.scalar import (
    Scalar,
    both,
    cast,
    either,
    equal,
    magnitude,
    maximum,
    minimum,
    number,
    power,
    remainder,
    truncate,
    unary,
    unequal,
    where,
)
from farrier.ops.traits import Trait

# More operands than these are combined as a balanced tree. The limit keeps expressions far from
# Python's limit of recursion (1000), which walks of a chain of some hundred operands exceed.
_MOST_IN_A_ROW = 16


def _combined(combine: Callable[[Scalar, Scalar], Scalar], operands: Sequence[Scalar]) -> Scalar:
    """Combine operands by an associative function: in order, or as a balanced tree where a chain
    would be too deep an expression to walk."""
    if len(operands) <= _MOST_IN_A_ROW:
        return functools.reduce(combine, operands)
    middle = len(operands) // 2
    return combine(_combined(combine, operands[:middle]), _combined(combine, operands[middle:]))


def _safe_divisor(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar | None, Scalar | None]:
    """Return three values for an integer division of `x` by `y`: a divisor with which the division
    cannot trap, and the conditions that `y` is 0 and that it is -1. In both cases the divisor is 1.
    A condition that cannot hold is None."""
    if isinstance(y.expr, Const) and y.expr.value not in (0, -1):
        return y, None, None
    zero = equal(y, 0)
    minus_one = equal(y, -1) if y.dtype.is_signed else None
    bad = zero if minus_one is None else either(zero, minus_one)
    return where(bad, number(1, y.dtype), y), zero, minus_one


def _div(attrs: Attrs, x: Scalar, y: Scalar) -> Scalar:
    """Divide. Integer division truncates towards zero, and an integer divided by zero is 0."""
    if x.dtype.is_float:
        return x / y
    divisor, zero, minus_one = _safe_divisor(x, y)
    result = x / divisor
    if x.dtype.is_signed:
        mixed = unequal(x < 0, divisor < 0)
        result = where(both(unequal(remainder(x, divisor), 0), mixed), result + 1, result)
    result = result if minus_one is None else where(minus_one, 0 - x, result)
    return result if zero is None else where(zero, number(0, x.dtype), result)


def _np_div(attrs: Attrs, x: Array, y: Array) -> Array:
    if DType.from_numpy(x.dtype).is_float:
        return np.asarray(x / y)
    quotient: Array = x // y
    inexact = (quotient * y != x) & ((x < 0) != (y < 0)) & (y != 0)
    truncated: Array = quotient + inexact
    return truncated.astype(x.dtype)


def _mod(attrs: Attrs, x: Scalar, y: Scalar) -> Scalar:
    """Compute the remainder. It has the sign of the divisor, or with the attribute `fmod` that of
    the dividend.
    """
    if x.dtype.is_float:
        rest = _float_remainder(x, y)
        if attrs.get("fmod", 0):
            return rest
        return where(both(unequal(rest, 0), unequal(rest < 0, y < 0)), rest + y, rest)
    divisor, zero, minus_one = _safe_divisor(x, y)
    result = remainder(x, divisor)
    if attrs.get("fmod", 0) and x.dtype.is_signed:
        result = x - divisor * _div(attrs, x, divisor)
    for replaced in (zero, minus_one):
        result = result if replaced is None else where(replaced, number(0, x.dtype), result)
    return result


# The quotient's bits in one step: with the divisor's 24 they fit the 53 bits of an f64.
_QUOTIENT_BITS = 28


def _float_remainder(x: Scalar, y: Scalar) -> Scalar:
    """Return the remainder of truncated division with the sign of the dividend.

    It is exact while the quotient is below 2**53 for f64, which is divided at once, and below 2**56
    for shorter types, which are divided in two steps in f64."""
    dividend, divisor = (cast(magnitude(operand), DType.F64) for operand in (x, y))
    if x.dtype is not DType.F64:
        dividend = _reduced(dividend, divisor * 2.0**_QUOTIENT_BITS)
    rest = cast(_reduced(dividend, divisor), x.dtype)
    is_negative = either(x < 0, number(1, x.dtype) / x < 0)  # The second test holds for -0.
    return rest * where(is_negative, number(-1, x.dtype), number(1, x.dtype))


def _reduced(x: Scalar, divisor: Scalar) -> Scalar:
    """Return `x` modulo `divisor`, both not negative, for floats.

    Expressions are trees, so each operand is used as few times as possible.
    """
    multiplied = minimum(divisor, sys.float_info.max)  # The product with infinity could be NaN.
    rest = x - multiplied * truncate(x / divisor)
    # The quotient may have been rounded up.
    return rest + where(rest < 0, divisor, number(0, divisor.dtype))


def _np_mod(attrs: Attrs, x: Array, y: Array) -> Array:
    return np.asarray(np.fmod(x, y) if attrs.get("fmod", 0) else np.mod(x, y))


def _pow(attrs: Attrs, x: Scalar, y: Scalar) -> Scalar:
    """Compute x to the power y. Small constant exponents become products and roots."""
    if isinstance(y.expr, Const):
        match float(y.expr.value):
            case 1.0:
                return x
            case 2.0:
                return x * x
            case 3.0:
                return x * x * x
            case 4.0:
                return (x * x) * (x * x)
            case -1.0 if x.dtype.is_float:
                return 1 / x
    if x.dtype.is_float:
        return power(x, cast(y, x.dtype))
    if not y.dtype.is_float:
        return cast(power(cast(x, DType.I64), cast(y, DType.I64)), x.dtype)
    real = power(cast(x, DType.F64), cast(y, DType.F64))
    # A result that is an integer but for the error of the power must not be truncated to the next
    # one.
    nearest = unary(UnaryOp.ROUND, real)
    is_exact = magnitude(real - nearest) < magnitude(nearest) * _POWER_ERROR
    return whole(where(is_exact, nearest, real), x.dtype)


_POWER_ERROR = 1e-12  # Relative; more than the error of a power in f64.


def _np_pow(attrs: Attrs, x: Array, y: Array) -> Array:
    if DType.from_numpy(x.dtype).is_float:
        return real_power(x, y.astype(x.dtype))
    if DType.from_numpy(y.dtype).is_float:
        real = real_power(x.astype(np.float64), y.astype(np.float64))
        return np_whole(real, DType.from_numpy(x.dtype))
    return whole_power(x.astype(np.int64), y.astype(np.int64)).astype(x.dtype)


def _div_derivative(s: Adjoint) -> Sequence[str]:
    share = s("Div", s.by, s.operands[1])
    return [share, s("Neg", s("Mul", share, s.result))]


def _pow_derivative(s: Adjoint) -> Sequence[str]:
    """Return the gradients by the base and by the exponent. The gradient by the exponent is 0 where
    the base is not positive and so has no logarithm.
    """
    x, y = s.operands[0], s("Cast", s.operands[1], to=str(s.dtype))
    slope = s("Mul", y, s("Pow", x, s("Sub", y, 1.0)))
    by_x = s("Mul", s.by, s("Where", s("Equal", y, 0.0), 0.0, slope))
    log = s("Log", s("Where", s("Greater", x, 0.0), x, 1.0))
    return [by_x, s("Mul", s.by, s("Mul", s.result, log))]


def _where_derivative(s: Adjoint) -> Sequence[str | None]:
    condition = s.operands[0]
    return [None, s("Where", condition, s.by, 0.0), s("Where", condition, 0.0, s.by)]


def _base_dtype(types: Types, attrs: Attrs) -> DType:
    required(types, 1)
    return required(types, 0).dtype


def _where_dtype(types: Types, attrs: Attrs) -> DType:
    if required(types, 0).dtype is not DType.BOOL:
        raise Mismatch(f"the condition is {required(types, 0).dtype}, and must be bool")
    required(types, 2)
    return first_dtype(types[1:], attrs)


ADD = pointwise(
    "Add",
    lambda attrs, x, y: x + y,
    lambda attrs, x, y: x + y,
    traits=Trait.COMMUTATIVE | Trait.AFFINE | Trait.TOTAL,
    neutral=0.0,
    affine=affine.by_operand(lambda operand: (np.ones_like(operand), operand)),
    symbolic=symbolic.add,
    derivative=unchanged,
)
SUB = pointwise(
    "Sub",
    lambda attrs, x, y: x - y,
    lambda attrs, x, y: x - y,
    traits=Trait.AFFINE | Trait.TOTAL,
    neutral=0.0,
    affine=affine.by_operand(lambda operand: (np.ones_like(operand), -operand)),
    symbolic=symbolic.subtract,
    derivative=lambda s: [s.by, s("Neg", s.by)],
)
MUL = pointwise(
    "Mul",
    lambda attrs, x, y: x * y,
    lambda attrs, x, y: x * y,
    traits=Trait.COMMUTATIVE | Trait.AFFINE | Trait.TOTAL,
    neutral=1.0,
    affine=affine.by_operand(lambda operand: (operand, np.zeros_like(operand))),
    symbolic=symbolic.multiply,
    derivative=lambda s: [s("Mul", s.by, other) for other in reversed(s.operands)],
)
DIV = pointwise(
    "Div",
    _div,
    _np_div,
    traits=Trait.DIVIDES,
    neutral=1.0,
    affine=affine.by_operand(lambda operand: (1 / operand, np.zeros_like(operand))),
    symbolic=symbolic.divide,
    derivative=_div_derivative,
)
POW = pointwise("Pow", _pow, _np_pow, result=_base_dtype, neutral=1.0, derivative=_pow_derivative)
MAX = pointwise(
    "Max",
    lambda attrs, *xs: _combined(maximum, xs),
    lambda attrs, *xs: functools.reduce(np.maximum, xs),
    traits=Trait.COMMUTATIVE | Trait.TOTAL | Trait.EXACT,
    symbolic=symbolic.greatest,
)
OPERATORS: tuple[Operator, ...] = (
    ADD,
    SUB,
    MUL,
    DIV,
    pointwise("Mod", _mod, _np_mod, traits=Trait.DIVIDES, symbolic=symbolic.modulo),
    POW,
    pointwise(
        "Min",
        lambda attrs, *xs: _combined(minimum, xs),
        lambda attrs, *xs: functools.reduce(np.minimum, xs),
        traits=Trait.COMMUTATIVE | Trait.TOTAL | Trait.EXACT,
        symbolic=symbolic.least,
    ),
    MAX,
    pointwise(
        "Sum",
        lambda attrs, *xs: _combined(Scalar.__add__, xs),
        lambda attrs, *xs: functools.reduce(np.add, xs),
        traits=Trait.TOTAL,
        derivative=unchanged,
    ),
    pointwise(
        "Mean",
        lambda attrs, *xs: _combined(Scalar.__add__, xs) / len(xs),
        lambda attrs, *xs: functools.reduce(np.add, xs) / len(xs),
        derivative=lambda s: [s("Div", s.by, float(len(s.operands)))] * len(s.operands),
    ),
    pointwise(
        "Where",
        lambda attrs, condition, x, y: where(condition, x, y),
        lambda attrs, condition, x, y: np.asarray(np.where(condition, x, y)),
        result=_where_dtype,
        traits=Trait.TOTAL | Trait.EXACT,
        symbolic=symbolic.choose,
        derivative=_where_derivative,
    ),
)
