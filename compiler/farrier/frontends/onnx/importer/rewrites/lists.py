"""Operations on sequences of data-dependent length, stored as tensors
(`frontends.builder.names.Listed`).

items of equal shapes        ->  a single tensor, of which they are the slices along axis 0
items of different lengths   ->  a single tensor, in which they are concatenated, and their lengths
"""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder.names import Entry, Listed
from farrier.frontends.builder.rewrites.numbers import Number, Numbers
from farrier.frontends.builder.rewrites.ranges import places
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.dim import Extent, ceildiv, product
from farrier.ir.graph import Value
from farrier.ir.sizes import Demand
from farrier.ops import Mismatch, NotSupported

_END = np.iinfo(np.int64).max


def length(of: Listed) -> Extent:
    return (of.whole if of.lengths is None else of.lengths).type.shape[0]


def at(of: Listed, place: str, scope: ImportScope) -> Entry:
    """Return the item of a sequence at the position `place`; a negative position counts from the
    end."""
    _check_place(place, length(of), scope)
    whole = scope.bind("", of.whole)
    if of.lengths is None:
        return _value(scope.add("Gather", whole, place, axis=0), scope)
    lengths = scope.bind("", of.lengths)
    ends = scope.add("CumSum", lengths, 0)
    end, extent = (scope.add("Gather", name, place, axis=0) for name in (ends, lengths))
    return _value(_part(whole, scope.add("Sub", end, extent), end, of.axis, scope), scope)


def _check_place(place: str, count: Extent, scope: ImportScope) -> None:
    for demands, limit in ((Demand.LEAST, -count), (Demand.MOST, count - 1)):
        scope.require(scope.unknown(place), [limit], demands, "it is a place in a sequence")


def insert(of: Listed, item: Value, place: str, scope: ImportScope) -> Entry:
    """Return the sequence with `item` inserted before the position `place`; "" appends the item."""
    whole, name = scope.bind("", of.whole), scope.bind("", item)
    if of.lengths is None:
        row = scope.add("Unsqueeze", name, [0])
        parts = [whole, row]
        if place:
            front, back = _part(whole, 0, place, 0, scope), _part(whole, place, _END, 0, scope)
            parts = [front, row, back]
        return Listed(_value(scope.add("Concat", *parts, axis=0), scope))
    lengths, own = scope.bind("", of.lengths), scope.constant(ints([item.type.shape[of.axis]]))
    counts, parts = [lengths, own], [whole, name]
    if place:
        front, back = _part(lengths, 0, place, 0, scope), _part(lengths, place, _END, 0, scope)
        counts = [front, own, back]
        cut = scope.add("ReduceSum", front, keepdims=0)
        before = _part(whole, 0, cut, of.axis, scope)
        parts = [before, name, _part(whole, cut, _END, of.axis, scope)]
    joined, counted = (
        scope.add("Concat", *parts, axis=axis) for parts, axis in ((parts, of.axis), (counts, 0))
    )
    return Listed(_value(joined, scope), _value(counted, scope), of.axis)


def erase(of: Listed, place: str, scope: ImportScope) -> Entry:
    """Return the sequence without the item at the position `place`; "" removes the last item."""
    if of.lengths is not None:
        raise NotSupported("a removal from tensors of different lengths")
    numbers, whole, count = Numbers(scope), scope.bind("", of.whole), length(of)
    first: Number = count - 1
    if place:
        _check_place(place, count, scope)
        first = numbers("Where", numbers("Less", place, 0), numbers("Add", place, count), place)
    behind = numbers("Add", first, 1)
    parts = [_part(whole, 0, first, 0, scope), _part(whole, behind, _END, 0, scope)]
    return Listed(_value(scope.add("Concat", *parts, axis=0), scope))


def concatenate(of: Listed, axis: int, is_new: bool, scope: ImportScope) -> Entry:
    """Concatenate the items along an existing axis, or stack them along a new one (`is_new`)."""
    if of.lengths is not None:
        axis = axis % of.whole.type.rank
        if is_new or axis != of.axis:
            raise NotSupported(
                f"joining tensors that differ along axis {of.axis} along "
                f"{'a new axis' if is_new else f'axis {axis}'}"
            )
        return of.whole
    rank, whole = of.whole.type.rank, scope.bind("", of.whole)
    axis = axis % (rank if is_new else rank - 1)
    order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
    if axis:
        whole = scope.add("Transpose", whole, perm=tuple(order))
    if is_new:
        return _value(whole, scope)
    shape = scope.shape(whole)
    merged = (*shape[:axis], product(shape[axis : axis + 2]), *shape[axis + 2 :])
    return _value(scope.add("Reshape", whole, list(merged), allowzero=1), scope)


def split(x: str, axis: int, step: Number, keeps_axis: bool, scope: ImportScope) -> Listed:
    """Split an axis into parts of length `step`, and return the parts as a sequence. The last
    part may be shorter. Without `keeps_axis`, which is allowed for a step of 1, the parts lack
    the axis."""
    shape = scope.shape(x)
    extent = shape[axis]
    if isinstance(step, int) and step < 1:
        raise Mismatch(f"parts of the length {step}")
    rest = extent % step if isinstance(step, int) else None
    if isinstance(rest, int) and rest == 0 and isinstance(step, int):
        parts = (*shape[:axis], extent // step, step, *shape[axis + 1 :])
        whole = scope.add("Reshape", x, list(parts), allowzero=1)
        if axis:
            order = [axis, *range(axis), *range(axis + 1, len(parts))]
            whole = scope.add("Transpose", whole, perm=tuple(order))
        if not keeps_axis:
            whole = scope.add("Squeeze", whole, [axis + 1])
        return Listed(_value(whole, scope))
    numbers = Numbers(scope)
    if not isinstance(step, int):
        scope.require(step, [1], Demand.LEAST, "it is the length of parts")
        step = numbers("Max", step, 1)
    count = (
        ceildiv(extent, step)
        if isinstance(step, int)
        else numbers.size(
            numbers("Div", numbers("Sub", numbers("Add", extent, step), 1), step), extent
        )
    )
    starts = scope.add("Mul", places(count, scope), step)
    left = scope.add("Sub", extent, starts)
    lengths = scope.add("Min", left, step)
    return Listed(_value(x, scope), _value(lengths, scope), axis)


def split_by(x: str, axis: int, lengths: str, scope: ImportScope) -> Listed:
    """Split an axis into parts with the given lengths, which must add up to its extent, and return
    them as a sequence."""
    extent, (count,) = scope.shape(x)[axis], scope.shape(lengths)
    step = scope.filled(lengths)
    if step is not None and count * step == extent:
        return split(x, axis, step, True, scope)
    lengths = scope.add("Cast", lengths, to="i64")
    total = scope.add("ReduceSum", lengths, [0], keepdims=0)
    least = scope.add("ReduceMin", lengths, [0], keepdims=0)
    scope.require(scope.unknown(total), [extent], Demand.EXACT, "all parts together fill the axis")
    scope.require(scope.unknown(least), [0], Demand.LEAST, "it is the length of a part")
    return Listed(_value(x, scope), _value(lengths, scope), axis)


def _part(whole: str, start: Number, end: Number, axis: int, scope: ImportScope) -> str:
    """Return the slice from `start` to `end` of a tensor along an axis."""
    return scope.add("Slice", whole, [start], [end], [axis])


def _value(name: str, scope: ImportScope) -> Value:
    entry = scope.entry(name)
    assert isinstance(entry, Value)
    return entry
