"""Separate the interpolation along rows from the interpolation along other axes."""

from __future__ import annotations

import dataclasses

from farrier.ir.dim import product, typical
from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops.operator import as_ints, normal_axis
from farrier.ops.resize import RESIZE
from farrier.passes.rewriting import Rewriter

# The types whose values are not rounded between the two steps.
_EXACT = (DType.F32, DType.F64)
# The positions of these operands.
_SCALES, _SIZES = 2, 3


def split_resizes(graph: Graph) -> Graph:
    """Split a Resize that interpolates along rows and along other axes into two: the first
    interpolates along rows only, and the second along the other axes. This is done if the second
    one enlarges the image.

    Vectors run along the rows, so an interpolation along rows has to gather elements. If it comes
    first, it is done for each input row instead of for each output row, of which there are more.
    The sums keep their order, so results do not change. If vectors run along channels
    (`assign-layouts`), nothing is gathered, and a single kernel is faster.

    before:
        @graph
        def g(x: f32[1, 3, 16, 32]):
            scales: f32[4] = constant([1.0, 1.0, 2.0, 2.0])
            y: f32[1, 3, 32, 64] = Resize(x, None, scales, mode='linear')
            return y

    after:
        @graph
        def g(x: f32[1, 3, 16, 32]):
            scales: f32[4] = constant([1.0, 1.0, 2.0, 2.0])
            y_scale: f32[1] = constant([2.0])
            y_scale_1: f32[3] = constant([1.0, 1.0, 2.0])
            y_rows: f32[1, 3, 16, 64] = Resize(x, None, y_scale, axes=(3,), mode='linear')
            y: f32[1, 3, 32, 64] = Resize(y_rows, None, y_scale_1, axes=(0, 1, 2), mode='linear')
            return y
    """
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        for step in _steps(rewriter.resolve_inputs(node), rewriter):
            rewriter.emit(step)
    return rewriter.finish()


def _steps(node: Node, rewriter: Rewriter) -> tuple[Node, ...]:
    """Return the nodes that replace `node`; (node,) if it is not split."""
    x = node.inputs[0] if RESIZE.matches(node) else None
    if x is None or not _is_gathered(node, x.type, node.outputs[0].type):
        return (node,)
    y, rank = node.outputs[0], x.type.rank
    axes = [normal_axis(axis, rank) for axis in as_ints(node.attr("axes") or range(rank))]
    if rank - 1 not in axes or not _enlarges(x.type.shape[:-1], y.type.shape[:-1]):
        return (node,)
    row = axes.index(rank - 1)
    others = [position for position in range(len(axes)) if position != row]
    shape = (*x.type.shape[:-1], y.type.shape[-1])
    rows = Value(rewriter.fresh(f"{y.name}_rows"), dataclasses.replace(x.type, shape=shape))
    return (
        _along(node, axes, [row], x, rows, rewriter),
        _along(node, axes, others, rows, y, rewriter),
    )


def _is_gathered(node: Node, x: TensorType, y: TensorType) -> bool:
    """Check whether a node interpolates along the rows of a row-major tensor."""
    return (
        node.attr("mode", "nearest") in ("linear", "cubic")
        and node.attr("coordinate_transformation_mode") != "tf_crop_and_resize"
        and x.dtype in _EXACT
        and x.layout is None
        and y.layout is None
        and x.shape[-1] != y.shape[-1]
        and x.shape[:-1] != y.shape[:-1]
    )


def _enlarges(before: Shape, after: Shape) -> bool:
    """Check whether the shape `after` has more elements than `before` at typical sizes."""
    return typical(product(after)) > typical(product(before))


def _along(
    node: Node, axes: list[int], positions: list[int], x: Value, y: Value, rewriter: Rewriter
) -> Node:
    """Return a Resize like `node` from `x` to `y` that interpolates only along the axes at
    `positions` of its `axes`."""
    inputs: list[Value | None] = [x, None, None, None]
    for operand, hint in ((_SCALES, "scale"), (_SIZES, "size")):
        value = node.inputs[operand] if operand < len(node.inputs) else None
        data = rewriter.data(value)
        if data is not None and data.size:
            part = rewriter.constant(data[positions], f"{node.outputs[0].name}_{hint}")
            inputs[operand] = part
    while inputs[-1] is None:
        inputs.pop()
    kept = {**dict(node.attrs), "axes": tuple(axes[position] for position in positions)}
    return dataclasses.replace(node, inputs=tuple(inputs), outputs=(y,), attrs=attributes(**kept))
