"""The box of a buffer that a loop body reads, as first index and extent by axis.

    for oh2 in 4: for kh in 3: … x[n, c, 8*oh + 2*oh2 + kh] …      body of oh
    axis 0: [n, 1]   axis 1: [c, 1]   axis 2: [8*oh, 9]

First indices are expressions over the variables outside the body; extents are numbers. An axis
whose index mixes outer and inner variables in one division, or that is read at places an unknown
distance apart, counts as read whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from farrier.ir.affine import UNBOUNDED, Linear, Simplifier, to_expr
from farrier.ir.expr import Expr, index
from farrier.ir.substitute import variables


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """`extent` indices from `first` on; `whole` where that is the whole axis."""

    first: Expr
    extent: int
    whole: bool = False


def region(
    simplifier: Simplifier,
    reads: Sequence[tuple[Expr, ...]],
    inner: frozenset[str],
    whole: Sequence[Interval],
) -> tuple[Interval, ...]:
    """The box around `reads`, where `inner` are the variables bound within the body; `whole` is the
    box of all elements there are."""
    columns = zip(*reads, strict=True) if reads else [()] * len(whole)
    return tuple(
        _interval(simplifier, [simplifier.linear(i) for i in column], inner, everything)
        for column, everything in zip(columns, whole, strict=True)
    )


def everything(shape: Sequence[int]) -> tuple[Interval, ...]:
    """The box of all elements of a buffer of that shape."""
    return tuple(Interval(index(0), extent, True) for extent in shape)


def _interval(
    simplifier: Simplifier, forms: Sequence[Linear], inner: frozenset[str], whole: Interval
) -> Interval:
    first: dict[Expr, int] | None = None
    lows: list[int] = []
    highs: list[int] = []
    for form in forms:
        outside: dict[Expr, int] = {}
        inside: dict[Expr, int] = {}
        for atom, factor in form.terms.items():
            names = variables(atom)
            if names & inner:
                if names - inner:
                    return whole
                inside[atom] = factor
            else:
                outside[atom] = factor
        if first is not None and outside != first:
            return whole
        first = outside
        low, high = simplifier.bounds_of(Linear(inside, form.const))
        if low <= -UNBOUNDED or high >= UNBOUNDED:
            return whole
        lows.append(low)
        highs.append(high)
    if first is None:
        return whole
    low, span = min(lows), max(highs) - min(lows) + 1
    if span >= whole.extent:
        return whole
    return Interval(to_expr(Linear(first, low)), span)
