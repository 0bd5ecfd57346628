"""Liveness: the values and symbols of shapes on which a graph's outputs depend, collected backwards
from the outputs.

A node may define a symbol as well as a value: an operator that counts elements, a Bind, or control
flow whose results have shapes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from farrier.ir.control import BIND, REQUIRE, If, Loop, control_of, grown, joined
from farrier.ir.dim import Extent, symbols, with_bounds
from farrier.ir.graph import Node, Value

if TYPE_CHECKING:
    import numpy.typing as npt

    Data: TypeAlias = Callable[[str], npt.NDArray[Any] | None]
else:
    Data = Any


def defined(node: Node, data: Data) -> Iterator[str]:
    """Yield the names of the symbols whose values `node` computes when the model runs."""
    if node.attr("extent"):
        yield str(node.attr("extent"))
    extents: list[Extent] = []
    if node.op == BIND and node.inputs[1] is not None:
        extents = sizes_in(data(node.inputs[1].name))
    match control_of(node):
        case If() as branch:
            extents = [record.symbol for record in joined(branch)]
        case Loop() as loop:
            extents = [record.result for record in grown(loop)]
        case None:
            pass
    yield from (symbol.name for symbol in symbols(extents))


def sizes_in(data: npt.NDArray[Any] | None) -> list[Extent]:
    """Return the elements of a constant that contains dims; an empty list for any other
    constant."""
    return [] if data is None or data.dtype != object else data.reshape(-1).tolist()


class Liveness:
    """The values and symbols that the nodes added so far need. Add nodes from the last to the
    first.

    `data` maps the name of a value to its elements if the value is a constant whose elements are
    dims, as a shape may be, and to None otherwise.
    """

    def __init__(self, outputs: Iterable[Value], data: Data) -> None:
        self.values: set[str] = set()
        self._symbols: set[str] = set()
        self._data = data
        self._read(outputs)

    def needs(self, node: Node) -> bool:
        """Check whether a value or symbol that the node defines is needed, or the node is a runtime
        check (Require)."""
        if node.op == REQUIRE or any(value.name in self.values for value in node.outputs):
            return True
        return not self._symbols.isdisjoint(defined(node, self._data))

    def is_live(self, value: Value) -> bool:
        """Check whether a value that control flow returns is needed, or a symbol in its shape
        is."""
        names = (symbol.name for symbol in symbols(value.type.shape))
        return value.name in self.values or not self._symbols.isdisjoint(names)

    def add(self, node: Node) -> None:
        """Mark the values and symbols that the node reads as needed."""
        self._read(value for value in node.inputs if value is not None)
        self._note(extent for value in node.outputs for extent in value.type.shape)
        for region in node.regions:
            self._symbols.update(symbol.name for symbol in region.dims)

    def _read(self, values: Iterable[Value]) -> None:
        for value in values:
            self.values.add(value.name)
            self._note((*value.type.shape, *sizes_in(self._data(value.name))))

    def _note(self, extents: Iterable[Extent]) -> None:
        self._symbols.update(symbol.name for symbol in with_bounds(extents))
