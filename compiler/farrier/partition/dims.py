"""Rename the dims of a kernel, so that it does not depend on the symbols of the model.

Kernels whose shapes differ only in the names of symbols become one task. The sizes in the inputs'
shapes are renamed to d0, d1, …, and the operators infer all other shapes from these. A new name
stands for a size, so it is never negative.

A kernel is not called if it would write nothing. Within a kernel, the common factors of its
outputs' extents are therefore at least 1. For this reason, divisions by them are safe, and no two
elements of an output have the same address. If small values of a model's symbol are excluded in
this way, the symbol has a narrower range in the kernel.

before:  def kernel(x: f32[s0, 64, (s1 + 1) // 2]) … v: f32[s0, 64, (s1 + 3) // 4]
after:   def kernel(x: f32[d0, 64, d1]) … v: f32[d0, 64, (d1 + 1) // 2], d0 = s0, d1 = (s1 + 1) // 2
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from farrier.ir.dim import (
    Atom,
    Combined,
    Dim,
    Extent,
    Symbol,
    Undecided,
    as_extent,
    atoms,
    bounds,
    dim,
    is_less,
    substitute,
    symbols,
    typical,
)
from farrier.ir.graph import Constant, Graph, Node, Value
from farrier.ir.sizes import constant_with_extents, substituted, value_with_extents, with_extents
from farrier.ops import Mismatch, NotStatic, lookup


@dataclasses.dataclass(frozen=True, slots=True)
class OwnDims:
    """A region in which dims have names of their own, d0, d1, …, instead of the model's. `dims`
    has, for each of the region's `Graph.given_dims` in order, its value in terms of the model's
    dims. A size that the kernel itself computes keeps its name.

    The kernel writes nothing, and must not be called, if one of the extents `needed` is 0.
    """

    region: Graph
    dims: tuple[Extent, ...] = ()
    needed: tuple[Extent, ...] = ()


def own_dims(region: Graph) -> OwnDims:
    """Return the region with renamed dims, and their meaning."""
    if not region.given_dims:
        return OwnDims(region)
    needed = [factor for factor in _factors(region) if bounds(factor)[0] < 1]
    narrow = _narrowed(region.given_dims, needed)
    changed, names = _renamed(substituted(region, narrow) if narrow else region)
    whole: dict[Atom, Extent] = {
        symbol: as_extent(old) for old, new in narrow.items() for symbol in symbols((new,))
    }
    meanings = (names.meaning[symbol.name] for symbol in changed.given_dims)
    return OwnDims(
        changed, tuple(substitute(meaning, whole) for meaning in meanings), tuple(needed)
    )


def _renamed(region: Graph) -> tuple[Graph, _Names]:
    """Return the region in terms of new names, and the meaning of these names."""
    argument_dims = region.given_dims
    own = [symbol for symbol in region.dims if symbol not in argument_dims]
    factors = _factors(region)
    # If the shapes do not follow from those of all inputs, an input's shape may follow from
    # inferred ones.
    for infer in (_inferred, _inferred_as_met):
        names = _Names(own, factors)
        changed = infer(region, names)
        if changed is not None and all(map(_is_size, _extents(changed))):
            return changed, names
    # The inputs' shapes do not determine the others, but their symbols do. An extent gets its own
    # name if the symbols do not show that it is a size.
    names = _Names(own, factors)
    names.define(argument_dims)
    names.define_sizes(_extents(region))
    return with_extents(region, names.change), names


def _factors(region: Graph) -> tuple[Extent, ...]:
    """Return the factors that are common to the extents of all outputs: if one is 0, nothing is
    written.

    If an output has a halo, its axis is not counted: the halo is written even if the axis has
    extent 0.
    """
    first, *others = (
        dict.fromkeys(
            factor
            for axis, extent in enumerate(value.type.shape)
            if value.type.layout is None or not any(value.type.layout.halo_of(axis))
            for factor in _parts(extent)
        )
        for value in region.outputs
    )
    return tuple(factor for factor in first if all(factor in other for other in others))


def _parts(extent: Extent) -> Iterator[Extent]:
    """Yield the factors whose product is an extent, without its constant factor."""
    match extent:
        case Dim(terms=((monomial, factor),)) if factor > 0:
            yield from map(as_extent, monomial)
        case Dim(terms=(((atom,), _),)):
            yield -as_extent(atom)
        case Dim():
            yield extent


def _narrowed(dims: Iterable[Symbol], needed: Sequence[Extent]) -> dict[Atom, Extent]:
    """Return narrower symbols for those of `dims` whose smallest values would make one of `needed`
    less than 1."""
    narrow: dict[Atom, Extent] = {}
    for symbol in dims:
        most = bounds(symbol.high)[1]
        low = max((_least_value(symbol, size) for size in needed), default=symbol.low)
        if symbol.low < low <= most:
            narrow[symbol] = dim(symbol.name, low, symbol.high, symbol.typical)
    return narrow


@functools.lru_cache(maxsize=4096)  # Of pairs; the kernels of a model share a few.
def _least_value(symbol: Symbol, size: Extent) -> int:
    """Return the least value of a symbol for which a size may be at least 1, by bisection of its
    range."""

    def is_empty(most: int) -> bool:
        """Check whether the size is below 1 for all values of the symbol up to `most`."""
        return is_less(substitute(size, {symbol: dim(symbol.name, symbol.low, most)}), 1)

    low, high = symbol.low, bounds(symbol.high)[1]
    if symbol not in symbols((size,)) or not is_empty(low) or is_empty(high):
        return low
    while high - low > 1:  # is_empty(low), and not is_empty(high)
        middle = (low + high) // 2
        low, high = (middle, high) if is_empty(middle) else (low, middle)
    return high


def _extents(graph: Graph) -> Iterator[Extent]:
    yield from (extent for value in graph.inputs for extent in value.type.shape)
    for node in graph.nodes:
        yield from (extent for value in node.outputs for extent in value.type.shape)


def _is_size(extent: Extent) -> bool:
    """Check whether an extent is at least 0 for all values of its symbols."""
    return is_less(-1, extent)


class _Names:
    """New symbols for atoms, and the meaning of each; an atom in `positive` is at least 1."""

    def __init__(self, kept: Iterable[Symbol], positive: Collection[Extent]) -> None:
        self._positive = positive
        self._new: dict[Atom, Extent] = {}
        self._sizes: dict[Extent, Extent] = {}
        self._kept = {symbol.name: as_extent(symbol) for symbol in kept}
        self.meaning: dict[str, Extent] = {}

    def define(self, unnamed: Iterable[Atom]) -> None:
        """Name each atom that has no name yet and does not consist of named atoms."""
        candidates = list(dict.fromkeys(unnamed))
        named = {*candidates, *self._new}
        for atom in candidates:
            if atom not in self._new and not _is_made_of(atom, named):
                self._new[atom] = self._name(as_extent(atom))

    def define_sizes(self, extents: Iterable[Extent]) -> None:
        """Name each extent of a shape that is nonnegative only for some values of the symbols.

        An example is the rest of a Split: the driver computes such an extent, so nothing about it
        remains to be proved. An extent that the kernel itself computes has no value before the
        call, and keeps its form.
        """
        for extent in dict.fromkeys(extents):
            is_free = all(symbol.name not in self._kept for symbol in symbols((extent,)))
            if is_free and not _is_size(self.change(extent)):
                self._sizes[extent] = self._symbol(extent, 0)

    def _name(self, whole: Extent) -> Extent:
        """Return a new symbol for an atom, or the negation of one if the atom is never positive."""
        sign = -1 if is_less(whole, 1) else 1
        size = sign * whole
        return sign * self._symbol(size, 0 if _is_size(size) else bounds(size)[0])

    def _symbol(self, size: Extent, least: int) -> Extent:
        """Return a new symbol for an extent that is at least `least`."""
        name = f"d{len(self.meaning)}"
        low, high = bounds(size)
        least = 1 if size in self._positive else least
        self.meaning[name] = size
        return dim(name, max(low, least), max(high, least), typical(size))

    def change(self, extent: Extent) -> Extent:
        size = self._sizes.get(extent)
        return substitute(extent, self._new) if size is None else size

    def back(self, extent: Extent) -> Extent:
        """Return the meaning of an extent of the renamed region in terms of the model's symbols. An
        operator may infer a symbol of its own for a size that the model has fixed since; that
        symbol stays, and equals nothing else."""
        meanings = self._kept | self.meaning
        named = (symbol for symbol in symbols((extent,)) if symbol.name in meanings)
        return substitute(extent, {symbol: meanings[symbol.name] for symbol in named})


def _is_made_of(atom: Atom, named: Collection[Atom]) -> bool:
    """Check whether all operands of an atom have names."""
    return isinstance(atom, Combined) and all(
        part in named or _is_made_of(part, named) for part in atoms((atom.left, atom.right))
    )


def _inferred(region: Graph, names: _Names) -> Graph | None:
    """Return the region with new names in its inputs' shapes and constants, and with the shapes
    that operators infer from these; None if the inferred shapes do not mean those of `region`."""
    names.define(atom for value in region.inputs for atom in atoms(value.type.shape))
    for constant in region.constants:
        if constant.has_dims:
            sizes = (s for s in constant.data.reshape(-1).tolist() if isinstance(s, Dim))
            left = (s for s in symbols(map(names.change, sizes)) if s.name not in names.meaning)
            names.define(list(left))
    constants = tuple(constant_with_extents(c, names.change) for c in region.constants)
    values = {value.name: value_with_extents(value, names.change) for value in region.inputs}
    return inferred(region, lambda value, renamed: values[value.name], constants, names.back)


def _inferred_as_met(region: Graph, names: _Names) -> Graph | None:
    """Return the region with new names, as `_inferred` does, but introduce fewer of them. Visit the
    nodes in order; when an input is first read, give a new name only to those of its extents that
    no operator has inferred before."""
    if any(constant.has_dims for constant in region.constants):
        return None

    def changed(value: Value, inferred_extents: Mapping[Extent, Extent]) -> Value:
        new = [extent for extent in value.type.shape if extent not in inferred_extents]
        names.define(atoms(new))
        return value_with_extents(
            value,
            lambda extent: (
                inferred_extents[extent] if extent in inferred_extents else names.change(extent)
            ),
        )

    return inferred(region, changed, region.constants, names.back)


def inferred(
    region: Graph,
    changed: Callable[[Value, Mapping[Extent, Extent]], Value],
    constants: Sequence[Constant],
    back: Callable[[Extent], Extent],
) -> Graph | None:
    """Return the region with new inputs and with the shapes that its operators infer from these.
    When an input is first read, it is replaced by `changed(input, extents)`, where `extents` are
    the extents that were inferred so far.

    Return None if the inferred shapes, converted by `back`, are not those of the original region.
    """
    data = {constant.value.name: constant.data for constant in constants}
    values = {constant.value.name: constant.value for constant in constants}
    own = {value.name for value in region.inputs}
    inferred_extents: dict[Extent, Extent] = {}
    nodes: list[Node] = []
    for node in region.nodes:
        for value in node.inputs:
            if value is not None and value.name in own - values.keys():
                values[value.name] = changed(value, inferred_extents)
        inputs = tuple(None if value is None else values[value.name] for value in node.inputs)
        operand_data = {
            i: data[v.name] for i, v in enumerate(inputs) if v is not None and v.name in data
        }
        types = [None if value is None else value.type for value in inputs]
        try:
            kinds = lookup(node.op).infer(types, operand_data, dict(node.attrs))
        except (Mismatch, NotStatic, Undecided):
            return None
        outputs = []
        for value, kind in zip(node.outputs, kinds, strict=True):
            if tuple(map(back, kind.shape)) != value.type.shape:
                return None
            outputs.append(Value(value.name, dataclasses.replace(value.type, shape=kind.shape)))
            values[value.name] = outputs[-1]
            inferred_extents |= zip(value.type.shape, kind.shape, strict=True)
        nodes.append(dataclasses.replace(node, inputs=inputs, outputs=tuple(outputs)))
    return Graph(
        region.name,
        tuple(values[value.name] for value in region.inputs),
        tuple(constants),
        tuple(nodes),
        tuple(values[value.name] for value in region.outputs),
    )
