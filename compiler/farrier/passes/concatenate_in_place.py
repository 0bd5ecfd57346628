"""Let kernels write the operands of a concatenation directly into its result."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

from farrier.ir.control import is_control
from farrier.ir.dim import Extent, Symbol, symbols
from farrier.ir.graph import Graph, Node, Value
from farrier.ops import Trait, lookup
from farrier.passes.rewriting import Rewriter
from farrier.passes.views import is_view

_ALIGNMENT = 64  # In bytes; kernels may rely on this alignment of a tensor's address.


def concatenate_in_place(graph: Graph) -> Graph:
    """Turn a Concat whose operands are contiguous in its result into Adjoin, which needs no code:
    the kernels that compute the operands write directly into the memory of the result. An operand
    that already has other memory, such as an input, a constant, or part of another tensor, is
    copied.

    before:
        @graph
        def g(x: f32[1, 16, 4], z: f32[1, 32, 4]):
            a: f32[1, 16, 4] = Relu(x)
            b: f32[1, 16, 4] = Exp(x)
            c: f32[1, 64, 4] = Concat(a, b, z, axis=1)
            y: f32[1, 64, 4] = Neg(c)
            return y

    after:
        @graph
        def g(x: f32[1, 16, 4], z: f32[1, 32, 4]):
            a: f32[1, 16, 4] = Relu(x)
            b: f32[1, 16, 4] = Exp(x)
            z_part: f32[1, 32, 4] = Relayout(z)
            c: f32[1, 64, 4] = Adjoin(a, b, z_part, axis=1)
            y: f32[1, 64, 4] = Neg(c)
            return y
    """
    rewriter = Rewriter(graph)
    input_sizes = frozenset(
        symbols(extent for value in graph.inputs for extent in value.type.shape)
    )
    returned = {value.name for value in graph.outputs}
    placed: set[str] = set()
    for node in graph.nodes:
        if not lookup(node.op).has(Trait.JOINS) or not _lie_behind_another(node, input_sizes):
            rewriter.emit(node)
            continue
        parts: list[Value] = []
        for part in node.inputs:
            assert part is not None
            producer = rewriter.producer(part)
            movable = producer is not None and not is_view(producer) and not is_control(producer)
            if not movable or part.name in placed | returned:
                copy = Value(rewriter.fresh(f"{part.name}_part"), part.type)
                rewriter.emit(Node("Relayout", (part,), (copy,), origin=node.origin))
                part = copy
            placed.add(part.name)
            parts.append(part)
        rewriter.emit(dataclasses.replace(node, op="Adjoin", inputs=tuple(parts)))
    return rewriter.finish()


def _lie_behind_another(node: Node, input_sizes: Collection[Symbol]) -> bool:
    """Check whether the operands of a concatenation are contiguous, in order, in the memory of the
    result. Each must begin at an aligned offset that depends only on `input_sizes`, since other
    sizes are computed by kernels and may be known too late."""
    y = node.outputs[0]
    axis, layout = node.attr("axis") % y.type.rank, y.type.layout
    if len(node.inputs) < 2 or not _is_outermost(y, axis):
        return False
    if not all(symbol in input_sizes for symbol in symbols(y.type.shape)):
        return False
    inner = (
        1 if layout is None else math.prod(d.mod for d in layout.dims if d.axis == axis and d.mod)
    )
    start: Extent = 0  # In elements along the axis.
    reach: Extent = 0  # In bytes.
    for part in node.inputs:
        if part is None or part.type.layout != layout:
            return False
        if start % inner != 0 or reach % _ALIGNMENT != 0:
            return False
        start += part.type.shape[axis]
        reach += part.type.nbytes
    return reach == y.type.nbytes


def _is_outermost(y: Value, axis: int) -> bool:
    """Check whether the outer dimension of `axis` is the outermost dimension of memory, not
    counting dimensions of extent one."""
    layout, shape = y.type.layout, y.type.shape
    if layout is None:
        return all(extent == 1 for extent in shape[:axis])
    extents = layout.physical_shape(shape)
    for dim, extent in zip(layout.dims, extents, strict=True):
        if dim.axis == axis:
            return dim.mod == 0
        if extent != 1:
            return False
    return False
