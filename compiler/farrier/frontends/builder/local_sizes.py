"""The sizes of one branch: what its questions leave of them is left in that branch alone.

A branch that asks which size a dim has is imported for the sizes at which the answer is the typical
one. Where a run enters it, they become symbols of its own; other sizes end the run there.

    then(x: f32[s0])           and a convolution asks whether s0 > 191
    ->  k: i64 = Bind(Extents(s0 - 192), k0), x: f32[192 + k0] = View(x), k0 in 0..1048384
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from farrier.frontends.builder.data_dims import Defined
from farrier.frontends.builder.signature import Signature
from farrier.ir.dim import (
    Atom,
    Extent,
    Question,
    Symbol,
    Undecided,
    as_dim,
    as_extent,
    bounds,
    substitute,
    symbols,
    typical,
)
from farrier.ir.types import DType, TensorType
from farrier.options.shapes import NamedDim

SIZES = "sizes"  # of what a signature of sizes alone has one


class ImpliedSizes(Exception):
    """A request to import again with other typical sizes, by the names of dims: a branch can be
    compiled for them, or the operands of a node fit at them."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__(f"the model is for the sizes {dict(sizes)}")
        self.sizes = dict(sizes)


def sizes_alone(signature: Signature, defined: Mapping[str, Defined]) -> Signature:
    """Return the signature of a graph whose inputs are the dims of another graph and the sizes that
    values decide there, each as an extent."""
    named = {one.symbol for one in signature.dims}
    extents = [extent for kind in signature.types.values() for extent in kind.shape]
    used = dict.fromkeys(symbol for symbol in symbols(extents) if symbol.name in named)
    used |= dict.fromkeys(one.symbol for one in defined.values())
    decided = (one.named(name) for name, one in defined.items() if name not in named)
    return dataclasses.replace(
        signature,
        types={SIZES: TensorType(DType.I64, tuple(map(as_extent, used)))},
        dims=(*signature.dims, *decided),
        preconditions=(),
        limits=(),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Local:
    """One symbol of a branch's own: `value` at entry, in symbols of the graph around it, from 0 to
    `most`, in symbols of the branch; `usual` is the typical one."""

    narrowed: Symbol  # what a narrowed signature calls `least + value`
    least: int
    value: Extent
    most: Extent
    usual: int
    named: NamedDim  # as messages name it


class LocalSizes:
    """What became of the dims of a graph, `before`, in a signature of sizes alone, `after`."""

    def __init__(self, before: Signature, after: Signature) -> None:
        self.reason = "; ".join(map(str, after.told()))
        self._old = tuple(before.types[SIZES].shape)
        self._new = tuple(after.types[SIZES].shape)
        self._before, self._after = before, after
        steps = {one.symbol: one.step for one in before.dims}
        olds = {symbol.name: symbol for symbol in symbols(self._old)}
        left = {symbol.name: symbol for symbol in symbols(self._new)}
        self.locals: list[Local] = []
        for one in after.dims:
            symbol, old = left.get(one.symbol), olds[one.symbol]
            if symbol is not None and symbol != old:
                value = as_extent(old) // (one.step // steps[one.symbol]) - symbol.low
                most = symbol.high - symbol.low
                usual = symbol.typical - symbol.low
                self.locals.append(Local(symbol, symbol.low, value, most, usual, one))

    @property
    def is_narrower(self) -> bool:
        return self._old != self._new

    def with_data(self, signature: Signature) -> Signature:
        """Return a signature with the sizes that the branch defines, as its operators narrow
        them."""
        return dataclasses.replace(signature, data=self._after.data)

    def implied(self) -> dict[str, int]:
        """The typical sizes that are others than before, by the dims' names."""
        usual = zip(self._old, map(typical, self._new), strict=True)
        moved = {str(old): value for old, value in usual if typical(old) != value}
        dims = (one for one in self._before.dims if one.symbol in moved)
        return {one.name: moved[one.symbol] * one.step for one in dims}

    def given(self, own: Mapping[Symbol, Extent]) -> dict[Atom, Extent]:
        """What the graph's symbols are in the branch, whose own symbols stand for the locals'
        values: `own`, by `Local.narrowed`."""
        instead = self.narrowed(own)
        return {
            symbol: substitute(new, instead)
            for old, new in zip(self._old, self._new, strict=True)
            for symbol in symbols((old,))
            if new != old
        }

    def narrowed(self, own: Mapping[Symbol, Extent]) -> dict[Atom, Extent]:
        """What the symbols of the narrowed signature are in those of the branch, as far as these
        are known."""
        return {
            one.narrowed: one.least + own[one.narrowed]
            for one in self.locals
            if one.narrowed in own
        }

    def asked(self, question: Question, own: Mapping[Symbol, Extent]) -> Undecided | None:
        """A question about the branch's own symbols as one about the narrowed signature's; None
        where that has an answer."""
        narrowed: dict[Atom, Extent] = {
            symbol: as_extent(one.narrowed) - one.least
            for one in self.locals
            for symbol in symbols((own[one.narrowed],))
        }
        extent = substitute(question.extent, narrowed)
        names = {str(symbol): f"({extent})" for symbol, extent in narrowed.items()}
        text = re.sub(r"\bk\d+\b", lambda found: names.get(found[0], found[0]), question.text)
        if isinstance(extent, int):
            return None
        return Undecided(dataclasses.replace(question, extent=extent, text=text))

    def around(self, own: Mapping[Symbol, Extent]) -> dict[Atom, Extent]:
        """What the symbols of the branch are in those of the graph around it."""
        return {
            symbol: one.value for one in self.locals for symbol in symbols((own[one.narrowed],))
        }

    def checks(self, own: Mapping[Symbol, Extent]) -> list[tuple[Extent, Extent]]:
        """Pairs of extents, around the branch and in it, that must be equal where a run enters it,
        beside the ranges of its symbols."""
        given = self.given(own)
        exact = {
            as_dim(one.value + one.least): one.least + own[one.narrowed] for one in self.locals
        }
        return [
            (as_extent(symbol), extent)
            for symbol, extent in given.items()
            if exact.get(as_extent(symbol)) != extent
        ]

    def within(self, own: Mapping[Symbol, Extent]) -> Signature:
        """The signature of the branch, in symbols of its own."""
        kept = [one for one in self._after.dims if one not in [each.named for each in self.locals]]
        made = []
        for one in self.locals:
            symbol = next(symbols((own[one.narrowed],)), None)
            if symbol is not None:
                name = one.named.name if not one.least else f"({one.named.name} - {one.least})"
                high = bounds(symbol.high)[1]
                made.append(
                    NamedDim(name, symbol.name, symbol.low, high, symbol.typical, one.named.step)
                )
        used = dict.fromkeys(symbols(self._new))
        mine = (own.get(symbol, as_extent(symbol)) for symbol in used)
        changed = tuple(extent for extent in mine if not isinstance(extent, int))
        return dataclasses.replace(
            self._after,
            types={SIZES: TensorType(DType.I64, changed)},
            dims=(*kept, *made),
            preconditions=(),
            limits=(),
        )
