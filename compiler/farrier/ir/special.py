"""Scalar semantics that numpy lacks: erf, and conversion between element types."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.ir.types import DType

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


def erf(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The error function, elementwise, in the dtype of `x`; computed in float64."""
    near, far = _erf_series()
    wide = x.astype(np.float64)
    magnitude = np.abs(wide)
    small = wide * near(np.minimum(magnitude, 1.0) ** 2)
    large = np.copysign(far(np.clip(magnitude, 1.0, _ERF_ONE)), wide)
    result: npt.NDArray[Any] = np.where(magnitude < 1.0, small, large).astype(x.dtype)
    return result


def convert(x: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """`x` as `dtype`: like numpy's astype, but float to integer saturates and NaN becomes 0."""
    target = dtype.numpy
    if DType.from_numpy(x.dtype).is_float and target.kind in "iu":
        limits = np.iinfo(target)
        whole = np.trunc(np.where(np.isnan(x), 0.0, x.astype(np.float64)))
        inside = np.clip(whole, float(limits.min), float(limits.max))
        # float(int64 max) rounds up to 2**63, which no longer fits: saturate by hand.
        high, low = inside >= float(limits.max), inside <= float(limits.min)
        bounded = np.where(high | low, 0.0, inside).astype(target)
        saturated: npt.NDArray[Any] = np.where(high, limits.max, np.where(low, limits.min, bounded))
        return saturated.astype(target)
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(target)
