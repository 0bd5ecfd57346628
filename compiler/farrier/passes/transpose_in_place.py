"""Let matrix products read and write transposed tensors without a copy."""

from __future__ import annotations

import dataclasses

from farrier.ir.graph import Graph, Node, Value
from farrier.ir.types import Layout
from farrier.ops import Kind, lookup
from farrier.ops.matmul import MATMUL
from farrier.ops.shape import TRANSPOSE
from farrier.passes.rewriting import rename
from farrier.passes.rules.shapes import permutation
from farrier.passes.views import transposed


def transpose_in_place(graph: Graph) -> Graph:
    """Turn a Transpose next to matrix products into a view, which needs no code.

    A transposed tensor that only products read keeps the memory of the original; a product whose
    result is transposed afterwards writes directly in the transposed layout. Both require that the
    last axis stays last.

    before:
        @graph
        def g(q: f32[8, 3, 4], k: f32[3, 4, 8]):
            heads: f32[3, 8, 4] = Transpose(q, perm=(1, 0, 2))
            s: f32[3, 8, 8] = MatMul(heads, k)
            y: f32[8, 3, 8] = Transpose(s, perm=(1, 0, 2))
            return y

    after:
        @graph
        def g(q: f32[8, 3, 4], k: f32[3, 4, 8]):
            heads: f32[3, 8, 4] @ layout(1, 0, 2) = Transpose(q, perm=(1, 0, 2))
            s: f32[3, 8, 8] @ layout(1, 0, 2) = MatMul(heads, k)
            y: f32[8, 3, 8] = Transpose(s, perm=(1, 0, 2))
            return y
    """
    layouts = _Choice(graph).layouts()
    if not layouts:
        return graph
    placed = {
        value.name: Value(value.name, dataclasses.replace(value.type, layout=layouts[value.name]))
        for value in graph.values()
        if value.name in layouts
    }
    return dataclasses.replace(graph, nodes=tuple(rename(node, placed) for node in graph.nodes))


class _Choice:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._returned = frozenset(value.name for value in graph.outputs)
        self._readers = graph.consumers()
        self._producers = graph.producers()

    def layouts(self) -> dict[str, Layout]:
        """Return, by name, the layout of every value that must not be row-major."""
        layouts: dict[str, Layout] = {}
        for node in self._graph.nodes:
            x, y = node.inputs[0] if node.inputs else None, node.outputs[0]
            if not TRANSPOSE.matches(node) or x is None or x.type.layout or y.type.layout:
                continue
            perm = permutation(node)
            if self._only_products_read(y):
                layouts[y.name] = transposed(x.type, perm)
            elif perm[-1] == len(perm) - 1 and self._is_written_by_product(x, node):
                back = tuple(perm.index(axis) for axis in range(len(perm)))
                layouts[x.name] = transposed(y.type, back)
        return layouts

    def _only_products_read(self, value: Value) -> bool:
        readers = self._readers.get(value.name, [])
        return value.name not in self._returned and all(map(MATMUL.matches, readers))

    def _is_written_by_product(self, value: Value, reader: Node) -> bool:
        """Check whether the kernel of a product, including the elementwise operators after it,
        computes `value`, and `reader` is the only reader."""
        if value.name in self._returned or self._readers[value.name] != [reader]:
            return False
        producer = self._producers.get(value.name)
        if producer is None or len(producer.outputs) != 1:
            return False
        if MATMUL.matches(producer):
            return True
        return lookup(producer.op).kind is Kind.ELEMENTWISE and any(
            source is not None
            and source.type.shape == value.type.shape
            and self._is_written_by_product(source, producer)
            for source in producer.inputs
        )
