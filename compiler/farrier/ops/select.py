"""Operators whose output extent depends on the data (`data_dim.py`): NonZero, Compress, Unique."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from farrier.ir.dim import Extent, ceildiv, minimum, product
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops import threads
from farrier.ops.builder import attributes_of
from farrier.ops.data_dim import COUNT, data_extent
from farrier.ops.nest import LoopBuilder, Tensor
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Constants,
    Infer,
    Kind,
    Mismatch,
    NestRule,
    Operator,
    Reference,
    Threaded,
    Types,
    axis_attr,
    int_attr,
    present,
    required,
)
from farrier.ops.scalar import Scalar, both, cast, either, equal, maximum, number, unequal, where
from farrier.ops.threads import listed_by_threads, place, sorted_by_threads

_CHUNK = 1024  # The elements that a thread handles at a time.


def _list(
    nest: LoopBuilder,
    size: Extent,
    holds: Callable[[Scalar], Scalar],
    store: Callable[[Scalar, Scalar, Scalar], None],
) -> Scalar:
    """Write the loops that call `store(i, place, count)` for each i in [0, size) for which
    `holds(i)` is true. `place` is the number of such i before this one, and `count` the number of
    all of them. Return that count.

    A first pass counts the hits of each chunk; a second one lists each chunk from its own offset.
    """
    chunks = ceildiv(size, _CHUNK)
    counts = nest.shared("counts", (chunks,), DType.I64)
    with nest.for_(chunks, "chunk") as chunk:
        hits = nest.variable(number(0, DType.I64), "found")
        with nest.for_(_CHUNK) as i, nest.if_(chunk * _CHUNK + i < size):
            hits.value += cast(holds(chunk * _CHUNK + i), DType.I64)
        counts[chunk] = hits.value
    total = nest.variable(number(0, DType.I64), "total")
    with nest.for_(chunks) as chunk:
        found_here = nest.let(counts[chunk])
        counts[chunk] = total.value
        total.value += found_here
    count = nest.let(total.value, "count")
    with nest.independent(chunks, "chunk") as chunk:
        place = nest.variable(counts[chunk], "place")
        with nest.for_(_CHUNK) as i, nest.if_(chunk * _CHUNK + i < size):
            at = chunk * _CHUNK + i
            with nest.if_(holds(at)):
                store(at, place.value, count)
                place.value += 1
    return count


def _non_zero_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    hits = int(np.count_nonzero(constants[0])) if 0 in constants else None
    extent = data_extent(attrs, product(x.shape), hits)
    return (TensorType(DType.I64, (x.rank, extent)), COUNT)


def _non_zero_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    indices = np.argwhere(np.atleast_1d(x))[:, : x.ndim].T
    return (np.array(indices, np.int64, order="C"), np.asarray(indices.shape[1], np.int64))


def _non_zero_nest(nest: LoopBuilder, node: Node) -> None:
    shape = nest.shape(0)
    size = product(shape)
    x, out = nest.input(0, (size,)), nest.output(0, (len(shape) * size,))

    def store(at: Scalar, place: Scalar, count: Scalar) -> None:
        for axis, index in enumerate(nest.unravel(at, shape)):
            out[count * axis + place] = index

    nest.output(1)[()] = _list(nest, size, lambda at: cast(x[at], DType.BOOL), store)


def _compressed(attrs: Attrs, shape: tuple[Extent, ...]) -> tuple[Extent, Extent, Extent]:
    """Return the number of elements before the axis of a Compress, along it and after it. If the
    node has no axis, the tensor counts as flattened."""
    if "axis" not in attrs:
        return 1, product(shape), 1
    axis = axis_attr(attrs, len(shape))
    return product(shape[:axis]), shape[axis], product(shape[axis + 1 :])


def _compress_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, condition = required(types, 0), required(types, 1)
    _, along, _ = _compressed(attrs, x.shape)
    if condition.rank != 1 or condition.dtype is not DType.BOOL:
        raise Mismatch(f"the condition is {condition.shape} of {condition.dtype}")
    hits = None
    if 1 in constants and isinstance(along, int):
        hits = int(np.count_nonzero(constants[1][:along]))
    extent = data_extent(attrs, minimum(along, condition.shape[0]), hits)
    if "axis" not in attrs:
        return (TensorType(x.dtype, (extent,)), COUNT)
    axis = axis_attr(attrs, x.rank)
    return (TensorType(x.dtype, (*x.shape[:axis], extent, *x.shape[axis + 1 :])), COUNT)


def _compress_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, condition = present(arrays, 0), present(arrays, 1)
    axis = axis_attr(attrs, x.ndim) if "axis" in attrs else None
    along = x.size if axis is None else x.shape[axis]
    chosen = condition[:along]
    return (np.compress(chosen, x, axis), np.asarray(np.count_nonzero(chosen), np.int64))


def _compress_nest(nest: LoopBuilder, node: Node) -> None:
    outer, along, inner = _compressed(attributes_of(node), nest.shape(0))
    x, condition = nest.input(0, (outer, along, inner)), nest.input(1)
    bound = minimum(along, condition.shape[0])
    out = nest.output(0, (outer * bound * inner,))
    chosen = nest.shared("chosen", (bound,), DType.I64)

    def store(at: Scalar, place: Scalar, count: Scalar) -> None:
        chosen[place] = at

    count = _list(nest, bound, lambda at: condition[at], store)
    nest.output(1)[()] = count
    _take(nest, out, x, chosen, count, (outer, bound, inner))


def _unique_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    _, along, _ = _compressed(attrs, x.shape)
    distinct = None
    if 0 in constants:
        axis = axis_attr(attrs, x.rank) if "axis" in attrs else None
        distinct = _distinct(constants[0], axis)[1].size
    extent = data_extent(attrs, along, distinct)
    shape: tuple[Extent, ...] = (extent,)
    if "axis" in attrs:
        axis = axis_attr(attrs, x.rank)
        shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
    whole = TensorType(DType.I64, (extent,))
    return (TensorType(x.dtype, shape), whole, TensorType(DType.I64, (along,)), whole, COUNT)


def _distinct(x: Array, axis: int | None) -> tuple[Any, ...]:
    """Return np.unique's results: sorted items, index of the first occurrence of each, index of the
    item for each input element, and counts."""
    return np.unique(x, True, True, True, axis=axis)


def _unique_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    axis = axis_attr(attrs, x.ndim) if "axis" in attrs else None
    items, first, inverse, counts = _distinct(x, axis)
    inverse = inverse.reshape(-1)
    if not int_attr(attrs, "sorted", 1):
        order = np.argsort(first)
        items = np.take(items, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    results = (first, inverse, counts)
    return (items, *(np.asarray(r, np.int64) for r in results), np.asarray(first.size, np.int64))


def _unique_nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops of Unique: a merge sort makes equal items adjacent, and the first item of
    each group of equal items represents the group."""
    attrs = attributes_of(node)
    outer, along, inner = _compressed(attrs, nest.shape(0))
    x = nest.input(0, (outer, along, inner))
    out = nest.output(0, (outer * along * inner,))
    first, inverse, counts = nest.output(1, (along,)), nest.output(2), nest.output(3, (along,))
    items = _Items(nest, x)
    order = items.sorted()
    leader = nest.shared("leader", (along,), DType.I64)
    with nest.for_(along) as i:
        item = nest.let(order[i])
        is_new = nest.variable(equal(i, 0), "is_new")
        with nest.if_(i > 0):
            is_new.value = items.is_before(order[i - 1], item)
        leader[item] = item
        with nest.if_(equal(is_new.value, False)):
            leader[item] = leader[order[i - 1]]
    distinct = nest.variable(number(0, DType.I64), "found")
    with nest.for_(along) as i:
        item = i if not int_attr(attrs, "sorted", 1) else nest.let(order[i])
        with nest.if_(equal(leader[item], item)):
            first[distinct.value], counts[distinct.value] = item, 0
            inverse[item] = distinct.value
            distinct.value += 1
        with nest.else_():
            inverse[item] = inverse[leader[item]]
        counts[inverse[item]] = counts[inverse[item]] + 1
    count = nest.let(distinct.value, "count")
    nest.output(4)[()] = count
    _take(nest, out, x, first, count, (outer, along, inner))


def _threaded_unique_nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops of Unique for devices with thousands of threads: sort the items, and list the
    positions at which groups of equal items begin. The first item of a group represents it."""
    attrs = attributes_of(node)
    outer, along, inner = _compressed(attrs, nest.shape(0))
    x = nest.input(0, (outer, along, inner))
    out = nest.output(0, (outer * along * inner,))
    first, inverse, counts = nest.output(1, (along,)), nest.output(2), nest.output(3, (along,))
    if 0 in x.shape:
        nest.output(4)[()] = 0
        return
    items = _Items(nest, x)
    order = sorted_by_threads(
        nest, 1, along, lambda line, left, right: items.is_before(place(left), place(right))
    )
    begins = nest.shared("begins", (along,), threads.COUNT)
    starts = nest.shared("starts", (along,), threads.COUNT)
    with nest.independent(along) as i:
        begins[i] = 1
        with nest.if_(i > 0):
            before = order[0, maximum(i - 1, 0)]
            is_new = items.is_before(place(before), place(order[0, i]))
            begins[i] = threads.count(is_new)

    def start(at: Scalar, group: Scalar) -> None:
        starts[place(group)] = threads.count(at)

    groups = listed_by_threads(nest, along, lambda i: equal(begins[i], 1), start)
    nest.output(4)[()] = cast(groups, DType.I64)
    number_of = _numbers_of_groups(nest, order, starts, groups, bool(int_attr(attrs, "sorted", 1)))
    with nest.independent(along) as i, nest.if_(threads.count(i) < groups):
        group = nest.let(number_of[i])
        begin, end = starts[i], nest.variable(number(along, threads.COUNT), "end")
        with nest.if_(threads.count(i) + 1 < groups):
            end.value = starts[i + 1]
        first[place(group)] = cast(order[0, place(begin)], DType.I64)
        counts[place(group)] = cast(end.value - begin, DType.I64)
    with nest.independent(along) as i:
        here = threads.count(i)
        none = number(0, threads.COUNT)
        group = threads.search(nest, none, groups, lambda g: starts[place(g)] <= here) - 1
        inverse[place(order[0, i])] = cast(number_of[place(group)], DType.I64)
    _take(nest, out, x, first, cast(groups, DType.I64), (outer, along, inner))


def _numbers_of_groups(
    nest: LoopBuilder, order: Tensor, starts: Tensor, groups: Scalar, is_sorted: bool
) -> Tensor:
    """Return the output index of each of the `groups` groups of equal items. In the sorted `order`,
    the groups begin at `starts`. The output contains the groups either in sorted order or in the
    order in which they first occur in the input."""
    (along,) = starts.shape
    number_of = nest.shared("number_of", (along,), threads.COUNT)
    if is_sorted:
        with nest.independent(along) as i:
            number_of[i] = threads.count(i)
        return number_of
    group_of = nest.shared("group_of", (along,), threads.COUNT)
    with nest.independent(along) as i:
        group_of[i] = -1
    with nest.independent(along) as i, nest.if_(threads.count(i) < groups):
        group_of[place(order[0, place(starts[i])])] = threads.count(i)

    def store(item: Scalar, at: Scalar) -> None:
        number_of[place(group_of[item])] = at

    listed_by_threads(nest, along, lambda item: group_of[item] >= 0, store)
    return number_of


def _take(
    nest: LoopBuilder,
    out: Tensor,
    x: Tensor,
    chosen: Tensor,
    count: Scalar,
    shape: tuple[Extent, Extent, Extent],
) -> None:
    """Write the first `count` items listed in `chosen` to `out`; `shape` is [outer, maximum count,
    inner]."""
    outer, most, inner = shape
    with (
        nest.independent(outer, "line") as line,
        nest.independent(most, "place") as place,
        nest.if_(place < count),
    ):
        source, target = nest.let(chosen[place]), nest.let((line * count + place) * inner)
        with nest.for_(inner, "lane") as lane:
            out[target + lane] = x[line, source, lane]


class _Items:
    """The items of a tensor [outer, item, inner], compared lexicographically; NaN is the greatest
    value."""

    def __init__(self, nest: LoopBuilder, x: Tensor) -> None:
        self._nest, self._x = nest, x
        self._outer, self._count, self._inner = x.shape

    def _less(self, a: Scalar, b: Scalar) -> Scalar:
        if not self._x.dtype.is_float:
            return a < b
        return either(a < b, both(unequal(b, b), equal(a, a)))

    def is_before(self, first: Scalar, second: Scalar) -> Scalar:
        """Check whether the first item sorts before the second."""
        nest, first, second = self._nest, self._nest.let(first), self._nest.let(second)
        width = number(self._outer * self._inner, DType.I64)
        result = nest.variable(number(False, DType.BOOL), "is_before")
        at = nest.variable(number(0, DType.I64), "at")
        with nest.while_(at.value < width):
            line, place = nest.unravel(at.value, (self._outer, self._inner))
            a, b = nest.let(self._x[line, first, place]), nest.let(self._x[line, second, place])
            at.value += 1
            with nest.if_(self._less(a, b)):
                result.value = True
            with nest.if_(either(self._less(a, b), self._less(b, a))):
                at.value = width
        return result.value

    def sorted(self) -> Tensor:
        """Return the indices of the items in sorted order; the sort is stable."""
        nest, count = self._nest, number(self._count, DType.I64)
        order = nest.shared("order", (self._count,), DType.I64)
        merged = nest.shared("merged", (self._count,), DType.I64)
        with nest.for_(self._count) as i:
            order[i] = i
        run = nest.variable(number(1, DType.I64), "run")
        with nest.while_(run.value < count):
            low = nest.variable(number(0, DType.I64), "low")
            with nest.while_(low.value < count):
                self._merge(order, merged, nest.let(low.value), nest.let(run.value), count)
                low.value += run.value * 2
            with nest.for_(self._count) as i:
                order[i] = merged[i]
            run.value *= 2
        return order

    def _merge(
        self, order: Tensor, merged: Tensor, low: Scalar, run: Scalar, count: Scalar
    ) -> None:
        """Merge two adjacent sorted runs of `run` items of `order`, which begin at `low`, into
        `merged`."""
        nest = self._nest
        middle = nest.let(where(low + run < count, low + run, count))
        high = nest.let(where(middle + run < count, middle + run, count))
        left, right = nest.variable(low, "left"), nest.variable(middle, "right")
        to = nest.variable(low, "to")
        with nest.while_(to.value < high):
            takes_right = nest.variable(left.value >= middle, "takes_right")
            with nest.if_(both(left.value < middle, right.value < high)):
                takes_right.value = self.is_before(order[right.value], order[left.value])
            with nest.if_(takes_right.value):
                merged[to.value] = order[right.value]
                right.value += 1
            with nest.else_():
                merged[to.value] = order[left.value]
                left.value += 1
            to.value += 1


def _operator(
    name: str,
    infer: Infer,
    reference: Reference,
    nest: NestRule,
    threaded: Threaded | None = None,
) -> Operator:
    return Operator(
        name, Kind.NEST, infer, reference, None, nest=nest, threaded=threaded, counts=True
    )


OPERATORS: tuple[Operator, ...] = (
    _operator("Compress", _compress_infer, _compress_reference, _compress_nest),
    _operator("NonZero", _non_zero_infer, _non_zero_reference, _non_zero_nest),
    _operator(
        "Unique",
        _unique_infer,
        _unique_reference,
        _unique_nest,
        Threaded(_threaded_unique_nest, lambda node, data: 1),
    ),
)
