"""Rewrite Slice and Split whose limits are known only at run time.

The number of elements of a slice becomes an extent (`Builder.sizes`), and so does the start of a
slice with step 1. The elements of other slices are gathered.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.numbers import Number, Numbers
from farrier.frontends.builder.rewrites.ranges import places
from farrier.frontends.builder.symbolic import ints
from farrier.ir.dim import Dim, Extent, Undecided, number, typical
from farrier.ir.types import Shape
from farrier.ops.operator import Mismatch, normal_axis
from farrier.ops.slicing import Taken, slices

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder

_END = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True, slots=True)
class _Cut:
    """The start, end and step of a slice along one axis."""

    axis: int
    start: Number
    end: Number
    step: Number

    def taken(self, shape: Shape, builder: Builder) -> Taken | None:
        """Return the positions along the axis that the operator Slice would read. Return None if
        the start, end or step is not known when compiling, or if the positions cannot be written as
        one function of the symbols."""
        match self:
            case _Cut(axis, int() | Dim() as start, int() | Dim() as end, int() as step):
                try:
                    return slices(shape, (start,), (end,), (axis,), (step,))[axis]
                except Undecided as undecided:
                    builder.defers(undecided.question)
        return None


def slice_(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite a Slice: axes with known limits stay in a Slice, so do axes with step 1; along the
    other axes the elements are gathered."""
    x, shape = node.inputs[0], builder.shape(node.inputs[0])
    cuts, numbers = _cuts(node, builder), Numbers(builder)
    if all(cut.taken(shape, builder) is not None for cut in cuts):
        return node
    runs: list[_Cut] = []
    gathered: list[tuple[str, int]] = []  # Places and axis.
    for cut in cuts:
        if cut.taken(shape, builder) is not None:
            runs.append(cut)
            continue
        extent = shape[cut.axis]
        first, count = _window(extent, cut, numbers)
        if cut.step == 1:
            start = numbers.size(first, extent, usual=0)
            end = start + numbers.size(count, extent - start)
            runs.append(_Cut(cut.axis, start, end, 1))
        else:
            every = places(numbers.size(count, extent), builder)
            at = builder.add("Add", builder.add("Mul", every, cut.step), first)
            gathered.append((at, cut.axis))
    if runs:
        operands = zip(*((cut.start, cut.end, cut.axis, cut.step) for cut in runs), strict=True)
        x = builder.add("Slice", x, *operands)
    for at, axis in gathered:
        x = builder.add("Gather", x, at, axis=axis)
    return RawNode("Identity", [x], node.outputs, {}, node.origin)


def _cuts(node: RawNode, builder: Builder) -> list[_Cut]:
    """Return the start, end and step of the slice along each axis that the node slices. If the list
    of axes is computed at run time, return a slice along every axis."""
    x, starts, ends, which, steps = (node.input(position) for position in range(5))
    rank = len(builder.shape(x))
    count = number(builder.shape(starts)[0])
    axes = builder.data(which) if which else ints(range(count))
    if axes is None:
        at = along(which, rank, builder)
        starts, ends = spread(starts, at, rank, 0, builder), spread(ends, at, rank, _END, builder)
        steps = spread(steps, at, rank, 1, builder) if steps else ""
        axes = ints(range(rank))
    bounds = [builder.elements(name) for name in (starts, ends)]
    bounds.append(builder.elements(steps) if steps else [1] * len(axes))
    if any(len(values) != len(axes) for values in bounds):
        raise Mismatch(f"starts, ends and steps for {len(axes)} axes differ in length")
    front = (normal_axis(int(axis), rank) for axis in axes)
    return [_Cut(axis, *bound) for axis, *bound in zip(front, *bounds, strict=True)]


def along(axes: str, rank: int, builder: Builder) -> str:
    """Return the name of the axes `axes`, which are computed at run time, as an i64 vector with
    negative axes counted from the front."""
    axes = builder.add("Cast", axes, to="i64")
    from_front = builder.add("Add", axes, [rank])
    is_negative = builder.add("Less", axes, [0])
    return builder.add("Where", is_negative, from_front, axes)


def spread(values: str, places: str, count: int, fill: int, builder: Builder) -> str:
    """Return the name of an i64 vector of `count` elements: `values` at the positions `places`,
    `fill` elsewhere."""
    whole = builder.constant(np.full(count, fill, np.int64))
    return builder.add(
        "ScatterElements", whole, places, builder.add("Cast", values, to="i64"), axis=0
    )


def _window(extent: Extent, cut: _Cut, numbers: Numbers) -> tuple[str, str]:
    """Return the names of two i64 scalars: the first position of a slice, and its number of
    positions. The number is -1 if the step is 0."""
    backwards = numbers("Less", cut.step, 0)
    low = numbers("Where", backwards, -1, 0)  # An end of -1 is "through the first element".
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


def split(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite a Split: data-dependent lengths become extents. Parts without elements become
    constants."""
    x, name = node.inputs[0], node.input(1)
    shape = builder.shape(x)
    axis = normal_axis(node.attrs.get("axis", 0), len(shape))
    if name and builder.data(name) is None:
        parts = builder.elements(name)
        if len(parts) != len(node.outputs):
            raise Mismatch(f"{len(parts)} lengths of {len(node.outputs)} parts")
        node.inputs[1] = builder.constant(ints(lengths(parts, shape[axis], builder)))
        return node
    sizes = builder.data(name) if name else _equal_parts(shape[axis], len(node.outputs))
    if sizes is None or np.all(sizes != 0) or len(sizes) != len(node.outputs):
        return node
    empty = builder.constant(ints([*shape[:axis], 0, *shape[axis + 1 :]]))
    attrs = {"dtype": str(builder.dtype(x)), "value": 0}
    for output, size in zip(node.outputs, sizes, strict=True):
        if size == 0:
            builder.emit(RawNode("ConstantOfShape", [empty], [output], attrs, node.origin))
    full = [output for output, size in zip(node.outputs, sizes, strict=True) if size]
    attrs = {key: value for key, value in node.attrs.items() if key != "num_outputs"}
    kept = builder.constant(sizes[sizes != 0])
    return RawNode("Split", [x, kept], full, attrs, node.origin)


def _equal_parts(extent: Extent, count: int) -> Any:
    """Return the lengths of `count` parts of an axis, which are equal except that the last ones may
    be shorter or empty: `7, 3 → [3, 3, 1]`. Return None for an axis of symbolic length."""
    if not isinstance(extent, int):
        return None
    part = -(-extent // count)
    return np.clip(extent - part * np.arange(count), 0, part)


def lengths(parts: list[Number], extent: Extent, builder: Builder) -> list[Extent]:
    """Return the lengths of the parts of an axis as extents. The last length is computed as
    `extent` minus the others; a check ends a run in which the model's own last length differs."""
    numbers, extents, rest = Numbers(builder), [], extent
    for place, length in enumerate(parts[:-1], 1):
        usual = -(-typical(extent) // len(parts))
        later = sum((part for part in parts[place:] if not isinstance(part, str)), start=0)
        extents.append(numbers.size(length, rest - later, usual))
        rest = rest - extents[-1]
    numbers.require(parts[-1], rest)
    return [*extents, rest]
