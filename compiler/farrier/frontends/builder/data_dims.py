"""Data-dependent sizes, which a run computes from values, and the constraints of operators on them.

A question of an operator about such a size is answered as for an input's dim (`preconditions.py`):
the model is imported again with a narrower range of the size, and a check at the size's definition
ends a run whose size is outside of the range.

    s: f32[1, 4, k0], k0 in 0..9       and a convolution asks whether 3 > k0
    ->  d0 in 3..9, and a run whose s is shorter ends with the names of both nodes

Sizes are ordered, first input dims, then data-dependent sizes in the order of their definition. A
size may become a function of earlier ones, never of later ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from farrier.frontends.builder.narrowing import Narrowing
from farrier.ir.dim import (
    Atom,
    Dim,
    Extent,
    Question,
    Relation,
    Symbol,
    bounds,
    dim,
    minimum,
    substitute,
    symbols,
    with_bounds,
)
from farrier.ir.sizes import Demand
from farrier.options.shapes import NamedDim

# The ONNX node that defines a size, and the number of sizes that it defined before; the same in
# every import.
Key: TypeAlias = tuple[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Defined:
    """A data-dependent size in an import of a model: its `symbol`, and in `where` the node that
    defines it. `key` identifies the size in all imports of the model. `question`, if set, is a
    comparison of dims whose result would make the size a function of the input shapes."""

    key: Key
    symbol: Symbol
    where: str
    question: Question | None = None

    @property
    def name(self) -> str:
        """The name of the size in messages."""
        node, place = self.key
        return f"size[{node}]" if place == 0 else f"size[{node}].{place}"

    def named(self, symbol: str) -> NamedDim:
        own = self.symbol
        return NamedDim(self.name, symbol, own.low, bounds(own.high)[1], own.typical)


@dataclasses.dataclass(frozen=True, slots=True)
class DataDim:
    """A data-dependent size, restricted to the range in which the operators' comparisons of sizes
    have known results. The size is `named.step` times a symbol, and at most `most`. If `same` is
    set, the size is that function of earlier sizes instead.

    `needs` maps each run-time check to a text that names the node which demands it.
    """

    whole: NamedDim  # The size before it was narrowed.
    named: NamedDim
    most: Extent | None = None
    same: Extent | None = None
    needs: Mapping[Demand, str] = dataclasses.field(default_factory=dict)

    def extent(self, bound: Extent, current: Mapping[str, Extent]) -> Extent:
        """Return the restricted size as an extent, where `bound` is the upper bound of the original
        size. `current` maps the names of earlier sizes to their extents in the present import."""
        if self.same is not None:
            return _by_name(self.same, current)
        high = bound // self.named.step
        if self.named.high < bounds(high)[1]:
            high = minimum(high, self.named.high)
        if self.most is not None:
            high = minimum(high, _by_name(self.most, current))
        named = self.named
        return named.step * dim(named.symbol, named.low, high, named.typical)

    def demands(
        self, bound: Extent, current: Mapping[str, Extent]
    ) -> Iterator[tuple[Demand, Extent]]:
        """Yield the checks that ensure at run time that the size is in its restricted range, each
        as (relation, limit). `bound` is the upper bound of the original size, and `current` maps
        the names of earlier sizes to their extents."""
        step = self.named.step
        if self.named.low > 0:
            yield Demand.LEAST, step * self.named.low
        if step * self.named.high < bounds(bound)[1] // step * step:
            yield Demand.MOST, step * self.named.high
        if self.most is not None:
            yield Demand.MOST, step * _by_name(self.most, current)

    def narrowed(self, narrowing: Narrowing, where: str, text: Callable[[str], str]) -> DataDim:
        """Return the size restricted further by `narrowing`, as the node `where` demands. `text`
        replaces symbols in a message by the user's names."""
        symbol = self.named.symbol
        same, most = (
            None if extent is None else narrowing.change(extent)
            for extent in (self.same, self.most)
        )
        left = narrowing.dims.get(symbol, self.named)
        instead = narrowing.instead.get(symbol)
        needs = dict(self.needs)
        if left is None:
            assert instead is not None
            same = self.named.step * instead
            needs[Demand.EXACT] = f"{where} needs {text(str(same))}"
            return dataclasses.replace(self, most=most, same=same, needs=needs)
        if left.step != self.named.step:
            needs[Demand.EXACT] = f"{where} needs a multiple of {left.step}"
            if most is not None:
                most = most // (left.step // self.named.step)
        elif isinstance(instead, Dim) and not isinstance(high := _high(instead), int):
            most = high if most is None else minimum(most, high)
            needs[Demand.MOST] = f"{where} needs {text(str(left.step * high))} or less"
        elif left.high < self.named.high:
            needs[Demand.MOST] = f"{where} needs {left.high * left.step} or less"
        if left.low * left.step > self.named.low * self.named.step:
            needs[Demand.LEAST] = f"{where} needs {left.low * left.step} or more"
        return DataDim(self.whole, left, most, same, needs)


def _high(extent: Extent) -> Extent:
    """Return the upper bound of the single symbol that occurs in an extent."""
    (symbol,) = symbols((extent,))
    return symbol.high


def _by_name(extent: Extent, current: Mapping[str, Extent]) -> Extent:
    """Return the extent with each symbol replaced by the extent that `current` contains under the
    symbol's name, if any."""
    replacements: dict[Atom, Extent] = {
        symbol: current[symbol.name] for symbol in symbols((extent,)) if symbol.name in current
    }
    return substitute(extent, replacements) if replacements else extent


def adopted(
    data: Mapping[Key, DataDim], question: Question, defined: Mapping[str, Defined]
) -> tuple[dict[Key, DataDim], Question]:
    """Return `data` with an entry added for each data-dependent size in the comparison `question`,
    and the comparison rewritten in terms of the symbols of these entries."""
    adopted_data = dict(data)
    instead: dict[Atom, Extent] = {}
    for symbol in symbols((question.extent,)):
        size = defined.get(symbol.name)
        if size is None:
            continue
        if size.key not in adopted_data:
            whole = size.named(f"d{len(adopted_data)}")
            adopted_data[size.key] = DataDim(whole, whole)
        elif adopted_data[size.key].named.symbol == symbol.name:
            continue
        instead[symbol] = adopted_data[size.key].extent(symbol.high, {})
    if not instead:
        return adopted_data, question
    extent = substitute(question.extent, instead)
    if isinstance(extent, int):  # The sizes that are left settle it, although it was asked.
        return adopted_data, question
    return adopted_data, dataclasses.replace(question, extent=extent)


def is_causal(narrowing: Narrowing, question: Question, order: Mapping[str, int]) -> bool:
    """Check whether a narrowing of sizes is possible at run time, where sizes become known one
    after another. `order` is the position of each symbol, 0 for input dims.

    Each size may depend only on earlier sizes. A data-dependent size may be fixed to a number only
    if `question` is a test for equality.
    """
    if len(narrowing.dims) > 1 and any(order.get(name) for name in narrowing.dims):
        return False  # Typical values of data-dependent sizes are unrelated to one another.
    is_equal = question.relation is Relation.ZERO and len(narrowing.instead) == 1
    for name, extent in narrowing.instead.items():
        place = order.get(name, 0)
        if isinstance(extent, int) and place and not is_equal:
            return False
        for symbol in with_bounds((extent,)):
            if symbol.name != name and order.get(symbol.name, 0) > max(place - 1, 0):
                return False
    return True


def in_order(defined: Mapping[str, Defined]) -> dict[Key, int]:
    """Return the position, from 1 on, of each data-dependent size in the order in which a run
    computes them."""
    return {size.key: place for place, size in reversed(list(enumerate(defined.values(), 1)))}
