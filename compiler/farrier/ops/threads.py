"""Parallel sort, prefix sum and stream compaction in a loop nest, for devices with thousands of
threads.

Such devices take long for a nest that only a few threads share. Item numbers are i32, the native
integer of these devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from farrier.ir.dim import Extent, bounds, ceildiv, typical
from farrier.ir.expr import ReduceOp, index
from farrier.ir.types import DType
from farrier.ops.nest import LoopBuilder, Tensor
from farrier.ops.scalar import (
    Scalar,
    binary,
    both,
    cast,
    either,
    equal,
    invert,
    minimum,
    remainder,
    scalar,
    unequal,
    where,
)

# Check whether one item of a line, by their numbers, comes before another. It may write statements.
IsBefore: TypeAlias = Callable[[Scalar, Scalar, Scalar], Scalar]

COUNT = DType.I32
_RUN = 32  # Items that are sorted by comparing each with all others.
_CHUNK = 64  # Items that one thread goes through.


def count(value: Scalar) -> Scalar:
    """Convert an index (i64) to an item number (i32)."""
    return cast(value, COUNT)


def place(value: Scalar) -> Scalar:
    """Convert an item number (i32) to an index (i64)."""
    return cast(value, DType.I64)


def precedes(value: Scalar, other: Scalar, descends: bool) -> Scalar:
    """Check whether `value` sorts before `other`; NaN is the greatest. If an operand is NaN, no
    comparison of floats decides, since devices differ in their results."""
    is_beyond = value > other if descends else value < other
    if not value.dtype.is_float:
        return is_beyond
    is_nan, other_is = unequal(value, value), unequal(other, other)
    is_apart = both(is_nan, invert(other_is)) if descends else both(other_is, invert(is_nan))
    return either(both(invert(either(is_nan, other_is)), is_beyond), is_apart)


def sorted_by_threads(
    nest: LoopBuilder, lines: Extent, length: Extent, is_before: IsBefore
) -> Tensor:
    """Return the item numbers of each line in sorted order, [lines, length]. The sort is stable;
    `is_before(line, left, right)` is a strict order of items.

    Short runs are sorted first: the position of an item in its run is the number of items that
    precede it. Then pairs of runs are merged until one run is left: the new position of an item is
    its position in its own run plus the number of items of the other run that precede it, found by
    binary search. A step reads one array and writes another, so all items are processed at once.
    """
    order = nest.shared("order", (lines, length), COUNT)
    _rank(nest, order, is_before)
    longest, run = bounds(length)[1], _RUN
    spare = nest.shared("order", (lines, length), COUNT) if run < longest else order
    while run < longest:
        _merge(nest, order, spare, run, is_before)
        order, spare, run = spare, order, 2 * run
    return order


def _rank(nest: LoopBuilder, order: Tensor, is_before: IsBefore) -> None:
    """Write the loops that sort the items of each run: the position of an item is the number of
    items of its run that precede it."""
    lines, length = order.shape
    with nest.independent(lines, "line") as line, nest.independent(length, "item") as at:
        item = nest.let(count(at), "item")
        first = nest.let(_multiple(item, _RUN), "first")
        rank = nest.variable(first, "rank")
        with nest.for_(_RUN) as i:
            other = nest.let(first + count(i), "other")
            with nest.if_(other < length):
                is_earlier = nest.let(other < item)
                left, right = where(is_earlier, item, other), where(is_earlier, other, item)
                is_first = nest.let(is_before(line, nest.let(left), nest.let(right)))
                rank.value += count(unequal(is_first, is_earlier))
        order[line, place(rank.value)] = item


def _merge(nest: LoopBuilder, order: Tensor, merged: Tensor, run: int, is_before: IsBefore) -> None:
    """Write the loops that merge pairs of adjacent runs of `run` items of `order` into `merged`."""
    lines, length = order.shape
    with nest.independent(lines, "line") as line, nest.independent(length, "slot") as slot:
        here, item = nest.let(count(slot), "here"), nest.let(order[line, slot], "item")
        first = nest.let(_multiple(here, 2 * run), "first")
        middle, end = (nest.let(minimum(first + run * n, length)) for n in (1, 2))
        is_left = nest.let(here < middle, "is_left")

        def comes_first(there: Scalar) -> Scalar:
            """Check whether item `there` of the other run precedes the item of this thread."""
            other = nest.let(order[line, place(there)])
            left, right = where(is_left, other, item), where(is_left, item, other)
            return equal(is_before(line, nest.let(left), nest.let(right)), is_left)

        low, high = where(is_left, middle, first), where(is_left, end, middle)
        passed = search(nest, low, high, comes_first)
        # The items before it are those of its own run, and those of the other one it passed.
        merged[line, place(here + passed - middle)] = item


def _multiple(item: Scalar, of: int) -> Scalar:
    """Return the greatest multiple of `of` that is not above `item`."""
    return item - remainder(item, of)


def search(
    nest: LoopBuilder, low: Scalar, high: Scalar, holds: Callable[[Scalar], Scalar]
) -> Scalar:
    """Return the first number in [`low`, `high`) for which `holds` is false, or `high` if it is
    true for all of them. Because the search is binary, `holds` must be true for all numbers below
    the result and false for all others."""
    bottom, top = nest.variable(low, "low"), nest.variable(high, "high")
    with nest.while_(bottom.value < top.value):
        middle = nest.let(bottom.value + (top.value - bottom.value) / 2, "middle")
        with nest.if_(holds(middle)):
            bottom.value = middle + 1
        with nest.else_():
            top.value = middle
    return bottom.value


def offsets_by_threads(
    nest: LoopBuilder,
    shape: Sequence[Extent],
    join: ReduceOp,
    dtype: DType,
    value: Callable[[Scalar, Scalar, Scalar], Scalar],
) -> tuple[Tensor, int]:
    """Write the loops of a parallel prefix reduction. The steps of each line and column are divided
    into chunks. Return two values: a tensor [lines, chunks + 1, columns] that has, for each chunk,
    the combination by `join` of all steps before it; and the number of steps in a chunk. The last
    entry combines all steps.

    `shape` is [lines, steps, columns], and `value(line, step, column)` returns an element of type
    `dtype`.

    Each chunk is reduced in parallel; then the results of the chunks are combined one after the
    other. The number of chunks is about the square root of the number of steps, which makes both
    phases short.
    """
    lines, steps, columns = shape
    chunk = max(_CHUNK, math.isqrt(typical(steps)))
    chunks = ceildiv(steps, chunk)
    offsets = nest.shared("offsets", (lines, chunks + 1, columns), dtype)
    identity = scalar(join.identity(dtype))
    with (
        nest.independent(lines, "line") as line,
        nest.independent(chunks, "chunk") as part,
        nest.independent(columns, "column") as column,
    ):
        total = nest.variable(identity, "total")
        with nest.for_(chunk) as i, nest.if_(part * chunk + i < steps):
            joined = value(line, part * chunk + i, column)
            total.value = binary(join.binary, total.value, joined)
        offsets[line, part, column] = total.value
    with nest.independent(lines, "line") as line, nest.independent(columns, "column") as column:
        before = nest.variable(identity, "before")
        with nest.for_(chunks, "chunk") as part:
            own = nest.let(offsets[line, part, column])
            offsets[line, part, column] = before.value
            before.value = binary(join.binary, before.value, own)
        offsets[line, scalar(index(chunks)), column] = before.value
    return offsets, chunk


def listed_by_threads(
    nest: LoopBuilder,
    size: Extent,
    holds: Callable[[Scalar], Scalar],
    store: Callable[[Scalar, Scalar], None],
) -> Scalar:
    """Write the loops that list all i in [0, size) for which `holds(i)` is true, in increasing
    order. They call `store(i, place)` for each, where `place` is its position in the list. Return
    the length of the list as an element that later statements can read."""
    offsets, chunk = offsets_by_threads(
        nest, (1, size, 1), ReduceOp.SUM, COUNT, lambda line, i, column: count(holds(i))
    )
    chunks = ceildiv(size, chunk)
    with nest.independent(chunks, "chunk") as part:
        at = nest.variable(offsets[0, part, 0], "place")
        with nest.for_(chunk) as i, nest.if_(part * chunk + i < size):
            item = part * chunk + i
            with nest.if_(holds(item)):
                store(item, at.value)
                at.value += 1
    return offsets[0, scalar(index(chunks)), 0]
