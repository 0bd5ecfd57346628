"""Inverse trigonometric and hyperbolic functions, by polynomials: the IR has no such primitive.

atan(x) = x·p(x²) on [0, 1], and π/2 − atan(1/x) beyond; asin and acos follow from it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from farrier.ir.expr import Buffer, Expr
from farrier.ir.graph import Node
from farrier.ops.builder import Builder, Operand, without_halo
from farrier.ops.operator import Array, Buffers, Operator
from farrier.ops.pointwise import pointwise
from farrier.ops.scalar import Scalar, log, magnitude, number, sqrt, where

Formula: TypeAlias = Callable[[Scalar], Scalar]
Numpy: TypeAlias = Callable[[Array], Array]

_DEGREE = 12  # of p; its error is 1e-11
_LARGE = 1e9  # beyond it √(x² ± 1) = |x| in float64, whose square would overflow


@functools.cache
def _coefficients() -> tuple[float, ...]:
    """p's coefficients, lowest first: atan(√t)/√t interpolated at Chebyshev's points of [0, 1]."""
    points = (np.polynomial.chebyshev.chebpts1(_DEGREE + 1) + 1) / 2
    roots = np.sqrt(points)
    fitted = np.polynomial.Polynomial.fit(points, np.arctan(roots) / roots, _DEGREE, [0.0, 1.0])
    return tuple(float(c) for c in fitted.convert().coef)


def _polynomial(x: Scalar) -> Scalar:
    """atan of 0 <= x <= 1."""
    square = x * x
    value = number(_coefficients()[-1], x.dtype)
    for coefficient in reversed(_coefficients()[:-1]):
        value = value * square + coefficient
    return value * x


def _by_tangent(name: str, tangent: Formula, scale: float, reference: Numpy) -> Operator:
    """The operator that is `scale * atan(tangent(x))`. What the polynomial reads often is a stage
    of its own: as one expression it would be repeated at every place."""

    def compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
        x, kind = builder.operand(node, inputs, 0), node.outputs[0].type
        shape, layout = kind.shape, without_halo(kind.layout)

        def local(hint: str, body: Callable[..., Scalar]) -> Operand:
            return builder.local(hint, shape, kind.dtype, body, layout=layout)

        def folded(*at: Expr) -> Scalar:
            size = magnitude(ratio(*at))
            return where(size > 1, 1 / size, size)

        ratio = local("tangent", lambda *at: tangent(x(*at)))
        near = local("near", folded)
        angle = local("angle", lambda *at: _polynomial(near(*at)))

        def body(*at: Expr) -> Scalar:
            value = where(magnitude(ratio(*at)) > 1, math.pi / 2 - angle(*at), angle(*at)) * scale
            return where(ratio(*at) < 0, -value, value)

        return (builder.output(node, body),)

    plain = pointwise(name, lambda attrs, x: x, lambda attrs, x: reference(x))
    return dataclasses.replace(plain, compute=compute)


def _asinh(x: Scalar) -> Scalar:
    size = magnitude(x)
    value = where(size > _LARGE, log(size) + math.log(2), log(size + sqrt(size * size + 1)))
    return where(x < 0, -value, value)


def _acosh(x: Scalar) -> Scalar:
    return where(x > _LARGE, log(x) + math.log(2), log(x + sqrt(x - 1) * sqrt(x + 1)))


OPERATORS: tuple[Operator, ...] = (
    _by_tangent("Atan", lambda x: x, 1, np.arctan),
    # asin(x) = atan(x / √(1 − x²)), which is ±π/2 where the root is 0, and NaN outside [−1, 1].
    _by_tangent("Asin", lambda x: x / sqrt((1 - x) * (1 + x)), 1, np.arcsin),
    # acos(x) = 2·atan(√(1 − x) / √(1 + x)), accurate at both ends.
    _by_tangent("Acos", lambda x: sqrt(1 - x) / sqrt(1 + x), 2, np.arccos),
    pointwise("Asinh", lambda attrs, x: _asinh(x), lambda attrs, x: np.arcsinh(x)),
    pointwise("Acosh", lambda attrs, x: _acosh(x), lambda attrs, x: np.arccosh(x)),
    pointwise(
        "Atanh",
        lambda attrs, x: log((1 + x) / (1 - x)) * 0.5,
        lambda attrs, x: np.arctanh(x),
    ),
)
