"""A rule that splits the reduction of a whole tensor to one number into steps that vectors and
threads can share.
"""

from __future__ import annotations

import numpy as np

from farrier.ir.dim import Extent, product
from farrier.ir.graph import Node, Value, attributes
from farrier.ir.types import TensorType
from farrier.ops import lookup
from farrier.passes.rewriting import Rewriter
from farrier.passes.rules.rule import Replacement
from farrier.passes.rules.shapes import reshape


def reduce_rows_first(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`ReduceMax(x[a, b])` → `Reshape(ReduceMax(ReduceMax(x, axes=1)[a], axes=0)[1])`: reduce each
    row, or each plane of an image, and then the few results."""
    x, y = node.inputs[0] if node.inputs else None, node.outputs[0]
    joined_by = lookup(node.op).joined_by
    if x is None or not joined_by or not _reduces_all(node, x, rewriter):
        return None
    if x.type.rank == 1:
        return None if y.type.shape == (1,) else _reduced(node.op, x, y, node, rewriter)
    if any(extent == 0 for extent in x.type.shape):
        return None
    first = 2 if x.type.rank == 4 else x.type.rank - 1
    rows, row = product(x.type.shape[:first]), product(x.type.shape[first:])
    if rows == 1 or row == 1:
        line = _value(x, (rows * row,), rewriter)
        view = reshape(x, line, rewriter, node.origin)
        return (view, *_reduced(node.op, line, y, node, rewriter))
    each = _value(y, x.type.shape[:first], rewriter)
    results = _value(y, (rows,), rewriter)
    return (
        _reduction(node.op, x, each, tuple(range(first, x.type.rank)), 0, node, rewriter),
        reshape(each, results, rewriter, node.origin),
        *_reduced(joined_by, results, y, node, rewriter),
    )


def _reduces_all(node: Node, x: Value, rewriter: Rewriter) -> bool:
    axes_value = node.inputs[1] if len(node.inputs) > 1 else None
    if axes_value is None:
        return not node.attr("noop_with_empty_axes", 0)
    axes = rewriter.data(axes_value)
    if axes is None or not axes.size:
        return False
    return len({int(axis) % max(x.type.rank, 1) for axis in axes.reshape(-1)}) == x.type.rank


def _reduced(op: str, line: Value, y: Value, node: Node, rewriter: Rewriter) -> tuple[Node, ...]:
    """Return the nodes that reduce the vector `line` to one number in the shape of `y`."""
    if y.type.shape == (1,):
        return (_reduction(op, line, y, (0,), 1, node, rewriter),)
    scalar = _value(y, (1,), rewriter)
    reduction = _reduction(op, line, scalar, (0,), 1, node, rewriter)
    return (reduction, reshape(scalar, y, rewriter, node.origin))


def _reduction(
    op: str,
    x: Value,
    y: Value,
    axes: tuple[int, ...],
    keepdims: int,
    node: Node,
    rewriter: Rewriter,
) -> Node:
    axes_value = rewriter.constant(np.array(axes, np.int64), f"{y.name}_axes")
    return Node(op, (x, axes_value), (y,), attributes(keepdims=keepdims), origin=node.origin)


def _value(like: Value, shape: tuple[Extent, ...], rewriter: Rewriter) -> Value:
    return Value(rewriter.fresh(f"{like.name}_rows"), TensorType(like.type.dtype, shape))
