"""A rule for scatters of complete rows, by which graph neural networks sum the messages to each
node.
"""

from __future__ import annotations

import numpy as np

from farrier.ir.graph import Node, Value, attributes
from farrier.ir.types import TensorType
from farrier.ops.scatter import SCATTER_ELEMENTS
from farrier.ops.shape import EXPAND
from farrier.passes.rewriting import Rewriter
from farrier.passes.rules.rule import Replacement
from farrier.passes.rules.shapes import reshape


def scatter_rows(node: Node, rewriter: Rewriter) -> Replacement | None:
    """A ScatterElements along the first axis whose index is the same for all elements of a row of
    updates → a ScatterND with one index for each row."""
    if not SCATTER_ELEMENTS.matches(node):
        return None
    x, indices, updates = node.inputs
    if x is None or indices is None or x.type.rank < 2:
        return None
    if node.attr("axis", 0) % x.type.rank or indices.type.shape[1:] != x.type.shape[1:]:
        return None
    rows = _index_of_each_row(indices, rewriter)
    if rows is None:
        return None
    reshapes: tuple[Node, ...] = ()
    if rows.type.rank > 2:
        kind = TensorType(rows.type.dtype, rows.type.shape[:2])
        column = Value(rewriter.fresh(f"{rows.name}_column"), kind)
        reshapes, rows = (reshape(rows, column, rewriter, node.origin),), column
    attrs = attributes(reduction=node.attr("reduction", "none"))
    scatter = Node("ScatterND", (x, rows, updates), node.outputs, attrs, origin=node.origin)
    return (*reshapes, scatter)


def _index_of_each_row(indices: Value, rewriter: Rewriter) -> Value | None:
    """Return a value of shape [rows, 1, ...] that `indices` repeats along all axes but the first;
    None if `indices` differ within a row."""
    data = rewriter.data(indices)
    if data is not None:
        first = data.reshape(len(data), -1)[:, :1]
        if data.size and np.array_equal(data.reshape(len(data), -1), first.repeat(data[0].size, 1)):
            return rewriter.constant(np.ascontiguousarray(first), f"{indices.name}_rows")
        return None
    producer = rewriter.producer(indices)
    source = producer.inputs[0] if EXPAND.matches(producer) else None
    if source is None or source.type.rank != indices.type.rank:
        return None
    repeats = source.type.shape[0] == indices.type.shape[0] and set(source.type.shape[1:]) == {1}
    return source if repeats else None
