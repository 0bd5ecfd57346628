"""Scalar semantics that numpy lacks: erf and activations, powers of integers, and conversion
between element types."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.ir.narrow import FORMATS
from farrier.ir.types import DType

Function: TypeAlias = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]

EXP_NONPOSITIVE_END = {
    True: -708.3964185322641,
    False: -87.3365447505531,
}  # ln(2^-1022), ln(2^-126)
TF32_MANTISSA = 10  # Bits.
_ERF_ONE = 6.0  # erf(6) differs from 1 by 2e-17


# The Taylor series of erf(x) / x in x²: at 1 the first term left out is 1e-19.
_ERF_NEAR = [
    2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(19)
]


@functools.cache
def _erf_far() -> np.polynomial.Chebyshev:
    """Return a Chebyshev interpolant of erf on [1, 6]."""

    def far(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.array([math.erf(value) for value in x])

    return np.polynomial.Chebyshev.interpolate(far, 45, domain=[1.0, _ERF_ONE])


def exp_nonpositive(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute exp(x) for x <= 0, with 0 for results below the smallest normal number of f32 (of f64
    for f64).

    Subnormal numbers take some processors a hundred cycles each.
    """
    result: npt.NDArray[Any] = np.where(
        x < EXP_NONPOSITIVE_END[x.dtype == np.float64], 0, np.exp(x)
    )
    return result.astype(x.dtype)


def erf(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute the error function elementwise in float64, and return it in the dtype of `x`."""
    wide = x.astype(np.float64)
    magnitude = np.abs(wide)
    small = wide * np.polynomial.polynomial.polyval(np.minimum(magnitude, 1.0) ** 2, _ERF_NEAR)
    large = np.copysign(_erf_far()(np.clip(magnitude, 1.0, _ERF_ONE)), wide)
    result: npt.NDArray[Any] = np.where(magnitude < 1.0, small, large).astype(x.dtype)
    return result


def _in_float64(function: Function) -> Function:
    """Wrap a function of an array so that it is computed in float64, and the result is rounded to
    the dtype of the argument."""

    @functools.wraps(function)
    def rounded(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        result: npt.NDArray[Any] = function(x.astype(np.float64)).astype(x.dtype)
        return result

    return rounded


def _tail(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute the upper tail probability of the standard normal distribution at |x|, to full
    precision."""
    weights = np.frompyfunc(math.erfc, 1, 1)(np.abs(x) * math.sqrt(0.5))
    return np.asarray(weights, np.float64) * 0.5


@_in_float64
def sigmoid(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute 1 / (1 + e^-x) without overflow."""
    decay = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, decay, 1) / (1 + decay))


def mul_high(x: Any, y: Any) -> Any:
    """Return the upper 32 bits of the 64-bit products of two i32 or u32 arrays."""
    wide = np.uint64 if x.dtype == np.uint32 else np.int64
    return (x.astype(wide) * y.astype(wide) >> wide(32)).astype(x.dtype)


def swish(x: npt.NDArray[Any], alpha: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute x * sigmoid(alpha * x) in float64, and return it in the dtype of `x`."""
    wide = x.astype(np.float64)
    result: npt.NDArray[Any] = np.asarray(wide * sigmoid(wide * alpha.astype(np.float64)))
    return result.astype(x.dtype)


@_in_float64
def gelu(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute x times the standard normal distribution function of x."""
    return np.asarray(np.where(x < 0, x * _tail(x), x * (1 - _tail(x))))


@_in_float64
def gelu_tanh(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute x / 2 * (1 + tanh(u)) = x * sigmoid(2 u), u = sqrt(2 / pi) * (x + 0.044715 * x^3), an
    approximation of `gelu` (D. Hendrycks, K. Gimpel, arXiv:1606.08415)."""
    return np.asarray(x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


@_in_float64
def mish(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute x * tanh(log(1 + e^x))."""
    return np.asarray(x * np.tanh(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))))


def round_tf32(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Round floats to the 11 significant bits of tf32, halves away from zero, and return them in
    the dtype of `x`. A value beyond the range of that dtype becomes infinity."""
    if x.dtype.itemsize < 4:  # No narrower type has more significant bits.
        return x
    drop = np.finfo(x.dtype).nmant - TF32_MANTISSA
    bits = x.view(f"i{x.dtype.itemsize}")
    half, kept = (bits.dtype.type(each) for each in (1 << (drop - 1), -1 << drop))
    return np.asarray(np.where(np.isnan(x), x, ((bits + half) & kept).view(x.dtype)))


def real_power(base: npt.NDArray[Any], exponent: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute `base ** exponent` of floats as C defines it: numpy takes the square root for the
    exponent 1/2, and the root of -inf is NaN instead of inf."""
    is_root_of_infinity = (exponent == 0.5) & (base == -np.inf)
    power = np.power(base, exponent)
    return np.asarray(np.where(is_root_of_infinity, np.inf, power)).astype(power.dtype)


def whole_power(base: npt.NDArray[Any], exponent: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute `base ** exponent` of integers of one dtype, wrapped around. A negative exponent
    truncates: the result is 0 unless the base is 1 or -1."""
    whole = np.power(base, np.maximum(exponent, 0))
    unit = (base == 1) | (base + 1 == 0)
    inverse = np.where(unit, np.power(base, exponent & 1), 0)
    result: npt.NDArray[Any] = np.where(exponent < 0, inverse, whole).astype(base.dtype)
    return result


# Every function of floats that no instruction computes, by its name in the expression grammar.
FUNCTIONS: dict[str, Function] = {
    "exp": np.exp,
    "exp_nonpositive": exp_nonpositive,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "erf": erf,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sigmoid": sigmoid,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "mish": mish,
}


def convert(x: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """Return `x` as `dtype`, like numpy's astype, except that float to integer saturates and NaN
    becomes 0. A narrow float is rounded once, whereas ml_dtypes rounds by way of f32; a format
    without NaN has zero for it."""
    source, target = DType.from_numpy(x.dtype), dtype.numpy
    if source.is_float and dtype.is_integer:
        wide = x.astype(np.float64)
        whole = np.trunc(np.where(np.isnan(wide), 0.0, wide))
        least, most = dtype.limits
        # float(int64 max) rounds up to 2**63, which no longer fits: saturate by hand.
        high, low = whole >= float(most), whole <= float(least)
        bounded = np.where(high | low, 0.0, whole).astype(np.uint64 if most >> 63 else np.int64)
        saturated: npt.NDArray[Any] = np.where(high, most, np.where(low, least, bounded))
        return saturated.astype(target)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.is_narrow_float and dtype is not DType.F16 and source.bits >= 32:
            x = _to_odd(x)
        elif source.is_narrow_float or (dtype.bits < 8 and source.is_float):
            x = x.astype(np.float32)  # ml_dtypes lacks many conversions between its own types
        elif source.bits < 8:
            x = x.astype(np.int8)
        form = FORMATS.get(dtype)
        if form is not None and form.nan is None:
            x = np.where(x == x, x, x.dtype.type(0))
        return x.astype(target)


def _to_odd(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Round `x` to f32 with rounding to odd: a number that f32 cannot represent becomes the
    neighbour whose last mantissa bit is 1. Rounding that again to fewer than 23 bits equals
    rounding `x` once (S. Boldo, G. Melquiond, "When double rounding is odd", 2005)."""
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        # The same from 64 bits to the 53 of f64: if any of the last 12 bits is lost, one bit is set
        # for it.
        tail, sticky = x.dtype.type(0xFFF), x.dtype.type(0x800)
        coarse = (x & ~tail) | np.where(x & tail, sticky, x.dtype.type(0))
        x = np.where(np.abs(x.astype(np.float64)) < 2.0**53, x, coarse)
    wide = x.astype(np.float64)
    single = wide.astype(np.float32)
    back = single.astype(np.float64)
    bits = single.view(np.uint32)
    truncated = bits - (np.abs(back) > np.abs(wide))
    odd = np.where((back == wide) | np.isnan(wide), bits, truncated | 1)
    rounded: npt.NDArray[Any] = odd.astype(np.uint32).view(np.float32)
    return rounded
