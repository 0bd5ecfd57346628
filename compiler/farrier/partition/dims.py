"""The dims of one kernel, under names of its own.

Kernels whose shapes differ only in which symbols they come from are one task. What the inputs'
shapes are made of becomes d0, d1, …; the operators say what follows for the other shapes.

A kernel is not called where it would write nothing, so what all of its outputs are multiples of is
1 at least: divisions by it are safe, and no two of its elements lie at one place.

before:  def kernel(x: f32[s0, 64, (s1 + 1) // 2]) … v: f32[s0, 64, (s1 + 3) // 4]
after:   def kernel(x: f32[d0, 64, d1]) … v: f32[d0, 64, (d1 + 1) // 2], d0 = s0, d1 = (s1 + 1) // 2
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from farrier.ir.dim import (
    Atom,
    Dim,
    Extent,
    Symbol,
    Undecided,
    as_extent,
    atoms,
    bounds,
    dim,
    substitute,
    symbols,
    typical,
)
from farrier.ir.graph import Constant, Graph, Node, Value
from farrier.ir.sizes import constant_with_extents, value_with_extents, with_extents
from farrier.ops import Mismatch, NotStatic, lookup


@dataclasses.dataclass(frozen=True, slots=True)
class OwnDims:
    """A region with dims of its own, and what each of `Graph.given_dims` stands for, in their
    order; an extent that the kernel itself finds out keeps its name. Where one of `needed` is 0,
    the kernel must not be called."""

    region: Graph
    dims: tuple[Extent, ...] = ()
    needed: tuple[Extent, ...] = ()


def own_dims(region: Graph) -> OwnDims:
    """The region with dims of its own."""
    given = region.given_dims
    if not given:
        return OwnDims(region)
    own = [symbol for symbol in region.dims if symbol not in given]
    factors = _factors(region)
    names = _Names(own, factors)
    changed = _inferred(region, names)
    if changed is None:  # a shape that follows from others may be an input's as well
        names = _Names(own, factors)
        changed = _inferred_as_met(region, names)
    if changed is None:  # the inputs' shapes do not settle the others: their symbols do
        names = _Names(own, factors)
        names.define(given)
        changed = with_extents(region, names.change)
    needed = (as_extent(atom) for atom in factors if bounds(as_extent(atom))[0] < 1)
    return OwnDims(
        changed, tuple(names.meaning[symbol.name] for symbol in changed.given_dims), tuple(needed)
    )


def _factors(region: Graph) -> tuple[Atom, ...]:
    """What all outputs have as a factor of an extent: where it is 0, they have no elements."""
    found = [
        {
            atom: None
            for extent in value.type.shape
            if isinstance(extent, Dim) and len(extent.terms) == 1
            for atom in extent.terms[0][0]
        }
        for value in region.outputs
    ]
    return tuple(atom for atom in found[0] if all(atom in others for others in found))


class _Names:
    """New symbols for atoms, and what they stand for; those in `positive` are 1 at least."""

    def __init__(self, kept: Iterable[Symbol], positive: Collection[Atom]) -> None:
        self._positive = positive
        self._new: dict[Atom, Extent] = {}
        self._kept = {symbol.name: as_extent(symbol) for symbol in kept}
        self.meaning: dict[str, Extent] = {}

    def define(self, found: Iterable[Atom]) -> None:
        """Names each atom that has no name and is not made of symbols that get one."""
        given = list(dict.fromkeys(found))
        plain = {atom for atom in (*given, *self._new) if isinstance(atom, Symbol)}
        for atom in given:
            whole = as_extent(atom)
            made = isinstance(atom, Symbol) or not plain.issuperset(symbols((whole,)))
            if made and atom not in self._new:
                name = f"d{len(self.meaning)}"
                low, high = bounds(whole)
                if atom in self._positive:
                    low, high = max(low, 1), max(high, 1)
                self._new[atom] = dim(name, low, high, typical(whole))
                self.meaning[name] = whole

    def change(self, extent: Extent) -> Extent:
        return substitute(extent, self._new)

    def back(self, extent: Extent) -> Extent:
        """What an extent over the new symbols stands for."""
        known = self._kept | self.meaning
        return substitute(extent, {s: known[s.name] for s in symbols((extent,))})


def _inferred(region: Graph, names: _Names) -> Graph | None:
    """The region with new names in its inputs' shapes and constants, and what the operators infer
    from these; None where that is not what it has."""
    names.define(atom for value in region.inputs for atom in atoms(value.type.shape))
    for constant in region.constants:
        if constant.has_dims:
            sizes = (s for s in constant.data.reshape(-1).tolist() if isinstance(s, Dim))
            left = (s for s in symbols(map(names.change, sizes)) if s.name not in names.meaning)
            names.define(list(left))
    constants = tuple(constant_with_extents(c, names.change) for c in region.constants)
    values = {value.name: value_with_extents(value, names.change) for value in region.inputs}
    return inferred(region, lambda value, known: values[value.name], constants, names.back)


def _inferred_as_met(region: Graph, names: _Names) -> Graph | None:
    """The same with names for what no operator has inferred by the time that an input is read."""
    if any(constant.has_dims for constant in region.constants):
        return None

    def changed(value: Value, known: Mapping[Extent, Extent]) -> Value:
        new = [extent for extent in value.type.shape if extent not in known]
        names.define(atoms(new))
        return value_with_extents(
            value, lambda one: known[one] if one in known else names.change(one)
        )

    return inferred(region, changed, region.constants, names.back)


def inferred(
    region: Graph,
    changed: Callable[[Value, Mapping[Extent, Extent]], Value],
    constants: Sequence[Constant],
    back: Callable[[Extent], Extent],
) -> Graph | None:
    """The region with inputs `changed`, each when it is first read, and what the operators infer
    from these; None where that, taken `back`, is not what it has. What extents of inferred shapes
    have become is known to `changed`."""
    data = {constant.value.name: constant.data for constant in constants}
    values = {constant.value.name: constant.value for constant in constants}
    own = {value.name for value in region.inputs}
    known: dict[Extent, Extent] = {}
    nodes: list[Node] = []
    for node in region.nodes:
        for value in node.inputs:
            if value is not None and value.name in own - values.keys():
                values[value.name] = changed(value, known)
        inputs = tuple(None if value is None else values[value.name] for value in node.inputs)
        told = {i: data[v.name] for i, v in enumerate(inputs) if v is not None and v.name in data}
        types = [None if value is None else value.type for value in inputs]
        try:
            kinds = lookup(node.op).infer(types, told, dict(node.attrs))
        except (Mismatch, NotStatic, Undecided):
            return None
        outputs = []
        for value, kind in zip(node.outputs, kinds, strict=True):
            if tuple(map(back, kind.shape)) != value.type.shape:
                return None
            outputs.append(Value(value.name, dataclasses.replace(value.type, shape=kind.shape)))
            values[value.name] = outputs[-1]
            known |= zip(value.type.shape, kind.shape, strict=True)
        nodes.append(dataclasses.replace(node, inputs=inputs, outputs=tuple(outputs)))
    return Graph(
        region.name,
        tuple(values[value.name] for value in region.inputs),
        tuple(constants),
        tuple(nodes),
        tuple(values[value.name] for value in region.outputs),
    )
