"""Pad by amounts that are known only when the model runs."""

from __future__ import annotations

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.rewrites.numbers import Number, Numbers
from farrier.frontends.onnx.importer.rewrites.slices import along, spread
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.dim import Extent, bounds, typical
from farrier.ops.operator import Mismatch, normal_axis

_MARGIN = 8  # elements that there is room for around an axis at first


def pad(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """How far an axis grows or is cut before its start becomes sizes, and its new extent."""
    x, pads, axes = node.inputs[0], node.inputs[1], node.input(3)
    rank, mode = len(scope.shape(x)), str(node.attrs.get("mode", "constant"))
    known = scope.data(axes) if axes else ints(range(rank))
    if scope.data(pads) is not None and known is not None:
        return [node]
    if known is None:
        before = along(axes, rank, scope)
        after = scope.add("Add", before, scope.constant(ints([rank])))
        places = scope.add("Concat", before, after, axis=0)
        pads, known = spread(pads, places, 2 * rank, 0, scope), ints(range(rank))
    given, count = scope.elements(pads), len(known)
    if len(given) != 2 * count:
        raise Mismatch(f"{len(given)} pads for {count} axes")
    amounts: list[Extent] = [0] * (2 * count)
    for position, axis in enumerate(known.tolist()):
        extent = scope.shape(x)[normal_axis(axis, rank)]
        pair = _amounts(extent, given[position], given[position + count], mode, Numbers(scope))
        amounts[position], amounts[position + count] = pair
    node.inputs += [""] * (4 - len(node.inputs))
    node.inputs[1], node.inputs[3] = scope.constant(ints(amounts)), scope.constant(known)
    return [node]


def _amounts(
    extent: Extent, before: Number, after: Number, mode: str, numbers: Numbers
) -> tuple[Extent, Extent]:
    """What is added before an axis and behind it."""
    if not isinstance(before, str) and not isinstance(after, str):
        return before, after
    most = extent - 1 if mode == "reflect" else None
    start = numbers.known(before)
    if start is None:
        cut = numbers.size(numbers("Max", numbers("Sub", 0, before), 0), extent, usual=0)
        start = numbers.size(numbers("Max", before, 0), most, usual=1) - cut
    total = numbers("Add", numbers("Add", before, extent), after)
    if mode != "constant" and bounds(extent)[0] < 1:
        # Of an axis without elements there are none to repeat.
        is_empty = numbers("And", numbers("Equal", extent, 0), numbers("Greater", total, 0))
        total = numbers("Where", is_empty, -1, total)
    bound = None if most is None else extent + most + start
    whole = numbers.size(total, bound, usual=typical(extent) + _MARGIN)
    return start, whole - extent - start
