"""Sizes of a branch: a question of an operator in a branch narrows sizes in that branch only.

If an operator in a branch asks a question about a dim, the branch is imported for the sizes that
have the same answer as the typical size. These sizes become symbols of the branch, computed on
entry; a run that enters the branch with any other size ends with an error.

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

SIZES = "sizes"  # The single input of a signature of sizes.


class ImpliedSizes(Exception):
    """An exception that requests another import of the model with the typical sizes `sizes`, by
    name of dim, because a branch or node is valid only at these sizes."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__(f"the model is for the sizes {dict(sizes)}")
        self.sizes = dict(sizes)


def sizes_alone(signature: Signature, defined: Mapping[str, Defined]) -> Signature:
    """Return a signature with the single input `SIZES`, whose shape consists of the open sizes of a
    graph: the dims in the types of `signature`, and the data-dependent sizes `defined`. It has no
    preconditions. A branch is imported with this signature, because only the sizes can differ
    between imports of the branch."""
    named = {named_dim.symbol for named_dim in signature.dims}
    extents = [extent for kind in signature.types.values() for extent in kind.shape]
    used = dict.fromkeys(symbol for symbol in symbols(extents) if symbol.name in named)
    used |= dict.fromkeys(size.symbol for size in defined.values())
    decided = (size.named(name) for name, size in defined.items() if name not in named)
    return dataclasses.replace(
        signature,
        types={SIZES: TensorType(DType.I64, tuple(map(as_extent, used)))},
        dims=(*signature.dims, *decided),
        preconditions=(),
        limits=(),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Local:
    """A symbol that is defined in a branch. Its value is computed on entry, as the expression
    `value` over the symbols of the enclosing graph; it is between 0 and `most`, and typically
    `usual`."""

    narrowed: Symbol  # The narrowed signature's symbol for `least + value`.
    least: int
    value: Extent
    most: Extent
    usual: int
    named: NamedDim  # The dim as messages name it.


class LocalSizes:
    """The sizes for which a branch is built. `before` is the signature of the sizes of the
    enclosing graph (`sizes_alone`), and `after` is the same signature with narrower ranges. Each
    size whose range is narrower becomes a new symbol of the branch (`locals`). In the arguments
    `own`, the keys are the symbols `Local.narrowed`, and the values are these new symbols."""

    def __init__(self, before: Signature, after: Signature) -> None:
        self.reason = "; ".join(map(str, after.told()))
        self._old = tuple(before.types[SIZES].shape)
        self._new = tuple(after.types[SIZES].shape)
        self._before, self._after = before, after
        steps = {named_dim.symbol: named_dim.step for named_dim in before.dims}
        olds = {symbol.name: symbol for symbol in symbols(self._old)}
        left = {symbol.name: symbol for symbol in symbols(self._new)}
        self.locals: list[Local] = []
        for named_dim in after.dims:
            symbol, old = left.get(named_dim.symbol), olds[named_dim.symbol]
            if symbol is not None and symbol != old:
                value = as_extent(old) // (named_dim.step // steps[named_dim.symbol]) - symbol.low
                most = symbol.high - symbol.low
                usual = symbol.typical - symbol.low
                self.locals.append(Local(symbol, symbol.low, value, most, usual, named_dim))

    @property
    def is_narrower(self) -> bool:
        return self._old != self._new

    def with_data(self, signature: Signature) -> Signature:
        """Return `signature` with the restricted data-dependent sizes (`DataDim`) of the branch."""
        return dataclasses.replace(signature, data=self._after.data)

    def implied(self) -> dict[str, int]:
        """Return the typical sizes that differ between the branch and the enclosing graph, by name
        of dim, with their values in the branch."""
        usual = zip(self._old, map(typical, self._new), strict=True)
        moved = {str(old): value for old, value in usual if typical(old) != value}
        dims = (named_dim for named_dim in self._before.dims if named_dim.symbol in moved)
        return {named_dim.name: moved[named_dim.symbol] * named_dim.step for named_dim in dims}

    def given(self, own: Mapping[Symbol, Extent]) -> dict[Atom, Extent]:
        """Return a map from the symbols of the enclosing graph to the extents that replace them in
        the branch."""
        instead = self.narrowed(own)
        return {
            symbol: substitute(new, instead)
            for old, new in zip(self._old, self._new, strict=True)
            for symbol in symbols((old,))
            if new != old
        }

    def narrowed(self, own: Mapping[Symbol, Extent]) -> dict[Atom, Extent]:
        """Return a map from the symbols of the signature `after` to extents over the branch's own
        symbols."""
        return {
            local.narrowed: local.least + own[local.narrowed]
            for local in self.locals
            if local.narrowed in own
        }

    def asked(self, question: Question, own: Mapping[Symbol, Extent]) -> Undecided | None:
        """Translate the comparison `question` from the branch's own symbols to the symbols of the
        signature `after`, and return it as an Undecided error. Return None if the translated
        comparison is between constants."""
        narrowed: dict[Atom, Extent] = {
            symbol: as_extent(local.narrowed) - local.least
            for local in self.locals
            for symbol in symbols((own[local.narrowed],))
        }
        extent = substitute(question.extent, narrowed)
        names = {str(symbol): f"({extent})" for symbol, extent in narrowed.items()}
        text = re.sub(r"\bk\d+\b", lambda match: names.get(match[0], match[0]), question.text)
        if isinstance(extent, int):
            return None
        return Undecided(dataclasses.replace(question, extent=extent, text=text))

    def around(self, own: Mapping[Symbol, Extent]) -> dict[Atom, Extent]:
        """Return a map from the branch's own symbols to extents over the symbols of the enclosing
        graph: the inverse of `given`."""
        return {
            symbol: local.value
            for local in self.locals
            for symbol in symbols((own[local.narrowed],))
        }

    def checks(self, own: Mapping[Symbol, Extent]) -> list[tuple[Extent, Extent]]:
        """Return pairs (size in the enclosing graph, the same size in the branch) that a run has to
        compare on entry. They complement the ranges of the branch's own symbols, which are checked
        separately."""
        in_branch = self.given(own)
        exact = {
            as_dim(local.value + local.least): local.least + own[local.narrowed]
            for local in self.locals
        }
        return [
            (as_extent(symbol), extent)
            for symbol, extent in in_branch.items()
            if exact.get(as_extent(symbol)) != extent
        ]

    def within(self, own: Mapping[Symbol, Extent]) -> Signature:
        """Return the signature `after` rewritten in terms of the branch's own symbols, as nodes in
        the branch use it."""
        kept = [
            named_dim
            for named_dim in self._after.dims
            if named_dim not in [each.named for each in self.locals]
        ]
        own_dims = []
        for local in self.locals:
            symbol = next(symbols((own[local.narrowed],)), None)
            if symbol is not None:
                name = (
                    local.named.name if not local.least else f"({local.named.name} - {local.least})"
                )
                high = bounds(symbol.high)[1]
                own_dims.append(
                    NamedDim(name, symbol.name, symbol.low, high, symbol.typical, local.named.step)
                )
        used = dict.fromkeys(symbols(self._new))
        mine = (own.get(symbol, as_extent(symbol)) for symbol in used)
        changed = tuple(extent for extent in mine if not isinstance(extent, int))
        return dataclasses.replace(
            self._after,
            types={SIZES: TensorType(DType.I64, changed)},
            dims=(*kept, *own_dims),
            preconditions=(),
            limits=(),
        )
