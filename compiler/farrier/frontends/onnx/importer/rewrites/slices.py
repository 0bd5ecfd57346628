"""Slice and Split whose bounds are known only when the model runs.

How many elements a slice takes becomes a size (`ImportScope.sizes`). Neighbours are a Slice that
begins at such a size; others are taken by a Gather of their places.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.rewrites.numbers import Number, Numbers
from farrier.frontends.onnx.importer.rewrites.sizes import places
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.dim import Dim, Extent, Undecided, number, typical
from farrier.ir.types import Shape
from farrier.ops.operator import Mismatch, normal_axis
from farrier.ops.slicing import Taken, slices

_END = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True, slots=True)
class _Cut:
    """What a Slice asks for along one axis."""

    axis: int
    start: Number
    end: Number
    step: Number

    def taken(self, shape: Shape, scope: ImportScope) -> Taken | None:
        """What the operator Slice takes; None where a bound is not known, or which positions it
        stands for depends on the value of a symbol."""
        match self:
            case _Cut(axis, int() | Dim() as start, int() | Dim() as end, int() as step):
                try:
                    return slices(shape, (start,), (end,), (axis,), (step,))[axis]
                except Undecided as undecided:
                    scope.defers(undecided.question)
        return None


def slice_(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    x, shape = node.inputs[0], scope.shape(node.inputs[0])
    cuts, numbers = _cuts(node, scope), Numbers(scope)
    if all(cut.taken(shape, scope) is not None for cut in cuts):
        return [node]
    runs: list[_Cut] = []
    gathered: list[tuple[str, int]] = []  # places, axis
    for cut in cuts:
        if cut.taken(shape, scope) is not None:
            runs.append(cut)
            continue
        extent = shape[cut.axis]
        first, count = _window(extent, cut, numbers)
        if cut.step == 1:
            start = numbers.size(first, extent, usual=0)
            end = start + numbers.size(count, extent - start)
            runs.append(_Cut(cut.axis, start, end, 1))
        else:
            every = places(numbers.size(count, extent), scope)
            at = scope.add("Add", scope.add("Mul", every, numbers.name(cut.step)), first)
            gathered.append((at, cut.axis))
    if runs:
        operands = zip(*((cut.start, cut.end, cut.axis, cut.step) for cut in runs), strict=True)
        x = scope.add("Slice", x, *(scope.constant(ints(values)) for values in operands))
    for at, axis in gathered:
        x = scope.add("Gather", x, at, axis=axis)
    return [RawNode("Identity", [x], node.outputs, {}, node.origin)]


def _cuts(node: RawNode, scope: ImportScope) -> list[_Cut]:
    """What a Slice asks for: along all axes where it is not known along which."""
    x, starts, ends, given, steps = (node.input(position) for position in range(5))
    rank = len(scope.shape(x))
    count = number(scope.shape(starts)[0])
    axes = scope.data(given) if given else ints(range(count))
    if axes is None:
        at = along(given, rank, scope)
        starts, ends = spread(starts, at, rank, 0, scope), spread(ends, at, rank, _END, scope)
        steps = spread(steps, at, rank, 1, scope) if steps else ""
        axes = ints(range(rank))
    bounds = [scope.elements(name) for name in (starts, ends)]
    bounds.append(scope.elements(steps) if steps else [1] * len(axes))
    if any(len(values) != len(axes) for values in bounds):
        raise Mismatch(f"starts, ends and steps for {len(axes)} axes differ in length")
    front = (normal_axis(int(axis), rank) for axis in axes)
    return [_Cut(axis, *bound) for axis, *bound in zip(front, *bounds, strict=True)]


def along(axes: str, rank: int, scope: ImportScope) -> str:
    """Axes that are known only at run time, counted from the front, i64."""
    axes = scope.add("Cast", axes, to="i64")
    from_front = scope.add("Add", axes, scope.constant(ints([rank])))
    is_negative = scope.add("Less", axes, scope.constant(ints([0])))
    return scope.add("Where", is_negative, from_front, axes)


def spread(values: str, places: str, count: int, fill: int, scope: ImportScope) -> str:
    """`count` numbers: the values at their places, elsewhere `fill`."""
    whole = scope.constant(np.full(count, fill, np.int64))
    return scope.add("ScatterElements", whole, places, scope.add("Cast", values, to="i64"), axis=0)


def _window(extent: Extent, cut: _Cut, numbers: Numbers) -> tuple[str, str]:
    """The first position that is taken, and how many are; -1 for a step of 0."""
    backwards = numbers("Less", cut.step, 0)
    low = numbers("Where", backwards, -1, 0)  # an end of -1 is "through the first element"
    high = numbers("Add", extent, low)

    def clamped(bound: Number, least: Number) -> str:
        wrapped = numbers("Add", bound, extent)
        bound = numbers("Where", numbers("Less", bound, 0), wrapped, bound)
        return numbers("Min", numbers("Max", bound, least), high)

    first, last = clamped(cut.start, 0), clamped(cut.end, low)
    ahead, behind = numbers("Sub", last, first), numbers("Sub", first, last)
    span = numbers("Max", numbers("Where", backwards, behind, ahead), 0)
    # The least i64 has no magnitude in i64, so steps are clamped to -_END.
    width = numbers("Abs", numbers("Max", cut.step, -_END))
    behind = numbers("Div", numbers("Max", numbers("Sub", span, 1), 0), width)
    count = numbers("Add", behind, numbers("Min", span, 1))
    return first, numbers("Where", numbers("Equal", cut.step, 0), -1, count)


def split(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    shape, given = scope.shape(node.inputs[0]), scope.elements(node.inputs[1])
    extent = shape[normal_axis(node.attrs.get("axis", 0), len(shape))]
    if len(given) != len(node.outputs):
        raise Mismatch(f"{len(given)} lengths of {len(node.outputs)} parts")
    node.inputs[1] = scope.constant(ints(lengths(given, extent, scope)))
    return [node]


def lengths(given: list[Number], extent: Extent, scope: ImportScope) -> list[Extent]:
    """The lengths of the parts of an axis. The last takes what the others leave, and must be as
    long."""
    numbers, found, rest = Numbers(scope), [], extent
    for length in given[:-1]:
        usual = -(-typical(extent) // len(given))
        found.append(numbers.size(length, rest, usual))
        rest = rest - found[-1]
    numbers.require(given[-1], rest)
    return [*found, rest]
