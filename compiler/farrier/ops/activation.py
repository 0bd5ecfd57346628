"""Activation functions: ONNX's formulas, rearranged where the plain form would lose digits."""

from __future__ import annotations

import numpy as np

from farrier.ir import special
from farrier.ir.expr import BinaryOp, UnaryOp
from farrier.ir.types import DType
from farrier.ops.conversion import np_whole, whole
from farrier.ops.operator import Array, Attrs, Mismatch, Operator, Types, float_attr
from farrier.ops.pointwise import first_dtype, function, pointwise
from farrier.ops.scalar import (
    Scalar,
    binary,
    cast,
    exp,
    expm1,
    log1p,
    magnitude,
    maximum,
    minimum,
    sigmoid,
    unary,
    where,
)
from farrier.ops.traits import Trait

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
# The defaults of ONNX's schemas, 0.2 and 0.01, which attributes hold as f32.
_HARD_ALPHA = 0.20000000298023224
_LEAK = 0.009999999776482582


def softplus(x: Scalar) -> Scalar:
    """Compute log(1 + e^x) without overflow, and with all digits where the result is small."""
    return maximum(x, 0) + log1p(exp(-magnitude(x)))


def _np_softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _hard_sigmoid(attrs: Attrs, x: Scalar) -> Scalar:
    return minimum(
        maximum(x * float_attr(attrs, "alpha", _HARD_ALPHA) + float_attr(attrs, "beta", 0.5), 0), 1
    )


def _np_hard_sigmoid(attrs: Attrs, x: Array) -> Array:
    return np.clip(
        x * float_attr(attrs, "alpha", _HARD_ALPHA) + float_attr(attrs, "beta", 0.5), 0, 1
    )


def _elu(attrs: Attrs, x: Scalar) -> Scalar:
    return where(x < 0, expm1(x) * float_attr(attrs, "alpha", 1.0), x)


def _np_elu(attrs: Attrs, x: Array) -> Array:
    return np.where(x < 0, np.expm1(x) * x.dtype.type(float_attr(attrs, "alpha", 1.0)), x)


def _celu(attrs: Attrs, x: Scalar) -> Scalar:
    alpha = float_attr(attrs, "alpha", 1.0)
    return maximum(x, 0) + minimum(expm1(x / alpha) * alpha, 0)


def _np_celu(attrs: Attrs, x: Array) -> Array:
    alpha = float_attr(attrs, "alpha", 1.0)
    return np.asarray(np.maximum(x, 0) + np.minimum(np.expm1(x / alpha) * alpha, 0))


def _selu(attrs: Attrs, x: Scalar) -> Scalar:
    alpha, gamma = float_attr(attrs, "alpha", _SELU_ALPHA), float_attr(attrs, "gamma", _SELU_GAMMA)
    return where(x > 0, x, expm1(x) * alpha) * gamma


def _np_selu(attrs: Attrs, x: Array) -> Array:
    alpha, gamma = float_attr(attrs, "alpha", _SELU_ALPHA), float_attr(attrs, "gamma", _SELU_GAMMA)
    return np.asarray(np.where(x > 0, x, np.expm1(x) * x.dtype.type(alpha)) * x.dtype.type(gamma))


def _gelu(attrs: Attrs, x: Scalar) -> Scalar:
    approximate = attrs.get("approximate", "none") == "tanh"
    return unary(UnaryOp.GELU_TANH if approximate else UnaryOp.GELU, x)


def _np_gelu(attrs: Attrs, x: Array) -> Array:
    return (special.gelu_tanh if attrs.get("approximate", "none") == "tanh" else special.gelu)(x)


def _swish(attrs: Attrs, x: Scalar) -> Scalar:
    return binary(BinaryOp.SWISH, x, float_attr(attrs, "alpha", 1.0))


def _np_swish(attrs: Attrs, x: Array) -> Array:
    return special.swish(x, np.asarray(float_attr(attrs, "alpha", 1.0), x.dtype))


def _hard_swish(attrs: Attrs, x: Scalar) -> Scalar:
    """Compute x * clip(x / 6 + 1/2, 0, 1) as x * clip(x + 3, 0, 6) / 6: the sum is exact near its
    zero, x = -3."""
    return x * (minimum(maximum(x + 3, 0), 6) * (1 / 6))


def _np_hard_swish(attrs: Attrs, x: Array) -> Array:
    return np.asarray(x * (np.clip(x + 3, 0, 6) / 6))


def _shrink(attrs: Attrs, x: Scalar) -> Scalar:
    bias, edge = float_attr(attrs, "bias", 0.0), float_attr(attrs, "lambd", 0.5)
    if x.dtype.is_integer:  # `bias` and `lambd` are fractions, so the sums are those of f64.
        return whole(_shrink(attrs, cast(x, DType.F64)), x.dtype)
    return where(x < -edge, x + bias, where(x > edge, x - bias, 0))


def _np_shrink(attrs: Attrs, x: Array) -> Array:
    bias, edge = float_attr(attrs, "bias", 0.0), float_attr(attrs, "lambd", 0.5)
    if x.dtype.kind in "iu":
        return np_whole(_np_shrink(attrs, x.astype(np.float64)), DType.from_numpy(x.dtype))
    return np.where(x < -edge, x + bias, np.where(x > edge, x - bias, x.dtype.type(0)))


def _clip(attrs: Attrs, x: Scalar, low: Scalar | None = None, high: Scalar | None = None) -> Scalar:
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


def _np_clip(attrs: Attrs, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    x = x if low is None else np.maximum(x, low.reshape(()))
    return x if high is None else np.minimum(x, high.reshape(()))


def _clip_dtype(types: Types, attrs: Attrs) -> DType:
    for position, bound in enumerate(types[1:], 1):
        if bound is not None and bound.size != 1:
            raise Mismatch(f"bound {position} has shape {bound.shape}, and must be a scalar")
    return first_dtype(types, attrs)


def _prelu_dtype(types: Types, attrs: Attrs) -> DType:
    if len(types) == 2 and types[0] and types[1] and types[1].rank > types[0].rank:
        raise Mismatch(f"slope {types[1].shape} has a higher rank than its input {types[0].shape}")
    return first_dtype(types, attrs)


OPERATORS: tuple[Operator, ...] = (
    function(
        "Relu",
        lambda x: maximum(x, 0),
        lambda x: np.maximum(x, 0),
        traits=Trait.EXACT,
        derivative=lambda s: [s("Where", s("Greater", s.operands[0], 0.0), s.by, 0.0)],
    ),
    pointwise(
        "LeakyRelu",
        lambda attrs, x: where(x < 0, x * float_attr(attrs, "alpha", _LEAK), x),
        lambda attrs, x: np.where(x < 0, x * x.dtype.type(float_attr(attrs, "alpha", _LEAK)), x),
    ),
    pointwise(
        "PRelu",
        lambda attrs, x, slope: where(x < 0, x * slope, x),
        lambda attrs, x, slope: np.where(x < 0, x * slope, x),
        result=_prelu_dtype,
    ),
    pointwise(
        "ThresholdedRelu",
        lambda attrs, x: where(x > float_attr(attrs, "alpha", 1.0), x, 0),
        lambda attrs, x: np.where(x > float_attr(attrs, "alpha", 1.0), x, x.dtype.type(0)),
        traits=Trait.EXACT,
    ),
    function(
        "Sigmoid",
        sigmoid,
        special.sigmoid,
        lambda s, x, y: s("Mul", y, s("Sub", 1.0, y)),
        instructions=18,
    ),
    pointwise("HardSigmoid", _hard_sigmoid, _np_hard_sigmoid, instructions=3),
    pointwise("HardSwish", _hard_swish, _np_hard_swish, instructions=4),
    pointwise("Swish", _swish, _np_swish),
    function("Softplus", softplus, _np_softplus, lambda s, x, y: s("Sigmoid", x), instructions=20),
    function("Softsign", lambda x: x / (1 + magnitude(x)), lambda x: x / (1 + np.abs(x))),
    function("Mish", lambda x: unary(UnaryOp.MISH, x), special.mish),
    pointwise("Elu", _elu, _np_elu),
    pointwise("Celu", _celu, _np_celu),
    pointwise("Selu", _selu, _np_selu),
    pointwise("Gelu", _gelu, _np_gelu, instructions=18),
    pointwise("Shrink", _shrink, _np_shrink),
    pointwise("Clip", _clip, _np_clip, result=_clip_dtype, traits=Trait.EXACT),
)
