"""TopK: the k largest or smallest elements along an axis, and their positions."""

from __future__ import annotations

import numpy as np

from farrier.ir.dim import Extent, product
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops.builder import attributes_of
from farrier.ops.heap import Heap, ranks_before
from farrier.ops.nest import LoopBuilder, Tensor
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Constants,
    Data,
    Kind,
    Mismatch,
    Operator,
    Threaded,
    Types,
    axis_attr,
    int_attr,
    present,
    required,
    static_extents,
)
from farrier.ops.scalar import Scalar, both, cast, either, maximum, minimum, number, where
from farrier.ops.threads import place, precedes, sorted_by_threads

_BLOCK = 64  # elements
# A merge sort costs the same for every k, but its steps have no branches that depend on the data
# and are about ten times as fast as those of a heap: it pays if k is this part of the extent.
_MOST_OF = 4


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, k = required(types, 0), static_extents(types, constants, 1, "k")
    axis = axis_attr(attrs, x.rank, -1)
    if not k or len(k) != 1 or k[0] < 0 or k[0] > x.shape[axis]:
        raise Mismatch(f"k is {k}, and must be one number up to {x.shape[axis]}")
    shape = (*x.shape[:axis], k[0], *x.shape[axis + 1 :])
    return (TensorType(x.dtype, shape), TensorType(DType.I64, shape))


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, k = present(arrays, 0), int(present(arrays, 1).reshape(-1)[0])
    axis = axis_attr(attrs, x.ndim, -1)
    if int_attr(attrs, "largest", 1):  # Of equal elements the first comes first.
        order = (
            x.shape[axis]
            - 1
            - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        )
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    chosen = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, chosen, axis), chosen.astype(np.int64)


def _nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops. For each row, a heap holds the best k elements so far, with the worst of
    them at its root. At the end, the roots are removed one after the other, and fill the output
    from its end. Blocks without an element better than the root are skipped by vector
    comparisons."""
    x_type = node.inputs[0].type if node.inputs[0] is not None else None
    assert x_type is not None
    shape, attrs = x_type.shape, attributes_of(node)
    axis, (k,) = axis_attr(attrs, len(shape), -1), nest.extents(1)
    outer, extent, inner = product(shape[:axis]), shape[axis], product(shape[axis + 1 :])
    x = nest.input(0, (outer, extent, inner))
    values, places = (nest.output(position, (outer, k, inner)) for position in range(2))
    if k == 0:
        return
    largest = bool(int_attr(attrs, "largest", 1))
    if isinstance(k, int) and isinstance(extent, int) and extent <= _MOST_OF * k:
        _sorted(nest, x, values, places, largest)
        return
    with nest.points((outer, inner)) as (row, column):
        heap = Heap(nest, k, x.dtype, largest)
        with nest.for_(k) as i:
            heap.values[i], heap.places[i] = x[row, i, column], i
        with nest.for_(k // 2) as i:
            start = nest.let(number(k // 2 - 1, DType.I64) - i)
            heap.sift(heap.values[start], heap.places[start], start, number(k, DType.I64))
        blocks = (extent - k) // _BLOCK if inner == 1 else 0
        with nest.for_(blocks) as block:
            start, any_enters = block * _BLOCK + k, nest.variable(number(False, DType.BOOL))
            with nest.for_(_BLOCK, "lane") as lane:
                enters = heap.improves(x[row, start + lane, 0], heap.values[0])
                any_enters.value = maximum(any_enters.value, enters)
            with nest.if_(any_enters.value), nest.for_(_BLOCK) as i:
                heap.offer(x[row, start + i, 0], start + i)
        rest = k + blocks * _BLOCK
        with nest.for_(extent - rest) as i:
            heap.offer(x[row, i + rest, column], i + rest)
        with nest.for_(k) as i:
            last = nest.let(number(k - 1, DType.I64) - i)
            values[row, last, column] = heap.values[0]
            places[row, last, column] = heap.places[0]
            heap.sift(heap.values[last], heap.places[last], number(0, DType.I64), last)


def _threaded_nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops for devices with thousands of threads: sort each row in parallel, and copy
    the first k elements."""
    shape, attrs = nest.shape(0), attributes_of(node)
    axis, (k,) = axis_attr(attrs, len(shape), -1), nest.extents(1)
    outer, extent, inner = product(shape[:axis]), shape[axis], product(shape[axis + 1 :])
    x = nest.input(0, (outer, extent, inner))
    values, places = (nest.output(position, (outer, k, inner)) for position in range(2))
    largest = bool(int_attr(attrs, "largest", 1))

    def is_before(line: Scalar, left: Scalar, right: Scalar) -> Scalar:
        row, column = nest.unravel(line, (outer, inner))
        first, second = (nest.let(x[row, place(item), column]) for item in (left, right))
        return precedes(first, second, largest)

    order = sorted_by_threads(nest, outer * inner, extent, is_before)
    with (
        nest.independent(outer, "row") as row,
        nest.independent(k) as i,
        nest.independent(inner, "column") as column,
    ):
        item = nest.let(order[row * inner + column, i])
        values[row, i, column] = x[row, place(item), column]
        places[row, i, column] = cast(item, DType.I64)


def _lines(node: Node, data: Data) -> Extent:
    shape = node.outputs[0].type.shape
    axis = axis_attr(attributes_of(node), len(shape), -1)
    return product((*shape[:axis], *shape[axis + 1 :]))


def _sorted(nest: LoopBuilder, x: Tensor, values: Tensor, places: Tensor, largest: bool) -> None:
    """Write the loops that sort each row of `x` by merging runs of 1, 2, 4, … elements. Each step
    reads one half of a buffer and writes the other half. If two elements are equal, the element of
    the left run comes first, so the sort is stable."""
    outer, extent, inner = x.shape
    with nest.points((outer, inner)) as (row, column):
        runs = nest.local("runs", (2, extent), x.dtype)
        origins = nest.local("origins", (2, extent), DType.I64)
        with nest.for_(extent) as i:
            runs[0, i], origins[0, i] = x[row, i, column], i
        width, side = (nest.variable(number(n, DType.I64)) for n in (1, 0))
        with nest.while_(width.value < extent):
            start = nest.variable(number(0, DType.I64), "start")
            with nest.while_(start.value < extent):
                _merge(nest, runs, origins, side.value, start.value, width.value, largest)
                start.value += width.value * 2
            side.value = number(1, DType.I64) - side.value
            width.value *= 2
        with nest.for_(values.shape[1]) as i:
            values[row, i, column] = runs[side.value, i]
            places[row, i, column] = origins[side.value, i]


def _merge(
    nest: LoopBuilder,
    runs: Tensor,
    origins: Tensor,
    side: Scalar,
    start: Scalar,
    width: Scalar,
    largest: bool,
) -> None:
    """Write the loops that merge two adjacent sorted runs, which begin at `start` in the half
    `side` of `runs`, into the other half. Each has `width` elements; only the last may be
    shorter."""
    extent = runs.shape[1]
    middle, end = (nest.let(minimum(start + width * n, extent)) for n in (1, 2))
    left, right, target = (nest.variable(first) for first in (start, middle, start))
    other = nest.let(number(1, DType.I64) - side)
    with nest.while_(target.value < end):
        at_left, at_right = (nest.let(minimum(v.value, extent - 1)) for v in (left, right))
        first, second = nest.let(runs[side, at_left]), nest.let(runs[side, at_right])
        is_before = either(left.value >= middle, ranks_before(second, first, largest))
        takes_right = nest.let(both(right.value < end, is_before))
        runs[other, target.value] = where(takes_right, second, first)
        origins[other, target.value] = where(
            takes_right, origins[side, at_right], origins[side, at_left]
        )
        step = nest.let(cast(takes_right, DType.I64))
        right.value += step
        left.value += 1 - step
        target.value += 1


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "TopK",
        Kind.NEST,
        _infer,
        _reference,
        None,
        frozenset({1}),
        nest=_nest,
        threaded=Threaded(_threaded_nest, _lines),
    ),
)
