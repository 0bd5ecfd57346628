"""Rules that treat batches of rows as one matrix: `x[b, m, k] @ w[k, n]` is one product of b·m
rows.

The Reshape after such a product is then moved below operators on elements or rows, so that the
product and its epilogue stay adjacent.
"""

from __future__ import annotations

import dataclasses

from farrier.ir.dim import product
from farrier.ir.graph import Node, Value
from farrier.ir.types import TensorType
from farrier.ops import Kind, Trait, lookup
from farrier.ops.matmul import MATMUL
from farrier.ops.normalize import LAYER_NORMALIZATION
from farrier.ops.view import RESHAPE
from farrier.passes.rewriting import Rewriter
from farrier.passes.rules.rule import Replacement
from farrier.passes.rules.shapes import reshape


def merge_rows(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`MatMul(x[b, m, k], w[k, n])` → `Reshape(MatMul(Reshape(x)[b·m, k], w))`."""
    if not MATMUL.matches(node) or node.inputs[0] is None or node.inputs[1] is None:
        return None
    x, w, y = node.inputs[0], node.inputs[1], node.outputs[0]
    if x.type.rank < 3 or w.type.rank != 2 or 0 in x.type.shape:
        return None
    nodes, rows = _as_rows(x, rewriter, node.origin)
    product = _row_value(y, rewriter)
    return (
        *nodes,
        dataclasses.replace(node, inputs=(rows, w), outputs=(product,)),
        reshape(product, y, rewriter, node.origin),
    )


def sink_row_reshape(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`op(Reshape(rows), …)` → `Reshape(op(rows, …))`, for an operator `op` that is elementwise
    or works on rows. Its other operands must be broadcast along rows, or have the shape of the
    result."""
    if len(node.outputs) != 1 or node.outputs[0].type.rank < 3:
        return None
    norm = LAYER_NORMALIZATION.matches(node) and node.attr("axis", -1) in (
        -1,
        node.outputs[0].type.rank - 1,
    )
    # An operand with a number for each channel varies along the second axis, not the last, even if
    # the two have one extent.
    operator = lookup(node.op)
    is_by_element = operator.kind is Kind.ELEMENTWISE and not operator.has(Trait.PER_CHANNEL)
    if not norm and not is_by_element:
        return None
    y = node.outputs[0]
    if not any(_is_row_view(value, y, rewriter) for value in node.inputs):
        return None
    nodes: list[Node] = []
    inputs: list[Value | None] = []
    for value in node.inputs:
        if value is None:
            inputs.append(value)
        elif value.type.shape == y.type.shape:
            views, rows = _as_rows(value, rewriter, node.origin)
            nodes.extend(views)
            inputs.append(rows)
        elif value.type.rank <= 1 and value.type.shape in ((), (1,), y.type.shape[-1:]):
            inputs.append(value)
        else:
            return None
    result = _row_value(y, rewriter)
    attrs = tuple((k, -1 if norm and k == "axis" else v) for k, v in node.attrs)
    moved = dataclasses.replace(node, inputs=tuple(inputs), outputs=(result,), attrs=attrs)
    return (*nodes, moved, reshape(result, y, rewriter, node.origin))


def _is_row_view(value: Value | None, y: Value, rewriter: Rewriter) -> bool:
    """Check whether `value`, in the shape of `y`, is a view of a computed matrix of rows."""
    producer = rewriter.producer(value)
    if value is None or not RESHAPE.matches(producer):
        return False
    rows = producer.inputs[0]
    return (
        value.type.shape == y.type.shape
        and rows is not None
        and rows.type.rank == 2
        and rows.type.shape[-1] == y.type.shape[-1]
        and rewriter.producer(rows) is not None
    )


def _as_rows(value: Value, rewriter: Rewriter, origin: str) -> tuple[tuple[Node, ...], Value]:
    """Return the nodes that reshape `value` to a matrix of rows, and the reshaped value; a constant
    needs no nodes."""
    data = rewriter.data(value)
    if data is not None:
        return (), rewriter.constant(data.reshape(-1, data.shape[-1]), f"{value.name}_rows")
    rows = _row_value(value, rewriter)
    return (reshape(value, rows, rewriter, origin),), rows


def _row_value(value: Value, rewriter: Rewriter) -> Value:
    shape = value.type.shape
    type = TensorType(value.type.dtype, (product(shape[:-1]), shape[-1]))
    return Value(rewriter.fresh(f"{value.name}_rows"), type)
