"""Find attention in a graph: the product of queries and keys, a softmax along its rows, and the
product of the result with values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from farrier.ir.graph import Graph, Node, Value
from farrier.ir.types import DType
from farrier.ops import Kind, lookup
from farrier.ops.conversion import CAST
from farrier.ops.matmul import MATMUL
from farrier.ops.softmax import SOFTMAX

FLOATS = frozenset((DType.F32, DType.BF16))


def attention_regions(graph: Graph, floats: Collection[DType] = FLOATS) -> Mapping[int, Node]:
    """Find the attentions in a graph whose nodes can be fused into one kernel. Return a mapping
    from the `id` of each node that belongs to an attention, except its last product (the context),
    to that last product. Nodes whose results are also used elsewhere are not included.

        s = MatMul(q, k);  t = Mul(s, scale);  u = Add(t, mask);  p = Softmax(u, axis=-1)
        y = MatMul(p, v)                        → {s, t, u, p: y}

    All of q, k, v must have one of the dtypes `floats` and the same batch axes, and the last axis
    of v and y must be innermost in memory. The weights p may be cast before the product. An
    attention whose scores depend on the context of another one is not fused with it, since kernels
    would grow without limit.
    """
    search = _Search(graph, floats)
    contexts_by_member: dict[int, Node] = {}
    contexts: set[int] = set()
    for node in graph.nodes:
        members = search.members(node)
        if members and id(members[0]) not in contexts:
            contexts.add(id(node))
            contexts_by_member |= {id(member): node for member in members}
    return contexts_by_member


_LONGEST = 24  # The most elementwise nodes between the scores and their softmax.


class _Search:
    def __init__(self, graph: Graph, floats: Collection[DType]) -> None:
        self._floats = floats
        self._producers = graph.producers()
        self._readers = graph.consumers()
        self._returned = frozenset(value.name for value in graph.outputs)

    def members(self, context: Node) -> list[Node]:
        """Return the nodes before `context` that form an attention together with it; an empty list
        if `context` is not the last product of an attention."""
        if not MATMUL.matches(context):
            return []
        weights, values = context.inputs
        assert weights is not None
        assert values is not None
        between: list[Node] = []
        softmax = self._only_for(weights, context)
        if CAST.matches(softmax):
            assert softmax.inputs[0] is not None
            between = [softmax]
            softmax = self._only_for(softmax.inputs[0], softmax)
        if not SOFTMAX.matches(softmax) or values == weights:
            return []
        scores, rank = softmax.inputs[0], weights.type.rank
        if scores is None or softmax.attr("axis", -1) % rank != rank - 1:
            return []
        chain = self._chain(scores, softmax, _LONGEST)
        if not chain:
            return []
        queries, keys = chain[0].inputs
        operands = [queries, keys, weights, values, context.outputs[0]]
        if not all(self._is_matrix(value, weights) for value in operands):
            return []
        rows_first = all(_ends_with_last_axis(v) for v in (weights, values, context.outputs[0]))
        return [*chain, softmax, *between] if rows_first else []

    def _chain(self, value: Value, reader: Node, most: int) -> list[Node]:
        """Return the nodes from a matrix product to `value`, with at most `most` elementwise nodes
        of the same shape after the product, each read only by the next node. Return [] without such
        a chain."""
        node = self._only_for(value, reader)
        if node is None or value.type.layout is not None:
            return []
        if MATMUL.matches(node):
            return [node]
        if not most or lookup(node.op).kind is not Kind.ELEMENTWISE:
            return []
        for source in node.inputs:
            if source is not None and source.type.shape == value.type.shape:
                chain = self._chain(source, node, most - 1)
                if chain:
                    return [*chain, node]
        return []

    def _only_for(self, value: Value, reader: Node) -> Node | None:
        """Return the node that computes `value` if `reader` is its only reader and reads it once;
        else None."""
        node = self._producers.get(value.name)
        if node is None or len(node.outputs) != 1 or node.regions:
            return None
        alone = value.name not in self._returned and self._readers[value.name] == [reader]
        return node if alone and list(reader.inputs).count(value) == 1 else None

    def _is_matrix(self, value: Value | None, like: Value) -> bool:
        """Check whether a value is a batch of float matrices with the batch axes of `like`, in a
        layout that does not split axes."""
        if value is None or value.type.dtype not in self._floats:
            return False
        if value.type.rank != like.type.rank:
            return False
        layout = value.type.layout
        plain = layout is None or not (
            any(d.mod for d in layout.dims) or any(map(any, layout.halo))
        )
        return plain and value.type.shape[:-2] == like.type.shape[:-2]


def _ends_with_last_axis(value: Value) -> bool:
    layout = value.type.layout
    return layout is None or layout.dims[-1].axis == value.type.rank - 1
