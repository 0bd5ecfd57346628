"""Rewrite Pad by amounts that are known only at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.numbers import Number, Numbers
from farrier.frontends.builder.rewrites.slices import along, spread
from farrier.frontends.builder.symbolic import ints
from farrier.ir.dim import Extent, bounds, typical
from farrier.ops.operator import Mismatch, normal_axis

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder

_MARGIN = 8  # The initial capacity for elements around an axis.


def pad(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite a Pad: the number of elements that each axis gains or loses at its start, and its new
    length, become extents."""
    x, pads, axes = node.inputs[0], node.inputs[1], node.input(3)
    rank, mode = len(builder.shape(x)), str(node.attrs.get("mode", "constant"))
    chosen = builder.data(axes) if axes else ints(range(rank))
    if builder.data(pads) is not None and chosen is not None:
        return node
    if chosen is None:
        before = along(axes, rank, builder)
        after = builder.add("Add", before, [rank])
        places = builder.add("Concat", before, after, axis=0)
        pads, chosen = spread(pads, places, 2 * rank, 0, builder), ints(range(rank))
    asked, count = builder.elements(pads), len(chosen)
    if len(asked) != 2 * count:
        raise Mismatch(f"{len(asked)} pads for {count} axes")
    amounts: list[Extent] = [0] * (2 * count)
    for position, axis in enumerate(chosen.tolist()):
        extent = builder.shape(x)[normal_axis(axis, rank)]
        pair = _amounts(extent, asked[position], asked[position + count], mode, Numbers(builder))
        amounts[position], amounts[position + count] = pair
    node.inputs += [""] * (4 - len(node.inputs))
    node.inputs[1], node.inputs[3] = builder.constant(ints(amounts)), builder.constant(chosen)
    return node


def _amounts(
    extent: Extent, before: Number, after: Number, mode: str, numbers: Numbers
) -> tuple[Extent, Extent]:
    """Return the numbers of elements to add before and after an axis (negative: to remove), as
    extents."""
    if not isinstance(before, str) and not isinstance(after, str):
        return before, after
    most = extent - 1 if mode == "reflect" else None
    start = numbers.known(before)
    if start is None:
        cut = numbers.size(numbers("Max", numbers("Sub", 0, before), 0), extent, usual=0)
        start = numbers.size(numbers("Max", before, 0), most, usual=1) - cut
    total = numbers("Add", numbers("Add", before, extent), after)
    if mode != "constant" and bounds(extent)[0] < 1:
        # An axis without elements has none to repeat.
        is_empty = numbers("And", numbers("Equal", extent, 0), numbers("Greater", total, 0))
        total = numbers("Where", is_empty, -1, total)
    bound = None if most is None else extent + most + start
    whole = numbers.size(total, bound, usual=typical(extent) + _MARGIN)
    return start, whole - extent - start
