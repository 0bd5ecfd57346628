"""Rewrite operators with a data-dependent operand that is a size, a count or a diagonal.

Sizes and counts become extents (`Builder.sizes`). A diagonal may be negative, so nodes compute the
result from it.
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
    """Return the node. If operand `position`, a tensor of sizes, is computed at run time, replace
    it by a constant of new data-dependent extents, of which each is at most the corresponding one
    of `bounds`."""
    name = node.input(position)
    if name and builder.data(name) is None:
        node.inputs[position] = builder.constant(builder.sizes(name, bounds))
    return node


def tile(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite a Tile: the repetitions become extents."""
    return sized(node, builder, 1)


def one_hot(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite a OneHot: the number of classes becomes an extent."""
    return sized(node, builder, 1)


def top_k(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite a TopK: the count becomes an extent of at most the axis's length."""
    shape = builder.shape(node.inputs[0])
    return sized(node, builder, 1, (shape[normal_axis(node.attrs.get("axis", -1), len(shape))],))


def constant_of_shape(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite a ConstantOfShape with a symbolic or data-dependent shape: expand a scalar to the
    shape."""
    sized(node, builder, 0)
    if not has_dims(builder.data(node.inputs[0])):
        return node
    value = np.full((), node.attrs.get("value", 0), DType(node.attrs.get("dtype", "f32")).numpy)
    filled = [builder.constant(value), node.inputs[0]]
    return RawNode("Expand", filled, node.outputs, {}, node.origin)


def expand(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite an Expand: the sizes of axes of extent 1 become extents. The other axes keep their
    extents, and a check ends a run that demands another size."""
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
    """Return a Concat without the inputs that contribute no elements."""
    shapes = {name: builder.shape(name) for name in node.inputs}
    if any(all(isinstance(n, int) and n > 0 for n in shape) for shape in shapes.values()):
        longer = [name for name in node.inputs if 0 not in shapes[name]]
    else:
        axis = normal_axis(node.attrs["axis"], len(shapes[node.inputs[0]]))
        longer = [name for name in node.inputs if shapes[name][axis] != 0]
    node.inputs = longer or node.inputs[:1]
    return node


def trilu(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite a Trilu whose diagonal is not constant: compare row and column numbers to select the
    elements."""
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
    """Rewrite a MaxUnpool: the spatial sizes of the output become extents. Its batch and channels
    are the input's."""
    shape, sizes = builder.shape(node.inputs[0]), node.input(2)
    if sizes and builder.data(sizes) is None:
        numbers, wanted = Numbers(builder), builder.elements(sizes)
        for extent, own in zip(wanted[:2], shape[:2], strict=False):
            numbers.require(extent, own)
        spatial = (numbers.size(extent) for extent in wanted[2:])
        node.inputs[2] = builder.constant(ints([*shape[:2], *spatial]))
    return node


def non_zero(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite a NonZero of a tensor that is certain to have no zeros: its result is the indices of
    all elements, whose count is not data-dependent. Exporters write assignments such as "x[:, 1:] =
    y" in this form."""
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
