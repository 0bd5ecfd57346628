"""Ways to leave fewer sizes to open dims, so that a question about them has one answer.

Each is tried by asking again: what is found here need not be right, only likely. The last ones give
dims one size, at which every question has an answer.
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
_MOST_CORNERED = 4  # dims whose least and greatest values are all combined


@dataclasses.dataclass(frozen=True)
class Narrowing:
    """Dims with fewer sizes. `dims` are what is left of each, by its symbol, None where it has no
    size of its own any more; `needs` says it in the symbols; `instead` are the extents of symbols
    that are more than another range of the same; `not_negative` is what else must hold."""

    dims: Mapping[str, NamedDim | None]
    needs: str
    instead: Mapping[str, Extent] = dataclasses.field(default_factory=dict)
    not_negative: Extent = 0

    def change(self, extent: Extent) -> Extent:
        """An extent in what is left of the dims."""
        new: dict[Atom, Extent] = {}
        for symbol in symbols((extent,)):
            made = self._left_of(symbol)
            if made is not None:
                new[symbol] = made
        return substitute(extent, new) if new else extent

    def _left_of(self, symbol: Symbol) -> Extent | None:
        """What a symbol is from now on; None where that is itself. One that others bound has their
        bound as it is from now on."""
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
    """Those that may give the question its answer at the typical sizes, what leaves the most sizes
    first."""
    extent = question.extent
    if question.relation is Relation.ZERO and answer:
        yield from _equal(extent, dims, asked)
    else:
        if question.relation is Relation.ZERO:
            positive = extent if typical(extent) > 0 else -extent
            # What is not 0 is on one side of it, at all sizes that are left.
            question, answer = Question(as_dim(positive), Relation.POSITIVE, question.text), True
        else:
            positive = extent if answer else 1 - extent
        if len(dims) > 1:
            yield from _at_most(positive, dims, asked)
    if len(dims) > 1:
        for more in _as_typical(extent):
            yield from _at_most(more, dims, asked)
    box = [_ranged(one, _holds_along(question, answer, dims, one)) for one in dims]
    yield _all(box)
    for one in dims if len(dims) <= _MOST_CORNERED else ():
        holds = _holds_at_ends(question, answer, dims, one)
        if holds(one.typical):
            yield _ranged(one, holds)
    if question.relation is Relation.ZERO and answer:
        yield from _multiples(extent, dims)
    for one in dims:
        if one.low == 0 < one.typical:  # formulas often hold for all sizes but 0
            yield _ranged(one, lambda value: value > 0)
    for fixed in (*((one,) for one in dims), tuple(dims)):
        ranged = [made for one, made in zip(dims, box, strict=True) if one not in fixed]
        yield _all([*map(_fixed, fixed), *ranged])


def _holds_along(
    question: Question, answer: bool, dims: Sequence[NamedDim], along: NamedDim
) -> Callable[[int], bool]:
    """Whether the answer is the same at a value of one symbol, the others being typical."""
    usual = {one.symbol: one.typical for one in dims}

    def holds(value: int) -> bool:
        size = evaluate(question.extent, usual | {along.symbol: value})
        return question.answer(size) is answer

    return holds


def _holds_at_ends(
    question: Question, answer: bool, dims: Sequence[NamedDim], along: NamedDim
) -> Callable[[int], bool]:
    """Whether the answer is the same at a value of one symbol, wherever the others are least or
    greatest."""
    others = [one for one in dims if one is not along]
    corners = [
        dict(zip((one.symbol for one in others), ends, strict=True))
        for ends in itertools.product(*((one.low, one.high) for one in others))
    ]

    def holds(value: int) -> bool:
        at = ({**corner, along.symbol: value} for corner in corners)
        return all(question.answer(evaluate(question.extent, one)) is answer for one in at)

    return holds


def _ranged(of: NamedDim, holds: Callable[[int], bool]) -> Narrowing:
    """The values around the typical one at which something holds, which changes once on each side
    at most."""
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
    """The value next to `end` at which something holds that does `inside`."""
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
    """Several narrowings of different dims as one."""
    dims: dict[str, NamedDim | None] = {}
    instead: dict[str, Extent] = {}
    for part in parts:
        dims |= part.dims
        instead |= part.instead
    return Narrowing(dims, " and ".join(part.needs for part in parts if part.needs), instead)


def _equal(
    extent: Dim, dims: Sequence[NamedDim], asked: Mapping[str, Symbol]
) -> Iterator[Narrowing]:
    """One dim as what others make it, so that the extent is 0."""
    by_symbol = {one.symbol: one for one in dims}
    whole = extent // common_factor((extent,))
    for name, symbol, factor, rest in _linear(whole, asked):
        made = -rest if factor == 1 else rest if factor == -1 else None
        if made is not None and isinstance(made, Dim) and _stands_for(made, by_symbol[name]):
            step = by_symbol[name].step
            shown = symbol.name if step == 1 else f"{step}*{symbol.name}"
            yield Narrowing({name: None}, f"{shown} is {step * made}", {name: made})
    for kept, dropped in itertools.combinations(dims, 2):
        same = (kept.low, kept.high, kept.typical, kept.step)
        if same == (dropped.low, dropped.high, dropped.typical, dropped.step):
            made = as_extent(asked[kept.symbol])
            needs = f"{dropped.symbol} is {kept.symbol}"
            yield Narrowing({dropped.symbol: None}, needs, {dropped.symbol: made})


def _linear(
    extent: Extent, asked: Mapping[str, Symbol]
) -> Iterator[tuple[str, Symbol, int, Extent]]:
    """The symbols that stand in a sum only as `factor * symbol`, with what else is in it."""
    terms = dict(extent.terms) if isinstance(extent, Dim) else {}
    for name, symbol in asked.items():
        factor = terms.get((symbol,), 0)
        rest = extent - factor * as_extent(symbol)
        if factor and name not in {other.name for other in symbols((rest,))}:
            yield name, symbol, factor, rest


def _stands_for(made: Dim, replaced: NamedDim) -> bool:
    """Whether a sum of other dims can be given by them, within the range of the dim it replaces."""
    low, high = bounds(made)
    is_sum = all(factor > 0 for _, factor in made.terms)
    ends = high <= replaced.high or replaced.high >= DEFAULT_HIGH // replaced.step
    return is_sum and low >= replaced.low and ends


def _at_most(
    positive: Extent, dims: Sequence[NamedDim], asked: Mapping[str, Symbol]
) -> Iterator[Narrowing]:
    """One dim with what others leave it as its greatest value, so that the extent is positive."""
    by_symbol = {one.symbol: one for one in dims}
    for name, symbol, factor, rest in _linear(positive, asked):
        of = by_symbol[name]
        if factor > 0 or not _has_own_bound(symbol):
            continue
        most = (rest - 1) // -factor
        if name in (other.name for other in with_bounds((most,))):
            continue  # two dims that bound each other bound neither
        high = bounds(most)[1]
        if of.low <= high <= of.high:
            left = dataclasses.replace(of, high=high)
            made = dim(name, of.low, most, of.typical)
            needs = f"{rest} is more than {-factor * as_extent(symbol)}"
            yield Narrowing({name: left}, needs, {name: made}, positive - 1)


def _has_own_bound(symbol: Symbol) -> bool:
    """Whether no dim bounds the symbol, but a number or the room that there is."""
    return all(bound.high == MAX_EXTENT for bound in with_bounds((symbol.high,)))


def _as_typical(extent: Extent) -> Iterator[Extent]:
    """What is positive where each minimum and maximum is the operand that it typically is."""
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
    """One dim as multiples of what it is divided by, by the least number that may do; then all."""
    wholes = [[step for step in divisors(extent, one) if one.typical % step == 0] for one in dims]
    for one, whole in zip(dims, wholes, strict=True):
        yield from (_stepped(one, step) for step in whole)
    if len(dims) > 1:
        most = [max(whole, default=1) for whole in wholes]
        yield _all([_stepped(*pair) for pair in zip(dims, most, strict=True)])


def divisors(extent: Extent, of: NamedDim) -> list[int]:
    """The divisors, but 1, of the numbers by which what is made of a dim is divided."""
    least = math.lcm(*_divided_by(extent, of.symbol))
    return [step for step in range(2, min(least, _MOST_STEP) + 1) if least % step == 0]


def _divided_by(extent: Extent, name: str) -> Iterator[int]:
    for atom in atoms((extent,)):
        if isinstance(atom, Combined) and any(s.name == name for s in symbols((atom.left,))):
            if atom.op in (DimOp.FLOORDIV, DimOp.MOD) and isinstance(atom.right, int):
                yield atom.right
            yield from _divided_by(atom.left, name)


def _stepped(of: NamedDim, step: int) -> Narrowing:
    """The multiples of a number among a dim's values."""
    if step == 1:
        return Narrowing({}, "")
    low, high, usual = -(-of.low // step), of.high // step, of.typical // step
    left = dataclasses.replace(of, low=low, high=high, typical=usual, step=of.step * step)
    needs = (
        f"{of.symbol if of.step == 1 else f'{of.step}*{of.symbol}'} is a multiple of {left.step}"
    )
    return Narrowing({of.symbol: left}, needs, {of.symbol: step * left.extent})
