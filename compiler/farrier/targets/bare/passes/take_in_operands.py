"""The nodes that widen bytes for a kernel, which computes them itself."""

from __future__ import annotations

from collections.abc import Mapping

from farrier.ir.graph import Graph, Node, Value
from farrier.passes.fuse import Home

_BYTES = 1  # Of an element that nothing has widened.


def widened_operands(graph: Graph, home: Home) -> Mapping[int, Node]:
    """Return the nodes that widen bytes for a sum in another kernel, each with the node that adds:
    the kernel of the sum reads the bytes then, where wide elements would take four times the
    memory. `home` is as for `inverted_bottlenecks`."""
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
        """Return the elementwise nodes that make an operand of bytes, if they are part of another
        kernel than the node, and nothing else reads their results."""
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
        """Return the one operand of a node that is not a constant, if its shape is the result's."""
        (result,) = node.outputs
        operands = [v for v in node.inputs if v is not None and v.name not in self._constants]
        alike = len(operands) == 1 and operands[0].type.shape == result.type.shape
        return operands[0] if alike else None
