"""Narrow the ranges of open dims so that a comparison of sizes, an operator's question, has the
same answer for all of them.

A narrowing is only a candidate: the caller asks the question again to find out whether it has one
answer. The last candidates leave each dim a single size, at which every question has an answer.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from farrier.ir.dim import (
    Atom,
    Combined,
    Dim,
    DimOp,
    Extent,
    Question,
    Relation,
    Symbol,
    as_dim,
    as_extent,
    atoms,
    bounds,
    common_factor,
    dim,
    evaluate,
    minimum,
    substitute,
    symbols,
    typical,
    with_bounds,
)
from farrier.options.shapes import DEFAULT_HIGH, MAX_EXTENT, NamedDim

_MOST_STEP = 1 << 10
# With more dims the corners, all combinations of least and greatest values, are not tried.
_MOST_CORNERED = 4


@dataclasses.dataclass(frozen=True)
class Narrowing:
    """Narrower ranges of dims. `dims` maps symbols to dims with a narrower range, or to None for a
    dim that becomes a function of other dims. `instead` maps symbols to new extents, for each
    change other than a narrower constant range. `needs` is the condition as text. `not_negative` is
    an extent that must be at least 0 in addition."""

    dims: Mapping[str, NamedDim | None]
    needs: str
    instead: Mapping[str, Extent] = dataclasses.field(default_factory=dict)
    not_negative: Extent = 0

    def change(self, extent: Extent) -> Extent:
        """Return an extent rewritten in terms of the narrower dims."""
        new: dict[Atom, Extent] = {}
        for symbol in symbols((extent,)):
            replacement = self._left_of(symbol)
            if replacement is not None:
                new[symbol] = replacement
        return substitute(extent, new) if new else extent

    def _left_of(self, symbol: Symbol) -> Extent | None:
        """Return the extent that replaces a symbol, or None if the symbol stays unchanged. The
        upper bound of a symbol may be an extent over other symbols; it is rewritten as well."""
        if symbol.name in self.instead:
            return self.instead[symbol.name]
        left = self.dims.get(symbol.name)
        high = symbol.high if isinstance(symbol.high, int) else self.change(symbol.high)
        if left is not None:
            high = left.high if isinstance(high, int) else minimum(high, left.high)
            return dim(symbol.name, left.low, high, left.typical)
        return None if high == symbol.high else dim(symbol.name, symbol.low, high, symbol.typical)


def narrowings(
    question: Question, answer: bool, dims: Sequence[NamedDim], asked: Mapping[str, Symbol]
) -> Iterator[Narrowing]:
    """Yield candidates for narrower ranges of `dims` in which the comparison `question` always has
    the result `answer`, its result at the typical sizes. The candidates that exclude the fewest
    sizes come first. `asked` maps the names of the symbols in the comparison to the symbols."""
    extent = question.extent
    if question.relation is Relation.ZERO and answer:
        yield from _equal(extent, dims, asked)
    else:
        if question.relation is Relation.ZERO:
            positive = extent if typical(extent) > 0 else -extent
            # At all remaining sizes, an extent other than 0 has the sign of its typical value.
            question, answer = Question(as_dim(positive), Relation.POSITIVE, question.text), True
        else:
            positive = extent if answer else 1 - extent
        if len(dims) > 1:
            yield from _at_most(positive, dims, asked)
    if len(dims) > 1:
        for more in _as_typical(extent):
            yield from _at_most(more, dims, asked)
    box = [
        _ranged(named_dim, _holds_along(question, answer, dims, named_dim)) for named_dim in dims
    ]
    yield _all(box)
    for named_dim in dims if len(dims) <= _MOST_CORNERED else ():
        holds = _holds_at_ends(question, answer, dims, named_dim)
        if holds(named_dim.typical):
            yield _ranged(named_dim, holds)
    if question.relation is Relation.ZERO and answer:
        yield from _multiples(extent, dims)
    for named_dim in dims:
        if named_dim.low == 0 < named_dim.typical:  # Formulas often hold for all sizes but 0.
            yield _ranged(named_dim, lambda value: value > 0)
    for fixed in (*((named_dim,) for named_dim in dims), tuple(dims)):
        ranged = [
            narrowing
            for named_dim, narrowing in zip(dims, box, strict=True)
            if named_dim not in fixed
        ]
        yield _all([*map(_fixed, fixed), *ranged])


def _holds_along(
    question: Question, answer: bool, dims: Sequence[NamedDim], along: NamedDim
) -> Callable[[int], bool]:
    """Return a function of a value of the dim `along`. It checks whether the comparison `question`
    has the result `answer` at that value, with all other dims at their typical sizes."""
    usual = {named_dim.symbol: named_dim.typical for named_dim in dims}

    def holds(value: int) -> bool:
        size = evaluate(question.extent, usual | {along.symbol: value})
        return question.answer(size) is answer

    return holds


def _holds_at_ends(
    question: Question, answer: bool, dims: Sequence[NamedDim], along: NamedDim
) -> Callable[[int], bool]:
    """Return a function of a value of the dim `along`. It checks whether the comparison `question`
    has the result `answer` at that value for all combinations of the other dims' least and greatest
    sizes."""
    others = [other for other in dims if other is not along]
    corners = [
        dict(zip((other.symbol for other in others), ends, strict=True))
        for ends in itertools.product(*((other.low, other.high) for other in others))
    ]

    def holds(value: int) -> bool:
        at = ({**corner, along.symbol: value} for corner in corners)
        return all(question.answer(evaluate(question.extent, point)) is answer for point in at)

    return holds


def _ranged(of: NamedDim, holds: Callable[[int], bool]) -> Narrowing:
    """Return the narrowing of a dim to the largest interval around its typical value in which
    `holds` is true. `holds` is assumed to change at most once on each side of the typical value."""
    low = _last(holds, of.typical, of.low)
    high = _last(holds, of.typical, of.high)
    left = dataclasses.replace(of, low=low, high=high)
    if low == high:
        return _fixed(of)
    if (low, high) == (of.low, of.high):
        return Narrowing({}, "")
    step = of.step
    what = of.symbol if step == 1 else f"{step}*{of.symbol}"
    return Narrowing({of.symbol: left}, f"{what} is {low * step} to {high * step}")


def _last(holds: Callable[[int], bool], inside: int, end: int) -> int:
    """Return the value nearest to `end` at which `holds` is true, by bisection between `inside`,
    where it is true, and `end`."""
    if holds(end):
        return end
    outside = end
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return inside


def _fixed(of: NamedDim) -> Narrowing:
    size = of.typical * of.step
    what = of.symbol if of.step == 1 else f"{of.step}*{of.symbol}"
    return Narrowing({of.symbol: None}, f"{what} is {size}", {of.symbol: of.typical})


def _all(parts: Sequence[Narrowing]) -> Narrowing:
    """Combine narrowings of different dims into a single one."""
    dims: dict[str, NamedDim | None] = {}
    instead: dict[str, Extent] = {}
    for part in parts:
        dims |= part.dims
        instead |= part.instead
    return Narrowing(dims, " and ".join(part.needs for part in parts if part.needs), instead)


def _equal(
    extent: Dim, dims: Sequence[NamedDim], asked: Mapping[str, Symbol]
) -> Iterator[Narrowing]:
    """Yield narrowings in which the extent is 0, because one dim is replaced by a function of the
    others: `s0 - s1 - 1` → `s0 = s1 + 1`."""
    by_symbol = {named_dim.symbol: named_dim for named_dim in dims}
    whole = extent // common_factor((extent,))
    for name, symbol, factor, rest in _linear(whole, asked):
        replacement = -rest if factor == 1 else rest if factor == -1 else None
        if (
            replacement is not None
            and isinstance(replacement, Dim)
            and _stands_for(replacement, by_symbol[name])
        ):
            step = by_symbol[name].step
            shown = symbol.name if step == 1 else f"{step}*{symbol.name}"
            yield Narrowing({name: None}, f"{shown} is {step * replacement}", {name: replacement})
    for kept, dropped in itertools.combinations(dims, 2):
        same = (kept.low, kept.high, kept.typical, kept.step)
        if same == (dropped.low, dropped.high, dropped.typical, dropped.step):
            replacement = as_extent(asked[kept.symbol])
            needs = f"{dropped.symbol} is {kept.symbol}"
            yield Narrowing({dropped.symbol: None}, needs, {dropped.symbol: replacement})


def _linear(
    extent: Extent, asked: Mapping[str, Symbol]
) -> Iterator[tuple[str, Symbol, int, Extent]]:
    """Yield (name, symbol, factor, rest) for each symbol in `asked` in which the extent is linear:
    extent = factor · symbol + rest, where `rest` does not contain the symbol."""
    terms = dict(extent.terms) if isinstance(extent, Dim) else {}
    for name, symbol in asked.items():
        factor = terms.get((symbol,), 0)
        rest = extent - factor * as_extent(symbol)
        if factor and name not in {other.name for other in symbols((rest,))}:
            yield name, symbol, factor, rest


def _stands_for(formula: Dim, replaced: NamedDim) -> bool:
    """Check whether a dim may be replaced by `formula`, a function of other dims, without excluding
    many sizes. The formula must be a sum whose range lies within the range of the dim and, unless
    the dim's upper limit is the default, is not cut off above."""
    low, high = bounds(formula)
    is_sum = all(factor > 0 for _, factor in formula.terms)
    ends = high <= replaced.high or replaced.high >= DEFAULT_HIGH // replaced.step
    return is_sum and low >= replaced.low and ends


def _at_most(
    positive: Extent, dims: Sequence[NamedDim], asked: Mapping[str, Symbol]
) -> Iterator[Narrowing]:
    """Yield narrowings in which the extent `positive` is at least 1, because one dim gets a
    function of the others as its upper bound: `s1 - s0` → `s0 <= s1 - 1`."""
    by_symbol = {named_dim.symbol: named_dim for named_dim in dims}
    for name, symbol, factor, rest in _linear(positive, asked):
        of = by_symbol[name]
        if factor > 0 or not _has_own_bound(symbol):
            continue
        most = (rest - 1) // -factor
        if name in (other.name for other in with_bounds((most,))):
            continue  # Skip a cyclic bound, a ≤ f(b) and b ≤ g(a): it bounds neither.
        high = bounds(most)[1]
        if of.low <= high <= of.high:
            left = dataclasses.replace(of, high=high)
            bounded = dim(name, of.low, most, of.typical)
            needs = f"{rest} is more than {-factor * as_extent(symbol)}"
            yield Narrowing({name: left}, needs, {name: bounded}, positive - 1)


def _has_own_bound(symbol: Symbol) -> bool:
    """Check whether the symbol's upper bound is a number, or the capacity of a data-dependent size,
    rather than a function of other dims."""
    return all(bound.high == MAX_EXTENT for bound in with_bounds((symbol.high,)))


def _as_typical(extent: Extent) -> Iterator[Extent]:
    """For each minimum or maximum in an extent, yield an extent that is positive exactly if the
    minimum or maximum selects the same operand as at the typical sizes."""
    for atom in atoms((extent,)):
        if isinstance(atom, Combined):
            if atom.op in (DimOp.MIN, DimOp.MAX):
                more = atom.right - atom.left
                if typical(more) >= 0:
                    yield more + 1
                if typical(more) <= 0:
                    yield -more + 1
            yield from _as_typical(atom.left)
            yield from _as_typical(atom.right)


def _multiples(extent: Dim, dims: Sequence[NamedDim]) -> Iterator[Narrowing]:
    """Yield narrowings of one dim to the multiples of a number, for each divisor of the constants
    by which the extent divides functions of that dim, the least divisor first. Then yield one
    narrowing of all dims at once."""
    wholes = [
        [step for step in divisors(extent, named_dim) if named_dim.typical % step == 0]
        for named_dim in dims
    ]
    for named_dim, whole in zip(dims, wholes, strict=True):
        yield from (_stepped(named_dim, step) for step in whole)
    if len(dims) > 1:
        most = [max(whole, default=1) for whole in wholes]
        yield _all([_stepped(*pair) for pair in zip(dims, most, strict=True)])


def divisors(extent: Extent, of: NamedDim) -> list[int]:
    """Return the divisors, except 1, of the least common multiple of the constants by which the
    extent divides functions of the dim `of`: `s0 // 4` → `[2, 4]`."""
    least = math.lcm(*_divided_by(extent, of.symbol))
    return [step for step in range(2, min(least, _MOST_STEP) + 1) if least % step == 0]


def _divided_by(extent: Extent, name: str) -> Iterator[int]:
    for atom in atoms((extent,)):
        if isinstance(atom, Combined) and any(s.name == name for s in symbols((atom.left,))):
            if atom.op in (DimOp.FLOORDIV, DimOp.MOD) and isinstance(atom.right, int):
                yield atom.right
            yield from _divided_by(atom.left, name)


def _stepped(of: NamedDim, step: int) -> Narrowing:
    """Return the narrowing of a dim to the multiples of `step`."""
    if step == 1:
        return Narrowing({}, "")
    low, high, usual = -(-of.low // step), of.high // step, of.typical // step
    left = dataclasses.replace(of, low=low, high=high, typical=usual, step=of.step * step)
    needs = (
        f"{of.symbol if of.step == 1 else f'{of.step}*{of.symbol}'} is a multiple of {left.step}"
    )
    return Narrowing({of.symbol: left}, needs, {of.symbol: step * left.extent})
