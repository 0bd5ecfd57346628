"""Operators of which an operand is a size, a count or a diagonal that values decide.

Such values become extents (`Builder.sizes`). A diagonal may be negative, so nodes compute
with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.numbers import Numbers
from farrier.frontends.builder.rewrites.ranges import places
from farrier.frontends.builder.symbolic import has_dims, ints
from farrier.ir.dim import Extent, product
from farrier.ir.sizes import Demand
from farrier.ir.types import DType
from farrier.ops.operator import Mismatch, normal_axis

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder


def sized(
    node: RawNode, builder: Builder, position: int, bounds: Sequence[Extent | None] = ()
) -> RawNode:
    """Replace an operand of sizes that is known only at run time by its extents, up to `bounds`."""
    name = node.input(position)
    if name and builder.data(name) is None:
        node.inputs[position] = builder.constant(builder.sizes(name, bounds))
    return node


def tile(node: RawNode, builder: Builder) -> RawNode:
    """Make the repetitions extents."""
    return sized(node, builder, 1)


def one_hot(node: RawNode, builder: Builder) -> RawNode:
    """Make the number of classes an extent."""
    return sized(node, builder, 1)


def top_k(node: RawNode, builder: Builder) -> RawNode:
    """Make the count an extent, at most that of the axis."""
    shape = builder.shape(node.inputs[0])
    return sized(node, builder, 1, (shape[normal_axis(node.attrs.get("axis", -1), len(shape))],))


def constant_of_shape(node: RawNode, builder: Builder) -> RawNode:
    """Expand one element to a shape that is open, or that values decide."""
    sized(node, builder, 0)
    if not has_dims(builder.data(node.inputs[0])):
        return node
    value = np.full((), node.attrs.get("value", 0), DType(node.attrs.get("dtype", "f32")).numpy)
    filled = [builder.constant(value), node.inputs[0]]
    return RawNode("Expand", filled, node.outputs, {}, node.origin)


def expand(node: RawNode, builder: Builder) -> RawNode:
    """Make an extent of each size to which an axis of one element is stretched. Another axis keeps
    its own, and a run that asks for more fails."""
    x, wanted = node.inputs
    if builder.data(wanted) is not None:
        return node
    shape, (count,) = builder.shape(x), builder.shape(wanted)
    if not isinstance(count, int):
        raise Mismatch(f"the shape to expand to has {count} elements")
    own = ((1,) * (count - len(shape)) + shape)[-count:] if count else ()
    # An axis that has one element in this run alone cannot be stretched: its extent is open.
    if kept := [axis for axis, n in enumerate(own) if n != 1]:
        asked = builder.add("Gather", wanted, kept, axis=0)
        limits = [own[axis] for axis in kept]
        builder.require(asked, limits, Demand.MOST, "only an axis of 1 is stretched")
    sizes = builder.sizes(wanted).tolist() if 1 in own else own
    target = [size if n == 1 else n for n, size in zip(own, sizes, strict=True)]
    return RawNode("Expand", [x, builder.constant(ints(target))], node.outputs, {}, node.origin)


def concat(node: RawNode, builder: Builder) -> RawNode:
    """Leave out inputs that add nothing: all without elements if some input has elements for
    certain, and otherwise those of extent 0 along the axis."""
    shapes = {name: builder.shape(name) for name in node.inputs}
    if any(all(isinstance(n, int) and n > 0 for n in shape) for shape in shapes.values()):
        longer = [name for name in node.inputs if 0 not in shapes[name]]
    else:
        axis = normal_axis(node.attrs["axis"], len(shapes[node.inputs[0]]))
        longer = [name for name in node.inputs if shapes[name][axis] != 0]
    node.inputs = longer or node.inputs[:1]
    return node


def trilu(node: RawNode, builder: Builder) -> RawNode:
    """Compute from their places which elements stay, if the diagonal is not a constant."""
    x, shape, k = node.inputs[0], builder.shape(node.inputs[0]), node.input(1)
    data = builder.data(k) if k else None
    if not k or (data is not None and not has_dims(data)) or len(shape) < 2:
        return node
    rows = builder.add("Unsqueeze", places(shape[-2], builder), [1])
    diagonal, column = builder.add("Add", rows, k), places(shape[-1], builder)
    sides = (diagonal, column) if node.attrs.get("upper", 1) else (column, diagonal)
    kept = builder.add("LessOrEqual", *sides)
    zero = builder.constant(np.zeros((), builder.dtype(x).numpy))
    return RawNode("Where", [kept, x, zero], node.outputs, {}, node.origin)


def max_unpool(node: RawNode, builder: Builder) -> RawNode:
    """Make extents of the spatial sizes of the output; its batch and channels are the input's."""
    shape, sizes = builder.shape(node.inputs[0]), node.input(2)
    if sizes and builder.data(sizes) is None:
        numbers, wanted = Numbers(builder), builder.elements(sizes)
        for extent, own in zip(wanted[:2], shape[:2], strict=False):
            numbers.require(extent, own)
        spatial = (numbers.size(extent) for extent in wanted[2:])
        node.inputs[2] = builder.constant(ints([*shape[:2], *spatial]))
    return node


def non_zero(node: RawNode, builder: Builder) -> RawNode:
    """Return the places of all elements if none of them is zero for certain, so that their count is
    a size and no data. Exporters write so the places that they assign to ("x[:, 1:] = y")."""
    x = node.inputs[0]
    shape, dtype = builder.shape(x), builder.dtype(x)
    if dtype.is_float or not shape or builder.data(x) is not None or not builder.filled(x):
        return node
    rows = []
    for axis, size in enumerate(shape):
        along = [size, *[1] * (len(shape) - axis - 1)]
        grid = builder.add("Expand", builder.add("Reshape", places(size, builder), along), shape)
        rows.append(builder.add("Reshape", grid, [1, product(shape)]))
    return RawNode("Concat", rows, node.outputs, {"axis": 0}, node.origin)
