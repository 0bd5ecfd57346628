"""Scalar semantics that numpy lacks: erf, powers of integers, and conversion between element
types."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.ir.narrow import FORMATS
from farrier.ir.types import DType

EXP_NONPOSITIVE_END = {
    True: -708.3964185322641,
    False: -87.3365447505531,
}  # ln(2^-1022), ln(2^-126)
_ERF_ONE = 6.0  # erf(6) differs from 1 by 2e-17


@functools.cache
def _erf_series() -> tuple[np.polynomial.Chebyshev, np.polynomial.Chebyshev]:
    """erf(√t)/√t for t in [0, 1], and erf on [1, 6], as Chebyshev interpolants."""

    def near(t: npt.NDArray[Any]) -> npt.NDArray[Any]:
        roots = np.sqrt(np.maximum(t, 1e-300))
        return np.array([math.erf(root) / root for root in roots])

    def far(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.array([math.erf(value) for value in x])

    interpolate = np.polynomial.Chebyshev.interpolate
    return interpolate(near, 16, domain=[0.0, 1.0]), interpolate(far, 45, domain=[1.0, _ERF_ONE])


def exp_nonpositive(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """exp(x) of x <= 0, and 0 below the smallest normal number of f32, or of f64 for those.

    Numbers that are not normal take some processors a hundred cycles each.
    """
    result: npt.NDArray[Any] = np.where(
        x < EXP_NONPOSITIVE_END[x.dtype == np.float64], 0, np.exp(x)
    )
    return result.astype(x.dtype)


def erf(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The error function, elementwise, in the dtype of `x`; computed in float64."""
    near, far = _erf_series()
    wide = x.astype(np.float64)
    magnitude = np.abs(wide)
    small = wide * near(np.minimum(magnitude, 1.0) ** 2)
    large = np.copysign(far(np.clip(magnitude, 1.0, _ERF_ONE)), wide)
    result: npt.NDArray[Any] = np.where(magnitude < 1.0, small, large).astype(x.dtype)
    return result


def whole_power(base: npt.NDArray[Any], exponent: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`base ** exponent` of integers of one dtype, wrapped around; a negative exponent gives what
    truncation does: 0, but for a base of 1 or -1."""
    whole = np.power(base, np.maximum(exponent, 0))
    unit = (base == 1) | (base + 1 == 0)
    inverse = np.where(unit, np.power(base, exponent & 1), 0)
    result: npt.NDArray[Any] = np.where(exponent < 0, inverse, whole).astype(base.dtype)
    return result


def convert(x: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """`x` as `dtype`: like numpy's astype, but float to integer saturates and NaN becomes 0, and
    what becomes a narrow float is rounded once (ml_dtypes goes through f32); a format without NaN
    has zero for it."""
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
    """`x` in f32, rounded to odd: where it is no f32, to the neighbour whose last bit is 1. Rounded
    again to less than 23 bits that is what `x` rounded once would be (S. Boldo, G. Melquiond,
    "When double rounding is odd", 2005)."""
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        # The same from 64 bits to the 53 of f64: where bits are lost, one bit tells of the last 12.
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
