"""Interpolation between four elements by Keys' cubic convolution (IEEE ASSP 29, 1981)."""

from __future__ import annotations

from typing import TypeVar

from farrier.ops.operator import Array
from farrier.ops.scalar import Scalar

USUAL = -0.75  # The default parameter of PyTorch and ONNX.

Term = TypeVar("Term", Scalar, Array)


def cubic_weights(t: Term, a: float) -> list[Term]:
    """Return the weights of the elements at −1, 0, 1 and 2 for interpolation at position `t` in [0,
    1). `a` is the parameter of the kernel.
    """
    return [_far(t + 1, a), _near(t, a), _near(1 - t, a), _far(2 - t, a)]


def _near(d: Term, a: float) -> Term:
    return ((a + 2) * d - (a + 3)) * d * d + 1


def _far(d: Term, a: float) -> Term:
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
