"""Inverse trigonometric and hyperbolic functions, by polynomials: the IR has no such primitive.

atan(x) = x·p(x²) on [0, 1], and π/2 − atan(1/x) beyond; asin and acos follow from it.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from farrier.ops.operator import Operator
from farrier.ops.pointwise import pointwise
from farrier.ops.scalar import Scalar, log, magnitude, number, sqrt, where

_DEGREE = 12  # of p; its error is 1e-11


@functools.cache
def _coefficients() -> tuple[float, ...]:
    """p's coefficients, lowest first: atan(√t)/√t interpolated at Chebyshev's points of [0, 1]."""
    points = (np.polynomial.chebyshev.chebpts1(_DEGREE + 1) + 1) / 2
    roots = np.sqrt(points)
    fitted = np.polynomial.Polynomial.fit(points, np.arctan(roots) / roots, _DEGREE, [0.0, 1.0])
    return tuple(float(c) for c in fitted.convert().coef)


def _atan(x: Scalar) -> Scalar:
    size = magnitude(x)
    far = size > 1
    near = where(far, 1 / size, size)
    square = near * near
    value = number(_coefficients()[-1], x.dtype)
    for coefficient in reversed(_coefficients()[:-1]):
        value = value * square + coefficient
    value = value * near
    angle = where(far, math.pi / 2 - value, value)
    return where(x < 0, -angle, angle)


def _asin(x: Scalar) -> Scalar:
    """asin(x) = atan(x / √(1 − x²)), which is ±π/2 where the root is 0, and NaN outside [−1, 1]."""
    return _atan(x / sqrt((1 - x) * (1 + x)))


def _acos(x: Scalar) -> Scalar:
    """acos(x) = 2·atan(√(1 − x) / √(1 + x)), accurate at both ends."""
    return _atan(sqrt(1 - x) / sqrt(1 + x)) * 2


def _asinh(x: Scalar) -> Scalar:
    size = magnitude(x)
    value = log(size + sqrt(size * size + 1))
    return where(x < 0, -value, value)


OPERATORS: tuple[Operator, ...] = (
    pointwise("Atan", lambda attrs, x: _atan(x), lambda attrs, x: np.arctan(x)),
    pointwise("Asin", lambda attrs, x: _asin(x), lambda attrs, x: np.arcsin(x)),
    pointwise("Acos", lambda attrs, x: _acos(x), lambda attrs, x: np.arccos(x)),
    pointwise("Asinh", lambda attrs, x: _asinh(x), lambda attrs, x: np.arcsinh(x)),
    pointwise(
        "Acosh",
        lambda attrs, x: log(x + sqrt(x * x - 1)),
        lambda attrs, x: np.arccosh(x),
    ),
    pointwise(
        "Atanh",
        lambda attrs, x: log((1 + x) / (1 - x)) * 0.5,
        lambda attrs, x: np.arctanh(x),
    ),
)
