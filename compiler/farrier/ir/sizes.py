"""Replace the extents of a graph: rename dims, or substitute numbers for symbols."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farrier.ir.dim import Atom, Dim, Extent, Symbol, substitute
from farrier.ir.graph import Constant, Graph, Node, Value
from farrier.ir.types import DType

if TYPE_CHECKING:
    import numpy.typing as npt


class Demand(enum.StrEnum):
    """The relation between a size and an extent that a runtime check requires: the size must be
    equal to the extent (EXACT), or at least (LEAST) or at most (MOST) as large."""

    EXACT = "exact"
    LEAST = "least"
    MOST = "most"

    def is_met(self, size: int, extent: int) -> bool:
        match self:
            case Demand.EXACT:
                return size == extent
            case Demand.LEAST:
                return size >= extent
            case Demand.MOST:
                return size <= extent


def bind(shape: Sequence[Extent], actual: Sequence[int], sizes: dict[str, int]) -> None:
    """Add to `sizes` the values of the symbols that an actual shape determines: those in extents of
    the form `k*symbol + c`."""
    for extent, number in zip(shape, actual, strict=True):
        match extent:
            case Dim(terms=(((Symbol() as symbol,), factor), *constant)) if len(constant) < 2:
                offset = constant[0][1] if constant and constant[0][0] == () else 0
                if len(constant) == bool(offset):
                    sizes.setdefault(symbol.name, (number - offset) // factor)


def with_extents(graph: Graph, change: Callable[[Extent], Extent]) -> Graph:
    """Return the graph with `change` applied to every extent in types, constants and attributes."""

    changed_values: dict[str, Value] = {}  # Most values are read several times.

    def value(old: Value) -> Value:
        new = changed_values.get(old.name)
        if new is None:
            new = changed_values[old.name] = value_with_extents(old, change)
        return new

    nodes = (
        Node(
            node.op,
            tuple(None if v is None else value(v) for v in node.inputs),
            tuple(map(value, node.outputs)),
            tuple((name, change(v) if isinstance(v, Dim) else v) for name, v in node.attrs),
            tuple(with_extents(region, change) for region in node.regions),
            node.origin,
        )
        for node in graph.nodes
    )
    return Graph(
        graph.name,
        tuple(map(value, graph.inputs)),
        tuple(constant_with_extents(constant, change) for constant in graph.constants),
        tuple(nodes),
        tuple(map(value, graph.outputs)),
    )


def substituted(graph: Graph, values: Mapping[Atom, Extent]) -> Graph:
    """Return the graph with symbols and other atoms replaced by the extents in `values`."""
    return with_extents(graph, lambda extent: substitute(extent, values))


def value_with_extents(value: Value, change: Callable[[Extent], Extent]) -> Value:
    if value.type.is_static:
        return value
    shape = tuple(map(change, value.type.shape))
    return Value(value.name, dataclasses.replace(value.type, shape=shape))


def constant_with_extents(constant: Constant, change: Callable[[Extent], Extent]) -> Constant:
    """Return the constant with `change` applied to each size in it; if no dim remains, its array
    gets a numeric dtype."""
    if not constant.has_dims:
        return constant
    return Constant(
        constant.value, array_with_extents(constant.data, constant.value.type.dtype, change)
    )


def array_with_extents(
    data: npt.NDArray[Any], dtype: DType, change: Callable[[Extent], Extent]
) -> npt.NDArray[Any]:
    import numpy as np

    flat = [change(item) if isinstance(item, Dim) else item for item in data.reshape(-1).tolist()]
    array: npt.NDArray[Any] = np.empty(data.shape, object)
    array.reshape(-1)[:] = flat
    if not any(isinstance(item, Dim) for item in flat):
        array = array.astype(dtype.numpy)
    array.flags.writeable = False
    return array
