"""Winograd's minimal filtering along one axis: windows of three taps with fewer products.

Here "filter" means a window of r weights, its taps. A tile of t outputs needs t + r - 1 products of
transformed inputs by transformed taps, whereas the direct sum needs t · r: y = A^T [(G w) * (B^T
d)] (Lavin and Gray, "Fast algorithms for convolutional neural networks", 2015). The matrices
evaluate and interpolate polynomials at 0, at infinity, and at points between (Toom and Cook). Sums
for the points p and -p share their even and odd halves; the formulas are written so that equal
subterms are equal expressions.

A window with stride 2 is the sum of two filters: one of two taps on the even inputs, computed as
above, and one of a single tap on the odd inputs, which needs one product per output.

Errors, as max |error| over max |result|, of one layer of 16 to 256 channels in f32: the direct sum
0.5e-6 to 1.8e-6; tiles of 2 outputs 0.2e-6 to 0.8e-6; of 3 and 4 outputs 0.7e-6 to 2.6e-6 (with
integer points up to 9e-6); of 6 outputs 7e-6 to 1e-5.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from farrier.ops.operator import Array
from farrier.ops.scalar import Scalar

Term = TypeVar("Term", Scalar, Array)  # The transforms apply to arrays and to expressions.

TAPS = 3


@dataclasses.dataclass(frozen=True, slots=True)
class _Points:
    """The interpolation points of a filtering: 0 and infinity, p and -p for each p² in `squares`,
    and the at most one point in `single`.
    """

    squares: tuple[float, ...]
    single: tuple[float, ...] = ()

    def input_sums(self, d: Sequence[Term]) -> list[Term]:
        """Compute B^T d, one value for each point in the order 0, p, -p, …, infinity, single point.
        Each value combines the inputs with the coefficients of the polynomial that vanishes at all
        other points.
        """
        whole = _polynomial(self.squares)
        last: list[Term] = [_combine(whole, d[1::2]) for _ in self.single]
        for point in self.single:
            d = [_combine([-point, 1.0], pair) for pair in itertools.pairwise(d)]
        sums: list[Term] = [_combine(whole, d[0::2])]
        for square in self.squares:
            rest = _polynomial([other for other in self.squares if other != square])
            even, odd = _combine(rest, d[2::2]), _combine(rest, d[1::2])
            sums += _pair(even, odd, math.sqrt(square))
        sums.append(_combine(whole, d[1::2]))
        return sums + last

    def output_sums(self, m: Sequence[Term], tile: int) -> list[Term]:
        """Compute A^T m: transform the products `m`, one for each point, to `tile` outputs."""
        pairs = len(self.squares)
        at_pairs = list(zip(m[1 : 2 * pairs : 2], m[2 : 2 * pairs + 1 : 2], strict=True))
        even, odd = [a + b for a, b in at_pairs], [a - b for a, b in at_pairs]
        infinity, single = m[2 * pairs + 1], list(m[2 * pairs + 2 :])
        sums: list[Term] = []
        for power in range(tile):
            parts = (odd if power % 2 else even) + single
            coefficients = [math.pow(square, power / 2) for square in self.squares]
            coefficients += [math.pow(point, power) for point in self.single]
            total = _combine(coefficients, parts)
            if power == 0:
                total = m[0] + total
            sums.append(total + infinity if power == tile - 1 else total)
        return sums

    def weight_matrix(self, taps: int) -> Array:
        """Compute G, [points, taps] in f64: the values of a filter's polynomial at the points, each
        divided by the product of its point's distances from the others."""
        paired = [sign * math.sqrt(square) for square in self.squares for sign in (1, -1)]
        points = [0.0, *paired, *self.single]
        rows = []
        for point in points:
            scale = math.prod(point - other for other in points if other != point)
            rows.append([math.pow(point, power) / scale for power in range(taps)])
        rows.insert(1 + len(paired), [0.0] * (taps - 1) + [1.0])
        return np.array(rows)


# By stride and tile. With integers as points, tiles would be less exact than stated above.
_POINTS: Mapping[tuple[int, int], _Points] = {
    (1, 2): _Points((1.0,)),
    (1, 3): _Points((0.5,), (math.sqrt(2.0),)),
    (1, 4): _Points((0.5, 2.0)),
    (1, 6): _Points((1 / 3, 1.0, 2.5)),
    (2, 2): _Points((), (1.0,)),
    (2, 3): _Points((1.0,)),
    (2, 4): _Points((0.5,), (math.sqrt(2.0),)),
}
# An upper bound of the error of one layer in f32 by tile, as max |error| over max |result|.
ERRORS = {2: 1e-6, 3: 3e-6, 4: 3e-6, 6: 1.5e-5}


@dataclasses.dataclass(frozen=True, slots=True)
class Filtering:
    """Minimal filtering with tiles of `tile` outputs and windows `stride` apart; FILTERINGS lists
    the supported combinations.
    """

    stride: int
    tile: int

    @property
    def points(self) -> int:
        """The number of inputs of a tile, which is also the number of products for it."""
        return (self.tile - 1) * self.stride + TAPS

    def input_sums(self, d: Sequence[Term]) -> list[Term]:
        """Transform the inputs of a tile to the first factors of its products (B^T d)."""
        points = _POINTS[self.stride, self.tile]
        if self.stride == 1:
            return points.input_sums(d)
        return points.input_sums(d[0::2]) + list(d[1::2])

    def output_sums(self, m: Sequence[Term]) -> list[Term]:
        """Transform the products of a tile to its outputs (A^T m)."""
        points = _POINTS[self.stride, self.tile]
        if self.stride == 1:
            return points.output_sums(m, self.tile)
        even = points.output_sums(m[: -self.tile], self.tile)
        return [a + b for a, b in zip(even, m[-self.tile :], strict=True)]

    def weight_matrix(self) -> Array:
        """Return G, [points, taps] in f64, which transforms the taps to the second factors of the
        products.
        """
        points = _POINTS[self.stride, self.tile]
        if self.stride == 1:
            return points.weight_matrix(TAPS)
        matrix = np.zeros((self.points, TAPS))
        matrix[: -self.tile, 0::2] = points.weight_matrix(2)
        matrix[-self.tile :, 1] = 1.0
        return matrix


FILTERINGS = tuple(Filtering(stride, tile) for stride, tile in _POINTS)


def _polynomial(roots: Sequence[float]) -> list[float]:
    """Return the coefficients, lowest power first, of the product of all x - root."""
    product = [1.0]
    for root in roots:
        product = [a - root * b for a, b in zip([0.0, *product], [*product, 0.0], strict=True)]
    return product


def _combine(coefficients: Sequence[float], values: Sequence[Term]) -> Term:
    """Return Σ coefficient · value, largest coefficients first. Values without a coefficient are
    ignored, and a coefficient of 1 or -1 needs no multiplication.
    """
    pairs = list(zip(coefficients, values, strict=False))
    result: Term | None = None
    for coefficient, value in sorted(pairs, key=lambda pair: pair[0] != 1.0):
        if result is None:
            result = value if coefficient == 1.0 else value * coefficient
        elif abs(coefficient) == 1.0:
            result = result + value if coefficient > 0 else result - value
        else:
            result = result + value * coefficient
    assert result is not None
    return result


def _pair(even: Term, odd: Term, point: float) -> list[Term]:
    """Return the values at `point` and -`point` of a polynomial whose even and odd terms sum to
    `even` and `point` · `odd`.
    """
    if point == 1.0:
        return [even + odd, even - odd]
    return [even + odd * point, even + odd * -point]
