"""The box of a buffer that a loop body reads, as first index and extent for each axis.

    for oh2 in 4: for kh in 3: … x[n, c, 8*oh + 2*oh2 + kh] …      body of oh
    axis 0: [n, 1]   axis 1: [c, 1]   axis 2: [8*oh, 9]

First indices are expressions over the variables outside the body; extents depend on none. A guard
that all reads share bounds the box: a number shortens it, an expression is stated as its `last`.

    for i in 4: if 4*o + i < 10: … x[4*o + i] …                   axis 0: [4*o, 4], up to 9

An axis counts as read whole if its index mixes outer and inner variables in one division, or if it
is read at places of unknown distance.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from farrier.ir.affine import UNBOUNDED, Linear, Simplifier, combine, to_expr
from farrier.ir.dim import Extent, is_less, maximum, minimum
from farrier.ir.expr import Expr, index
from farrier.ir.substitute import variables


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """`extent` indices from `first` on, none past `last`; `whole` is set if that is the whole
    axis."""

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
    """Return the box around `reads`; `inner` are the variables bound within the body, `whole` is
    the box of all elements, and `conditions` are those under which each of the reads happens."""
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
    """Return an upper bound of the sum of `inside` under the condition that all forms in `slacks`
    are at least 0: a form over outer variables, the one with the least upper bound of several."""
    tightest: Linear | None = None
    for slack in slacks if inside else ():
        mine = {atom: k for atom, k in slack.terms.items() if variables(atom) & inner}
        if mine == {atom: -factor for atom, factor in inside.items()}:
            most = Linear({a: k for a, k in slack.terms.items() if a not in mine}, slack.const)
            if tightest is None or is_less(*(simplifier.bounds_of(m)[1] for m in (most, tightest))):
                tightest = most
    return tightest
