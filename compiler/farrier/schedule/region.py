"""Compute the box of a buffer that a loop body reads, as first index and extent for each axis.

    for oh2 in 4: for kh in 3: … x[n, c, 8*oh + 2*oh2 + kh] …      body of oh
    axis 0: [n, 1]   axis 1: [c, 1]   axis 2: [8*oh, 9]

First indices are expressions over the variables of loops around the body; extents depend on no loop
variable. A guard that all reads share limits the box: a constant limit reduces the extent, and a
limit that is an expression becomes the interval's `last`.

    for i in 4: if 4*o + i < 10: … x[4*o + i] …                   axis 0: [4*o, 4], last 9

An axis counts as read completely if its index mixes outer and inner variables in one division, or
if the reads lie at an unknown distance from each other.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from farrier.ir.affine import UNBOUNDED, Simplifier
from farrier.ir.dim import Extent, is_less, maximum, minimum
from farrier.ir.expr import Expr, index
from farrier.ir.linear import Linear, combine, to_expr
from farrier.ir.substitute import variables


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """The indices `first` to `first + extent - 1` of an axis, cut off after `last` if that is set.
    `whole` is set if they are all indices of the axis."""

    first: Expr
    extent: Extent
    whole: bool = False
    last: Expr | None = None


def region(
    simplifier: Simplifier,
    reads: Sequence[tuple[Expr, ...]],
    inner: frozenset[str],
    whole: Sequence[Interval],
    conditions: Sequence[tuple[Expr, ...]] = (),
) -> tuple[Interval, ...]:
    """Return the box around the indices `reads`, one interval for each axis.

    `reads` has the indices of each read, and `conditions` the conditions under which each read
    takes place. `inner` names the variables of loops within the body. `whole` is the box of all
    elements of the buffer.
    """
    columns = zip(*reads, strict=True) if reads else [()] * len(whole)
    forms = [[simplifier.slack(c) for c in each] for each in conditions or [()] * len(reads)]
    slacks = [[slack for slack in each if slack is not None] for each in forms]
    return tuple(
        _interval(simplifier, [simplifier.linear(i) for i in column], slacks, inner, everything)
        for column, everything in zip(columns, whole, strict=True)
    )


def everything(shape: Sequence[Extent]) -> tuple[Interval, ...]:
    """Return the box of all elements of a buffer of that shape."""
    return tuple(Interval(index(0), extent, True) for extent in shape)


def _interval(
    simplifier: Simplifier,
    forms: Sequence[Linear],
    slacks: Sequence[Sequence[Linear]],
    inner: frozenset[str],
    whole: Interval,
) -> Interval:
    first: dict[Expr, Extent] | None = None
    lows: list[Extent] = []
    highs: list[Extent] = []
    lasts: list[Linear | None] = []
    for form, guards in zip(forms, slacks, strict=True):
        outside: dict[Expr, Extent] = {}
        inside: dict[Expr, Extent] = {}
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
        if not (is_less(-UNBOUNDED, low) and is_less(high, UNBOUNDED)):
            return whole
        most = _most(simplifier, inside, guards, inner)
        if most is not None:
            guarded = simplifier.bounds_of(most)[1] + form.const
            shorter = is_less(guarded, high) and isinstance(guarded, type(high))
            high = guarded if shorter else high
            most = combine(most, Linear(outside, form.const), 1)
        lows.append(low)
        highs.append(high)
        lasts.append(most)
    if first is None:
        return whole
    low = functools.reduce(minimum, lows)
    span = functools.reduce(maximum, highs) - low + 1
    # A box of constant extent is kept, though the whole may be smaller when the kernel runs,
    # because register tiles must have constant extents.
    keeps = isinstance(span, int) and not isinstance(whole.extent, int)
    if is_less(span, 1) or (not keeps and is_less(whole.extent - 1, span)):
        return whole
    start, last = Linear(first, low), lasts[0]
    if last is None or any(other != last for other in lasts):
        return Interval(to_expr(start), span)
    is_implied = is_less(span - 2, simplifier.bounds_of(combine(last, start, -1))[0])
    return Interval(to_expr(start), span, last=None if is_implied else to_expr(last))


def _most(
    simplifier: Simplifier,
    inside: dict[Expr, Extent],
    slacks: Sequence[Linear],
    inner: frozenset[str],
) -> Linear | None:
    """Return an upper bound of a sum of terms under guards, or None if no guard bounds it.

    `inside` maps atoms to their coefficients; each guard in `slacks` is a form that is at least 0.
    The bound is a form over outer variables; if several guards bound the sum, the tightest one
    counts.
    """
    tightest: Linear | None = None
    for slack in slacks if inside else ():
        mine = {atom: k for atom, k in slack.terms.items() if variables(atom) & inner}
        if mine == {atom: -factor for atom, factor in inside.items()}:
            most = Linear({a: k for a, k in slack.terms.items() if a not in mine}, slack.const)
            if tightest is None or is_less(*(simplifier.bounds_of(m)[1] for m in (most, tightest))):
                tightest = most
    return tightest
