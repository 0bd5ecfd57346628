"""Rewrite Reshape to a shape that is known only at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farrier.frontends.builder.data_sizes import first_room
from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.numbers import Number, Numbers
from farrier.frontends.builder.symbolic import ints
from farrier.ir.dim import Extent, Undecided, product, reduced, typical
from farrier.ops.operator import Mismatch

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder


def reshape(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite a Reshape: 0 and -1 become the extents that they stand for. A check ends a run in
    which the product of the extents differs from the number of elements; if a single extent is
    unknown, it is computed from the others."""
    x, wanted = node.inputs
    if builder.data(wanted) is not None:
        return node
    shape, numbers = builder.shape(x), Numbers(builder)
    size = product(shape)
    extents = builder.elements(wanted)
    if not node.attrs.get("allowzero", 0):
        extents = [_copied(extent, axis, shape, numbers) for axis, extent in enumerate(extents)]
    extents = _filled(extents, size, numbers)
    unknown = [axis for axis, extent in enumerate(extents) if isinstance(extent, str)]
    settled = product(extent for extent in extents if not isinstance(extent, str))
    if len(unknown) == 1:
        (axis,) = unknown
        rest = _quotient(size, settled)
        if rest is not None:
            numbers.require(extents[axis], rest)
            extents[axis] = rest
    elements: Number = 1
    for extent in extents:
        elements = numbers("Mul", elements, extent)
    beside = sum(isinstance(extent, str) for extent in extents)
    room = min(first_room(beside), max(typical(size), 1))
    sizes = [numbers.size(extent, None, room) for extent in extents]
    if product(sizes) != size:
        numbers.require(elements, size)
    target = builder.constant(ints(sizes))
    return RawNode("View", [x, target], node.outputs, {}, node.origin)


def _copied(extent: Number, axis: int, shape: tuple[Extent, ...], numbers: Numbers) -> Number:
    """Return the extent, or if it is 0 the input's extent at the same axis."""
    if extent == 0 and axis >= len(shape):
        raise Mismatch(f"the shape copies axis {axis} of an input {shape}")
    if not isinstance(extent, str):
        return shape[axis] if extent == 0 else extent
    if axis >= len(shape):
        return extent
    return numbers("Where", numbers("Equal", extent, 0), shape[axis], extent)


def _filled(extents: list[Number], size: Extent, numbers: Numbers) -> list[Number]:
    """Return the extents with -1 replaced by `size` divided by the product of the others."""
    open_axes = [a for a, extent in enumerate(extents) if extent == -1]
    if len(open_axes) > 1:
        raise Mismatch("the shape leaves more than one extent open")
    if open_axes:
        others = [extent for extent in extents if extent != -1]
    else:
        others = [
            numbers("Where", numbers("Equal", extent, -1), 1, extent)
            if isinstance(extent, str)
            else extent
            for extent in extents
        ]
    taken: Number = 1
    for other in others:
        taken = numbers("Mul", taken, other)
    rest = numbers("Div", size, taken)
    if open_axes:
        return [rest if extent == -1 else extent for extent in extents]
    return [
        numbers("Where", numbers("Equal", extent, -1), rest, extent)
        if isinstance(extent, str)
        else extent
        for extent in extents
    ]


def _quotient(size: Extent, divisor: Extent) -> Extent | None:
    """Return `size / divisor` if it is certain to be an integer, else None."""
    size, divisor = reduced(size, divisor)
    try:
        return None if divisor == 0 or size % divisor != 0 else size // divisor
    except Undecided:
        return None
