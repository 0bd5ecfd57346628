"""Rules for operators that move elements or leave them unchanged."""

from __future__ import annotations

import dataclasses

from farrier.ir.graph import Node, Value, attributes
from farrier.ops import Kind, Trait, lookup
from farrier.ops.operator import extents_array
from farrier.ops.shape import TRANSPOSE
from farrier.ops.view import RESHAPE, VIEW
from farrier.passes.rewriting import Rewriter, join_origins
from farrier.passes.rules.rule import Replacement


def drop_idle(node: Node, rewriter: Rewriter) -> Replacement | None:
    """A node that returns its input unchanged → its input. Examples are Identity and Dropout, a
    Cast to the same dtype, a Reshape or Expand to the same shape, a Concat of a single tensor, a
    Slice of all elements, and a Pad by zero elements."""
    return lookup(node.op).copied(node, rewriter.data) if len(node.outputs) == 1 else None


# The most operands of one Concat kernel, whose code grows with the square of their number.
_MOST_PARTS = 64


def nest_concat(node: Node, rewriter: Rewriter) -> Replacement | None:
    """A Concat of hundreds of tensors → a Concat of several smaller Concats."""
    if not lookup(node.op).has(Trait.JOINS) or len(node.inputs) <= _MOST_PARTS:
        return None
    axis = node.attr("axis") % node.outputs[0].type.rank
    groups = []
    for start in range(0, len(node.inputs), _MOST_PARTS):
        parts = [part for part in node.inputs[start : start + _MOST_PARTS] if part is not None]
        shapes = [part.type.shape for part in parts]
        whole = sum((shape[axis] for shape in shapes), start=0)
        shape = (*shapes[0][:axis], whole, *shapes[0][axis + 1 :])
        name = rewriter.fresh(f"{node.outputs[0].name}_group")
        result = Value(name, dataclasses.replace(parts[0].type, shape=shape))
        groups.append(dataclasses.replace(node, inputs=tuple(parts), outputs=(result,)))
    joined = tuple(group.outputs[0] for group in groups)
    return (*groups, dataclasses.replace(node, inputs=joined))


def view_as_reshape(node: Node, rewriter: Rewriter) -> Replacement | None:
    """Flatten, Squeeze, Unsqueeze, and a Reshape with a computed shape → one Reshape with a
    constant shape; a Reshape of a Reshape reads the input of the first. A View node stays, because
    its size is checked at run time."""
    x = node.inputs[0] if node.inputs else None
    if x is None or len(node.outputs) != 1 or lookup(node.op).kind is not Kind.VIEW:
        return None
    if VIEW.matches(node):
        return None
    y = node.outputs[0]
    if x.type == y.type or x.type.dtype is not y.type.dtype or x.type.layout or y.type.layout:
        return None
    source, origin = x, node.origin
    inner = rewriter.producer(x)
    if RESHAPE.matches(inner) and inner.inputs[0] is not None:
        source, origin = inner.inputs[0], join_origins((inner, node))
    shape = y.type.shape
    if RESHAPE.matches(node) and source is x:
        constant_shape = rewriter.data(node.inputs[1])
        literal = 0 not in shape or node.attr("allowzero", 0)
        if literal and constant_shape is not None and tuple(constant_shape.tolist()) == shape:
            return None
    return (reshape(source, y, rewriter, origin),)


def reshape(x: Value, y: Value, rewriter: Rewriter, origin: str) -> Node:
    """Return a Reshape of `x` to the shape of `y`, with `y` as its output."""
    shape = rewriter.constant(extents_array(y.type.shape), f"{y.name}_shape")
    attrs = attributes(allowzero=1) if 0 in y.type.shape else ()
    return Node("Reshape", (x, shape), (y,), attrs, origin=origin)


def merge_transposes(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`Transpose(Transpose(x))` → a single Transpose. A Transpose that moves only axes of size 1 →
    a Reshape."""
    if not TRANSPOSE.matches(node) or node.inputs[0] is None:
        return None
    x, y = node.inputs[0], node.outputs[0]
    perm = permutation(node)
    inner = _transpose_of(x, rewriter)
    if inner is not None:
        composed = tuple(permutation(inner)[axis] for axis in perm)
        merged = dataclasses.replace(
            node,
            inputs=inner.inputs,
            attrs=attributes(perm=composed),
            origin=join_origins((inner, node)),
        )
        return (merged,)
    if perm == tuple(range(len(perm))):
        return x
    moved = [axis for axis in perm if x.type.shape[axis] != 1]
    return (reshape(x, y, rewriter, node.origin),) if moved == sorted(moved) else None


def unit_axes_before_transpose(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`Reshape(Transpose(x))` → `Transpose(Reshape(x))`, if the Reshape only adds or drops axes
    of size 1. The Transpose is then adjacent to other transpositions, or to the product that
    reads it."""
    x, y = node.inputs[0] if node.inputs else None, node.outputs[0]
    inner = _transpose_of(x, rewriter)
    if x is None or not RESHAPE.matches(node) or inner is None:
        return None
    z, kept = inner.inputs[0], [extent for extent in y.type.shape if extent != 1]
    if z is None or not rewriter.single_use(x) or y.type.layout or z.type.layout:
        return None
    if [extent for extent in x.type.shape if extent != 1] != kept:
        return None
    wide = [axis for axis, extent in enumerate(z.type.shape) if extent != 1]
    moved = [axis for axis in permutation(inner) if axis in wide]
    units = y.type.rank - len(kept)
    shape = (1,) * units + tuple(z.type.shape[axis] for axis in wide)
    source = Value(rewriter.fresh(f"{z.name}_axes"), dataclasses.replace(z.type, shape=shape))
    unit, place = iter(range(units)), iter(units + wide.index(axis) for axis in moved)
    perm = tuple(next(unit if extent == 1 else place) for extent in y.type.shape)
    return (
        reshape(z, source, rewriter, node.origin),
        dataclasses.replace(
            inner,
            inputs=(source,),
            outputs=(y,),
            attrs=attributes(perm=perm),
            origin=join_origins((inner, node)),
        ),
    )


def elementwise_before_transpose(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`op(Transpose(x))` → `Transpose(op(x))` for an elementwise operator `op`, if the Transpose
    moves the channels last and a later Transpose undoes it. `op` must then follow the kernel that
    computed the channels. The other operands of `op` must be scalars, or be transposed in the same
    way."""
    y = node.outputs[0]
    if lookup(node.op).kind is not Kind.ELEMENTWISE or len(node.outputs) != 1 or y.type.rank < 4:
        return None
    perm = (0, *range(2, y.type.rank), 1)
    operands: list[Value | None] = []
    for value in node.inputs:
        inner = _transpose_of(value, rewriter)
        if value is None or value.type.rank == 0:
            operands.append(value)
        elif inner is not None and permutation(inner) == perm:
            operands.append(inner.inputs[0])
        else:
            return None
    if y.type.layout or all(value is None or value.type.rank == 0 for value in operands):
        return None
    before = (y.type.shape[0], y.type.shape[-1], *y.type.shape[1:-1])
    kind = dataclasses.replace(y.type, shape=before)
    result = Value(rewriter.fresh(f"{y.name}_channels"), kind)
    transpose = attributes(perm=perm)
    return (
        dataclasses.replace(node, inputs=tuple(operands), outputs=(result,)),
        Node("Transpose", (result,), (y,), transpose, origin=node.origin),
    )


def _transpose_of(value: Value | None, rewriter: Rewriter) -> Node | None:
    """Return the Transpose that computes `value`; None if another node does."""
    node = rewriter.producer(value)
    return node if TRANSPOSE.matches(node) else None


def permutation(node: Node) -> tuple[int, ...]:
    """Return the input axis of each output axis of a Transpose; without the attribute the axes are
    reversed."""
    rank = node.outputs[0].type.rank
    return tuple(node.attr("perm", tuple(reversed(range(rank)))))
