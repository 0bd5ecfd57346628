"""Rules of elementwise operators."""

from __future__ import annotations

import functools
import math
from typing import Any

from farrier.frontends.torch.scope import Scope
from farrier.frontends.torch.table import aten
from farrier.ir.types import DType
from farrier.ops import NotSupported

_FLOAT = {  # Operators that return floats, of integers too.
    "acos": "Acos",
    "acosh": "Acosh",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "log": "Log",
    "reciprocal": "Reciprocal",
    "sigmoid": "Sigmoid",
    "sin": "Sin",
    "sinh": "Sinh",
    "special_erf": "Erf",
    "special_expit": "Sigmoid",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
}
_SAME = {  # Operators that keep the type.
    "abs": "Abs",
    "hardswish": "HardSwish",
    "mish": "Mish",
    "neg": "Neg",
    "relu": "Relu",
    "selu": "Selu",
    "sign": "Sign",
    "silu": "Swish",
}
_ROUND = {"floor": "Floor", "ceil": "Ceil", "round": "Round"}
_COMPARE = {
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
}
_BITS = {"and": ("And", "BitwiseAnd"), "or": ("Or", "BitwiseOr"), "xor": ("Xor", "BitwiseXor")}
_MOST = {DType.F32: 3.4028234663852886e38, DType.F64: 1.7976931348623157e308}


def _float_unary(op: str, s: Scope, x: str) -> str:
    return s.node(op, s.cast(x, s.result))


def _unary(op: str, s: Scope, x: str) -> str:
    return s.node(op, x)


def _rounding(op: str, s: Scope, x: str) -> str:
    return s.node(op, x) if s.dtype(x).is_float else x


def _comparison(op: str, s: Scope, x: str, y: Any) -> str:
    left, right = s.promote(x, y)
    if op != "Equal" and s.dtype(left) is DType.BOOL:
        left, right = s.cast(left, DType.U8), s.cast(right, DType.U8)
    return s.node(op, left, right)


def _bitwise(ops: tuple[str, str], s: Scope, x: str, y: Any) -> str:
    left, right = s.promote(x, y)
    return s.node(ops[s.dtype(left) is not DType.BOOL], left, right)


def _logical(op: str, s: Scope, x: str, y: str) -> str:
    return s.node(op, s.truth(x), s.truth(y))


for _name, _op in _FLOAT.items():
    aten(f"aten.{_name}.default")(functools.partial(_float_unary, _op))
for _name, _op in _SAME.items():
    aten(f"aten.{_name}.default")(functools.partial(_unary, _op))
for _name, _op in _ROUND.items():
    aten(f"aten.{_name}.default")(functools.partial(_rounding, _op))
for _name, _op in _COMPARE.items():
    aten(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(functools.partial(_comparison, _op))
for _name, _ops in _BITS.items():
    for _way in (f"bitwise_{_name}", f"__{_name}__"):
        aten(f"aten.{_way}.Tensor", f"aten.{_way}.Scalar")(functools.partial(_bitwise, _ops))
    aten(f"aten.logical_{_name}.default")(functools.partial(_logical, _ops[0]))


@aten("aten.ne.Tensor", "aten.ne.Scalar")
def not_equal(s: Scope, x: str, y: Any) -> str:
    return s.node("Not", s.node("Equal", *s.promote(x, y)))


@aten("aten.logical_not.default")
def logical_not(s: Scope, x: str) -> str:
    return s.node("Not", s.truth(x))


@aten("aten.bitwise_not.default")
def bitwise_not(s: Scope, x: str) -> str:
    return s.node("Not" if s.dtype(x) is DType.BOOL else "BitwiseNot", x)


@aten("aten.isnan.default")
def isnan(s: Scope, x: str) -> str:
    return s.node("IsNaN", s.floating(x))


@aten("aten.isinf.default")
def isinf(s: Scope, x: str) -> str:
    return s.node("IsInf", s.floating(x))


@aten("aten.isfinite.default")
def isfinite(s: Scope, x: str) -> str:
    x = s.floating(x)
    return s.node("Not", s.node("Or", s.node("IsNaN", x), s.node("IsInf", x)))


def _scaled(s: Scope, y: Any, alpha: Any) -> Any:
    """Return `alpha` times an operand."""
    if alpha == 1:
        return y
    if isinstance(y, str):
        return s.node("Mul", s.tensor(y, s.result), s.tensor(alpha, s.result))
    return y * alpha


def _binary(s: Scope, op: str, x: Any, y: Any) -> str:
    dtype = s.result
    if dtype is DType.BOOL:
        logical = {"Add": "Or", "Mul": "And"}.get(op)
        if logical is None:
            raise NotSupported(f"{op} of bool")
        op = logical
    return s.node(op, s.tensor(x, dtype), s.tensor(y, dtype))


@aten("aten.add.Tensor", "aten.add.Scalar")
def add(s: Scope, x: Any, y: Any, alpha: Any = 1) -> str:
    return _binary(s, "Add", x, _scaled(s, y, alpha))


@aten("aten.sub.Tensor", "aten.sub.Scalar")
def sub(s: Scope, x: Any, y: Any, alpha: Any = 1) -> str:
    return _binary(s, "Sub", x, _scaled(s, y, alpha))


@aten("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(s: Scope, x: Any, y: Any, alpha: Any = 1) -> str:
    return _binary(s, "Sub", y, _scaled(s, x, alpha))


@aten("aten.mul.Tensor", "aten.mul.Scalar")
def mul(s: Scope, x: Any, y: Any) -> str:
    return _binary(s, "Mul", x, y)


@aten("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def div(s: Scope, x: Any, y: Any) -> str:
    return _binary(s, "Div", x, y)


@aten("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(s: Scope, x: Any, y: Any, rounding_mode: str | None = None) -> str:
    if rounding_mode == "floor":
        return floor_divide(s, x, y)
    quotient = _binary(s, "Div", x, y)
    return trunc(s, quotient) if rounding_mode is not None else quotient


@aten("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(s: Scope, x: Any, y: Any) -> str:
    if s.result.is_float:
        return s.node("Floor", _binary(s, "Div", x, y))
    left, right = s.tensor(x, s.result), s.tensor(y, s.result)
    # The remainder has the sign of the divisor, so the difference is a multiple of it.
    return s.node("Div", s.node("Sub", left, s.node("Mod", left, right)), right)


@aten("aten.remainder.Tensor", "aten.remainder.Scalar")
def remainder(s: Scope, x: Any, y: Any) -> str:
    left, right = s.tensor(x, s.result), s.tensor(y, s.result)
    if not s.result.is_float:
        return s.node("Mod", left, right)
    quotient = s.node("Floor", s.node("Div", left, right))
    return s.node("Sub", left, s.node("Mul", quotient, right))


@aten("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(s: Scope, x: Any, y: Any) -> str:
    return s.node("Mod", s.tensor(x, s.result), s.tensor(y, s.result), fmod=1)


@aten("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def power(s: Scope, x: Any, y: Any) -> str:
    base = s.tensor(x, s.result)
    if isinstance(y, int | float) and y in (2, 0.5):
        return s.node("Mul", base, base) if y == 2 else s.node("Sqrt", base)
    return s.node("Pow", base, s.tensor(y, s.result))


@aten("aten.square.default")
def square(s: Scope, x: str) -> str:
    return s.node("Mul", x, x)


@aten("aten.rsqrt.default")
def rsqrt(s: Scope, x: str) -> str:
    return s.node("Reciprocal", s.node("Sqrt", s.cast(x, s.result)))


@aten("aten.exp2.default")
def exp2(s: Scope, x: str) -> str:
    return s.node("Pow", s.scalar(2.0, s.result), s.cast(x, s.result))


@aten("aten.expm1.default")
def expm1(s: Scope, x: str) -> str:
    return s.node("Sub", s.node("Exp", s.cast(x, s.result)), s.scalar(1.0, s.result))


@aten("aten.log1p.default")
def log1p(s: Scope, x: str) -> str:
    return s.node("Log", s.node("Add", s.cast(x, s.result), s.scalar(1.0, s.result)))


@aten("aten.log2.default")
def log2(s: Scope, x: str) -> str:
    return s.node("Mul", s.node("Log", s.cast(x, s.result)), s.scalar(1 / math.log(2), s.result))


@aten("aten.log10.default")
def log10(s: Scope, x: str) -> str:
    return s.node("Mul", s.node("Log", s.cast(x, s.result)), s.scalar(1 / math.log(10), s.result))


@aten("aten.trunc.default", "aten.fix.default")
def trunc(s: Scope, x: str) -> str:
    if not s.dtype(x).is_float:
        return x
    return s.node("Mul", s.node("Sign", x), s.node("Floor", s.node("Abs", x)))


@aten("aten.atan2.default")
def atan2(s: Scope, y: str, x: str) -> str:
    y, x = s.cast(y, s.result), s.cast(x, s.result)
    zero, pi = s.scalar(0.0, s.result), s.scalar(math.pi, s.result)
    turn = s.node("Where", s.node("Less", y, zero), s.node("Neg", pi), pi)
    angle = s.node("Atan", s.node("Div", y, x))
    angle = s.node("Where", s.node("Less", x, zero), s.node("Add", angle, turn), angle)
    upright = s.node("Mul", s.node("Sign", y), s.scalar(math.pi / 2, s.result))
    return s.node("Where", s.node("Equal", x, zero), upright, angle)


@aten("aten.maximum.default", "aten.max.other")
def maximum(s: Scope, x: str, y: str) -> str:
    return s.node("Max", *s.promote(x, y))


@aten("aten.minimum.default", "aten.min.other")
def minimum(s: Scope, x: str, y: str) -> str:
    return s.node("Min", *s.promote(x, y))


@aten("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default")
def clamp(s: Scope, x: str, min: Any = None, max: Any = None) -> str:
    x = s.cast(x, s.result)
    if min is not None:
        x = s.node("Max", x, s.tensor(min, s.result))
    return x if max is None else s.node("Min", x, s.tensor(max, s.result))


@aten("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(s: Scope, x: str, min: Any) -> str:
    return clamp(s, x, min)


@aten("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(s: Scope, x: str, max: Any) -> str:
    return clamp(s, x, None, max)


@aten("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(s: Scope, condition: str, x: Any, y: Any) -> str:
    return s.node("Where", s.truth(condition), s.tensor(x, s.result), s.tensor(y, s.result))


@aten("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(s: Scope, x: str, mask: str, value: Any) -> str:
    return s.node("Where", s.truth(mask), s.tensor(value, s.dtype(x)), x)


@aten("aten.gelu.default")
def gelu(s: Scope, x: str, approximate: str = "none") -> str:
    return s.node("Gelu", x, approximate=approximate)


@aten("aten.leaky_relu.default")
def leaky_relu(s: Scope, x: str, negative_slope: float = 0.01) -> str:
    return s.node("LeakyRelu", x, alpha=float(negative_slope))


@aten("aten.elu.default")
def elu(s: Scope, x: str, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> str:
    if input_scale != 1:
        raise NotSupported(f"an input_scale of {input_scale}")
    y = s.node("Elu", x, alpha=float(alpha))
    return y if scale == 1 else s.node("Mul", y, s.scalar(float(scale), s.dtype(x)))


@aten("aten.celu.default")
def celu(s: Scope, x: str, alpha: float = 1.0) -> str:
    return s.node("Celu", x, alpha=float(alpha))


@aten("aten.relu6.default")
def relu6(s: Scope, x: str) -> str:
    return clamp(s, x, 0, 6)


@aten("aten.hardtanh.default")
def hardtanh(s: Scope, x: str, min_val: float = -1, max_val: float = 1) -> str:
    return clamp(s, x, min_val, max_val)


@aten("aten.hardsigmoid.default")
def hardsigmoid(s: Scope, x: str) -> str:
    return s.node("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@aten("aten.softplus.default")
def softplus(s: Scope, x: str, beta: float = 1, threshold: float = 20) -> str:
    if beta == 1:
        return s.node("Softplus", x)
    factor = s.scalar(float(beta), s.dtype(x))
    return s.node("Div", s.node("Softplus", s.node("Mul", x, factor)), factor)


@aten("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(s: Scope, x: str, weight: str) -> str:
    if s.rank(weight) == 1 and s.rank(x) > 2 and not s.is_size(weight, 0, 1):
        weight = s.unsqueeze(weight, *range(1, s.rank(x) - 1))
    return s.node("PRelu", x, weight)


@aten("aten.log_sigmoid.default")
def log_sigmoid(s: Scope, x: str) -> str:
    return s.node("Neg", s.node("Softplus", s.node("Neg", x)))


@aten("aten.glu.default")
def glu(s: Scope, x: str, dim: int = -1) -> str:
    axis = s.axis(x, dim)
    half = s.shape(x)[axis] // 2
    left, gate = s.nodes("Split", [x, [half, half]], 2, axis=axis)
    return s.node("Mul", left, s.node("Sigmoid", gate))


@aten("aten.threshold.default")
def threshold(s: Scope, x: str, threshold: float, value: float) -> str:
    above = s.node("Greater", x, s.scalar(threshold, s.dtype(x)))
    return s.node("Where", above, x, s.scalar(value, s.dtype(x)))


@aten("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(s: Scope, x: str, end: str, weight: Any) -> str:
    return s.node("Add", x, s.node("Mul", s.node("Sub", end, x), s.tensor(weight, s.dtype(x))))


@aten("aten.addcmul.default")
def addcmul(s: Scope, x: str, y: str, z: str, value: float = 1) -> str:
    return s.node("Add", x, _scaled(s, s.node("Mul", y, z), value))


@aten("aten.nan_to_num.default")
def nan_to_num(
    s: Scope,
    x: str,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> str:
    dtype = s.dtype(x)
    if dtype not in _MOST:
        raise NotSupported(f"nan_to_num of {dtype}")
    x = s.node("Where", s.node("IsNaN", x), s.scalar(nan or 0.0, dtype), x)
    high = s.scalar(_MOST[dtype] if posinf is None else posinf, dtype)
    low = s.scalar(-_MOST[dtype] if neginf is None else neginf, dtype)
    x = s.node("Where", s.node("IsInf", x, detect_negative=0), high, x)
    return s.node("Where", s.node("IsInf", x, detect_positive=0), low, x)


@aten(
    "aten.dropout.default",
    "aten.feature_dropout.default",
    "aten.alpha_dropout.default",
)
def dropout(s: Scope, x: str, p: float, train: bool) -> str:
    if train and p > 0:
        raise NotSupported("dropout that is active (call module.eval() before the export)")
    return x
