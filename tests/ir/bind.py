"""Put numbers in the place of dims: a symbolic kernel or graph as it is for one shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from farrier.ir.dim import Extent, Symbol, evaluate, substitute
from farrier.ir.expr import Axis, Buffer, Size, index
from farrier.ir.graph import Graph
from farrier.ir.loop import For, Function
from farrier.ir.sizes import with_extents
from farrier.ir.tensor import TensorProgram
from farrier.ir.walk import rewrite

T = TypeVar("T")


def bind(node: T, values: Mapping[Symbol, Extent]) -> T:
    """The program, function or buffer with some symbols replaced wherever they stand."""
    if not values:
        return node
    extents = dict(values)
    if isinstance(node, Function):
        for size in node.sizes:  # One may be computed from those before it.
            extents[size.symbol] = substitute(size.extent, extents)

    def extent(old: Extent) -> Extent:
        return substitute(old, extents)

    def visit(part: Any) -> Any:
        match part:
            case Buffer(shape=shape):
                return dataclasses.replace(part, shape=tuple(map(extent, shape)))
            case Axis() | For():
                return dataclasses.replace(part, extent=extent(part.extent))
            case Size(old):
                return index(extent(old))
            case TensorProgram():
                return dataclasses.replace(part, dims=_free(part.dims, values))
            case Function():
                return dataclasses.replace(part, dims=_free(part.dims, values), sizes=())
            case _:
                return part

    return rewrite(node, visit)


def _free(dims: tuple[Symbol, ...], values: Mapping[Symbol, Extent]) -> tuple[Symbol, ...]:
    return tuple(symbol for symbol in dims if symbol not in values)


def at_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph for some values of its symbols, by name; KeyError for a symbol without a value."""
    return with_extents(graph, lambda extent: evaluate(extent, sizes))
