"""Rules of elementwise operations. Operands may be `Spread`, tensors repeated along axes that are
not materialized."""

from __future__ import annotations

import functools
import math

from farrier.frontends.builder.images import first_axes
from farrier.frontends.stablehlo.scope import Scope, Spread, Value
from farrier.frontends.stablehlo.table import hlo
from farrier.ir.types import DType
from farrier.ops import NotSupported

_UNARY = {
    "abs": "Abs",
    "ceil": "Ceil",
    "cosine": "Cos",
    "exponential": "Exp",
    "floor": "Floor",
    "log": "Log",
    "logistic": "Sigmoid",
    "negate": "Neg",
    "round_nearest_even": "Round",
    "sign": "Sign",
    "sine": "Sin",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
}
_CHLO = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erf", "sinh")
_BINARY = {  # Operators of numbers, and of truth values.
    "add": ("Add", "Or"),
    "and": ("BitwiseAnd", "And"),
    "divide": ("Div", ""),
    "maximum": ("Max", "Or"),
    "minimum": ("Min", "And"),
    "multiply": ("Mul", "And"),
    "or": ("BitwiseOr", "Or"),
    "power": ("Pow", ""),
    "subtract": ("Sub", ""),
    "xor": ("BitwiseXor", "Xor"),
}
_COMPARE = {
    "EQ": "Equal",
    "GE": "GreaterOrEqual",
    "GT": "Greater",
    "LE": "LessOrEqual",
    "LT": "Less",
}
_UNSIGNED = {DType.I8: DType.U8, DType.I16: DType.U16, DType.I32: DType.U32, DType.I64: DType.U64}


def spread_over(s: Scope, op: str, *operands: Value, **attrs: object) -> Value:
    """Add an elementwise node, and return its result. `Spread` operands are not materialized,
    because Farrier's operators broadcast. If an operand is a `Spread` and no other operand has the
    rank of the result, the result is a `Spread` as well. If all other operands of that rank are
    available in NCHW layout, the node computes in NCHW."""
    whole = [x for x in operands if isinstance(x, str) and s.rank(x) == s.result.rank]
    if whole and all(s.b.has_channels_first(x) for x in whole):
        moved = [_channels_first(s, x) for x in operands]
        return s.b.channels_last(s.node(op, *moved, **attrs))
    result = s.node(op, *(x if isinstance(x, str) else x.name for x in operands), **attrs)
    repeated = [x for x in operands if isinstance(x, Spread)]
    return result if whole or not repeated else Spread(result, repeated[0].sizes)


def _channels_first(s: Scope, x: Value) -> str:
    if isinstance(x, Spread):
        return s.transpose(x.name, first_axes(s.rank(x)))
    return s.b.channels_first(x) if s.rank(x) else x


def _unary(op: str, s: Scope, x: Value) -> Value:
    return spread_over(s, op, x)


def _binary(ops: tuple[str, str], s: Scope, x: Value, y: Value) -> Value:
    op = ops[s.dtype(x) is DType.BOOL]
    if not op:
        raise NotSupported(f"{s.operation.name} of truth values")
    return spread_over(s, op, x, y)


for _name, _op in _UNARY.items():
    hlo(f"stablehlo.{_name}", takes_spreads=True)(functools.partial(_unary, _op))
for _name in _CHLO:
    hlo(f"chlo.{_name}", takes_spreads=True)(functools.partial(_unary, _name.capitalize()))
for _name, _ops in _BINARY.items():
    hlo(f"stablehlo.{_name}", takes_spreads=True)(functools.partial(_binary, _ops))


@hlo("stablehlo.remainder", takes_spreads=True)
def remainder(s: Scope, x: Value, y: Value) -> Value:
    return spread_over(s, "Mod", x, y, fmod=1)


@hlo("stablehlo.not", takes_spreads=True)
def invert(s: Scope, x: Value) -> Value:
    return spread_over(s, "Not" if s.dtype(x) is DType.BOOL else "BitwiseNot", x)


@hlo("stablehlo.convert", takes_spreads=True)
def convert(s: Scope, x: Value) -> Value:
    dtype = s.result_dtype
    return x if s.dtype(x) is dtype else spread_over(s, "Cast", x, to=dtype.value)


@hlo("stablehlo.compare", takes_spreads=True)
def compare(s: Scope, x: Value, y: Value) -> Value:
    direction = s.word("comparison_direction")
    if direction == "NE":
        return spread_over(s, "Not", spread_over(s, "Equal", x, y))
    if direction not in _COMPARE:
        raise NotSupported(f"a comparison {direction!r}")
    if s.dtype(x) is DType.BOOL and direction != "EQ":
        x, y = (spread_over(s, "Cast", each, to=DType.U8.value) for each in (x, y))
    return spread_over(s, _COMPARE[direction], x, y)


@hlo("stablehlo.select", takes_spreads=True)
def select(s: Scope, condition: Value, then: Value, otherwise: Value) -> Value:
    return spread_over(s, "Where", condition, then, otherwise)


@hlo("stablehlo.clamp", takes_spreads=True)
def clamp(s: Scope, low: Value, x: Value, high: Value) -> Value:
    return spread_over(s, "Min", spread_over(s, "Max", x, low), high)


@hlo("stablehlo.rsqrt", takes_spreads=True)
def rsqrt(s: Scope, x: Value) -> Value:
    return spread_over(s, "Reciprocal", spread_over(s, "Sqrt", x))


@hlo("stablehlo.is_finite", takes_spreads=True)
def is_finite(s: Scope, x: Value) -> Value:
    is_off = spread_over(s, "Or", spread_over(s, "IsNaN", x), spread_over(s, "IsInf", x))
    return spread_over(s, "Not", is_off)


def _shift(direction: str, s: Scope, x: Value, y: Value) -> Value:
    dtype = s.dtype(x)
    unsigned = _UNSIGNED.get(dtype, dtype)
    if unsigned is dtype:
        return spread_over(s, "BitShift", x, y, direction=direction)
    bits = [spread_over(s, "Cast", each, to=unsigned.value) for each in (x, y)]
    shifted = spread_over(s, "BitShift", *bits, direction=direction)
    return spread_over(s, "Cast", shifted, to=dtype.value)


hlo("stablehlo.shift_left", takes_spreads=True)(functools.partial(_shift, "LEFT"))
hlo("stablehlo.shift_right_logical", takes_spreads=True)(functools.partial(_shift, "RIGHT"))


@hlo("stablehlo.cbrt", takes_spreads=True)
def cbrt(s: Scope, x: Value) -> Value:
    third = s.scalar(1 / 3, s.result_dtype)
    root = spread_over(s, "Pow", spread_over(s, "Abs", x), third)
    return spread_over(s, "Mul", spread_over(s, "Sign", x), root)


@hlo("stablehlo.round_nearest_afz", takes_spreads=True)
def round_away(s: Scope, x: Value) -> Value:
    half = s.scalar(0.5, s.result_dtype)
    size = spread_over(s, "Floor", spread_over(s, "Add", spread_over(s, "Abs", x), half))
    return spread_over(s, "Mul", spread_over(s, "Sign", x), size)


@hlo("stablehlo.log_plus_one", takes_spreads=True)
def log_plus_one(s: Scope, x: Value) -> Value:
    """Add nodes for log(1 + x) as log(u) · x / (u - 1), where u is the rounded 1 + x; this corrects
    the rounding error."""
    unit = s.scalar(1.0, s.result_dtype)
    u = spread_over(s, "Add", x, unit)
    rest = spread_over(s, "Sub", u, unit)
    corrected = spread_over(s, "Mul", spread_over(s, "Log", u), spread_over(s, "Div", x, rest))
    is_tiny = spread_over(s, "Equal", u, unit)
    is_end = spread_over(s, "IsInf", x)
    return spread_over(s, "Where", spread_over(s, "Or", is_tiny, is_end), x, corrected)


@hlo("stablehlo.exponential_minus_one", takes_spreads=True)
def exponential_minus_one(s: Scope, x: Value) -> Value:
    """Add nodes for exp(x) - 1 as (u - 1) · x / log(u), where u is the rounded exp(x); this
    corrects the rounding error, which matters only for small x."""
    unit = s.scalar(1.0, s.result_dtype)
    u = spread_over(s, "Exp", x)
    rest = spread_over(s, "Sub", u, unit)
    corrected = spread_over(s, "Mul", rest, spread_over(s, "Div", x, spread_over(s, "Log", u)))
    small = spread_over(s, "Where", spread_over(s, "Equal", u, unit), x, corrected)
    return spread_over(
        s, "Where", spread_over(s, "Less", spread_over(s, "Abs", x), unit), small, rest
    )


@hlo("stablehlo.atan2", takes_spreads=True)
def atan2(s: Scope, y: Value, x: Value) -> Value:
    dtype = s.result_dtype
    zero, pi = s.scalar(0.0, dtype), s.scalar(math.pi, dtype)
    turn = spread_over(s, "Where", spread_over(s, "Less", y, zero), s.scalar(-math.pi, dtype), pi)
    angle = spread_over(s, "Atan", spread_over(s, "Div", y, x))
    behind = spread_over(s, "Add", angle, turn)
    angle = spread_over(s, "Where", spread_over(s, "Less", x, zero), behind, angle)
    upright = spread_over(s, "Mul", spread_over(s, "Sign", y), s.scalar(math.pi / 2, dtype))
    return spread_over(s, "Where", spread_over(s, "Equal", x, zero), upright, angle)
