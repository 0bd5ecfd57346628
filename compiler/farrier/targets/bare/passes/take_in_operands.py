"""The selection of nodes that convert bytes to a wider type and are computed within the kernel that
reads their result."""

from __future__ import annotations

from collections.abc import Mapping

from farrier.ir.graph import Graph, Node, Value
from farrier.passes.fuse import Home

_BYTES = 1  # The size of an element before it is widened.


def widened_operands(graph: Graph, home: Home) -> Mapping[int, Node]:
    """Find elementwise nodes that convert bytes to a wider type and whose only reader is in another
    kernel. Return a mapping from the id of each such node to the reader, whose kernel shall compute
    the node: the kernel then reads bytes, which take a quarter of the memory. `home` returns the
    main node of the kernel to which a node belongs."""
    search = _Search(graph, home)
    taken: dict[int, Node] = {}
    for node in graph.nodes:
        if home(node) in (None, node):
            continue
        for value in node.inputs:
            taken |= {id(member): node for member in search.chain(node, value)}
    return taken


class _Search:
    def __init__(self, graph: Graph, home: Home) -> None:
        self._home = home
        self._producers = graph.producers()
        self._readers = graph.consumers()
        self._constants = {constant.value.name for constant in graph.constants}
        self._returned = {value.name for value in graph.outputs}

    def chain(self, node: Node, value: Value | None) -> list[Node]:
        """Return the elementwise nodes that compute `value` from a tensor of bytes, if they belong
        to another kernel than `node` and each of their results has a single reader. Otherwise
        return an empty list."""
        chain: list[Node] = []
        while value is not None and value.type.dtype.nbytes > _BYTES:
            source = self._producers.get(value.name)
            if source is None or not self._is_free(source, value, self._home(node)):
                return []
            chain.append(source)
            value = self._data(source)
        return chain if value is not None else []

    def _is_free(self, source: Node, value: Value, home: Node | None) -> bool:
        is_alone = len(self._readers.get(value.name, ())) == 1 and value.name not in self._returned
        return is_alone and self._home(source) not in (None, source, home)

    def _data(self, node: Node) -> Value | None:
        """Return the only operand of a node that is not a constant, if it has the shape of the
        result; else None."""
        (result,) = node.outputs
        operands = [v for v in node.inputs if v is not None and v.name not in self._constants]
        alike = len(operands) == 1 and operands[0].type.shape == result.type.shape
        return operands[0] if alike else None
