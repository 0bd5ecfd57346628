"""Scattered stores: ScatterElements, ScatterND, TensorScatter. Of several updates of an element,
the last one wins, or all are combined in order if the attribute `reduction` is set.

A scatter with the attribute `IN_PLACE` writes only its updates: its result shares the memory of its
first operand, which no other node reads. Overwrite is a TensorScatter of that kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import Extent, ceildiv, is_less, product, typical
from farrier.ir.dim import number as number_of
from farrier.ir.expr import BinaryOp, Buffer, Expr
from farrier.ir.graph import Node, attributes
from farrier.ir.types import DType, TensorType
from farrier.ops import positions, threads
from farrier.ops.builder import Builder, attributes_of
from farrier.ops.indexing import bounded, checked_indices, position
from farrier.ops.nest import LoopBuilder, Tensor
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Data,
    Kind,
    Mismatch,
    Operator,
    Threaded,
    Types,
    axis_attr,
    clash,
    optional,
    present,
    required,
)
from farrier.ops.scalar import (
    Scalar,
    binary,
    both,
    cast,
    equal,
    maximum,
    minimum,
    number,
    remainder,
    scalar,
    unequal,
    where,
)
from farrier.ops.threads import place
from farrier.ops.traits import Trait

IN_PLACE = "in_place"
_JOINS = {
    "add": (BinaryOp.ADD, np.add),
    "mul": (BinaryOp.MUL, np.multiply),
    "min": (BinaryOp.MIN, np.minimum),
    "max": (BinaryOp.MAX, np.maximum),
}
_BLOCK = 1024  # The updates of a block are listed before those in the range are joined.
_AHEAD = 8  # Updates are prefetched this number of updates ahead.
_LINE = 64  # bytes
_STRIP = 32  # The number of independent lines that share one pass over the indices.
# The fewest updated elements for which a second thread pays, since each thread reads all indices.
_WORTH_SHARING = 16 << 10
_WIDE = 32  # The shortest row for which a second thread pays.


def _reduction(attrs: Attrs) -> str:
    name = str(attrs.get("reduction", "none"))
    if name != "none" and name not in _JOINS:
        raise Mismatch(f"reduction is {name!r}, and must be none or one of {', '.join(_JOINS)}")
    return name


def _joined(reduction: str, old: Scalar, new: Scalar) -> Scalar:
    return new if reduction == "none" else binary(_JOINS[reduction][0], old, new)


def _scatter(reduction: str, out: Array, at: tuple[Array, ...], updates: Array) -> None:
    if reduction == "none":
        out[at] = updates
    else:
        _JOINS[reduction][1].at(out, at, updates)


def _copy(nest: LoopBuilder, source: Tensor, target: Tensor) -> None:
    """Write a loop that copies all elements from one flat tensor to another."""
    with nest.for_(target.size) as at:
        target[at] = source[at]


def _elements_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, indices, updates = required(types, 0), checked_indices(types), required(types, 2)
    axis = axis_attr(attrs, x.rank)
    _reduction(attrs)
    fits = x.rank == indices.rank and all(
        wanted <= extent
        for a, (wanted, extent) in enumerate(zip(indices.shape, x.shape, strict=True))
        if a != axis
    )
    if not fits or clash(updates.shape, indices.shape) or updates.dtype is not x.dtype:
        raise Mismatch(
            f"indices {indices.shape} and updates {updates.shape} of {updates.dtype} do not fit an "
            f"input {x.shape} of {x.dtype} beside axis {axis}"
        )
    return (TensorType(x.dtype, x.shape),)


def _elements_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, indices, updates = present(arrays, 0), present(arrays, 1), present(arrays, 2)
    axis, out = axis_attr(attrs, x.ndim), x.copy()
    grid: list[Array] = list(np.indices(indices.shape))
    grid[axis] = bounded(indices, x.shape[axis])
    _scatter(_reduction(attrs), out, tuple(grid), updates)
    return (out,)


def _elements_nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops of ScatterElements: lines along the axis are independent of each other, and a
    strip of neighbouring lines is processed together."""
    attrs, shape = attributes_of(node), nest.input(1).shape
    out_shape = node.outputs[0].type.shape
    axis, reduction = axis_attr(attrs, len(shape)), _reduction(attrs)
    size = product(out_shape)
    if not node.attr(IN_PLACE):
        _copy(nest, nest.input(0, (size,)), nest.output(0, (size,)))
    indices, updates, out = nest.input(1), nest.input(2), nest.output(0, out_shape)
    lead, rest = shape[:axis], shape[axis + 1 :]
    columns = product(rest)
    width = min(columns, _STRIP) if isinstance(columns, int) else _STRIP
    if not width:
        return
    lines, strips = product(lead), ceildiv(columns, width)
    with (
        nest.independent(lines, "line") as line,
        nest.independent(strips, "strip") as strip,
        nest.for_(shape[axis]) as step,
        nest.for_(width) as i,
        nest.if_(strip * width + i < columns),
    ):
        before, behind = nest.unravel(line, lead), nest.unravel(strip * width + i, rest)
        chosen = nest.let(indices[(*before, step, *behind)])
        at = (*before, nest.let(position(chosen, out_shape[axis])), *behind)
        out[at] = _joined(reduction, out[at], updates[(*before, step, *behind)])


def _threaded_elements_nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops of ScatterElements for devices with thousands of threads: the updates of each
    line are sorted by target position, and each thread applies all updates of one element."""
    attrs, shape = attributes_of(node), nest.shape(1)
    out_shape = node.outputs[0].type.shape
    axis, reduction = axis_attr(attrs, len(shape)), _reduction(attrs)
    size, extent = product(out_shape), out_shape[axis]
    if not node.attr(IN_PLACE):
        with nest.independent(size) as at:
            nest.output(0, (size,))[at] = nest.input(0, (size,))[at]
    indices, updates, out = nest.input(1), nest.input(2), nest.output(0, out_shape)
    beside = (*shape[:axis], *shape[axis + 1 :])
    lines, steps = product(beside), shape[axis]
    if 0 in shape:
        return
    targets = nest.shared("targets", (lines, steps), threads.COUNT)

    def element(line: Scalar, step: Scalar) -> tuple[Scalar, ...]:
        others = nest.unravel(line, beside)
        return (*others[:axis], step, *others[axis:])

    with nest.independent(lines, "line") as line, nest.independent(steps, "step") as step:
        targets[line, step] = threads.count(position(indices[element(line, step)], extent))
    _join_sorted(
        nest,
        targets,
        1,
        reduction,
        lambda line, step, _: updates[element(line, step)],
        lambda line, target, _: (out, element(line, target)),
    )


def _join_sorted(
    nest: LoopBuilder,
    targets: Tensor,
    width: Extent,
    reduction: str,
    update: Callable[[Scalar, Scalar, Scalar], Scalar],
    element: Callable[[Scalar, Scalar, Scalar], tuple[Tensor, tuple[Scalar, ...]]],
) -> None:
    """Write loops that apply updates to an output. One thread applies all updates of the same
    element, in their order. `targets`, [lines, updates], has the position within its line that each
    update modifies, sorted.

    An update has `width` values. `update(line, number, lane)` returns one of them, and
    `element(line, target, lane)` the output and the indices of the element it modifies.
    """
    lines, count = targets.shape
    order = threads.sorted_by_threads(
        nest,
        lines,
        count,
        lambda line, left, right: targets[line, place(left)] < targets[line, place(right)],
    )

    def target(line: Scalar, at: Scalar) -> Scalar:
        return targets[line, place(order[line, at])]

    with (
        nest.independent(lines, "line") as line,
        nest.independent(count, "first") as first,
        nest.independent(width, "lane") as lane,
    ):
        here = nest.let(target(line, first), "target")
        leads = nest.variable(equal(first, 0), "leads")
        with nest.if_(first > 0):
            leads.value = unequal(target(line, maximum(first - 1, 0)), here)
        with nest.if_(leads.value):
            out, indices = element(line, place(here), lane)
            joined = nest.variable(out[indices], "joined")
            at, is_left = nest.variable(threads.count(first)), nest.variable(equal(first, first))
            with nest.while_(is_left.value):
                item = nest.let(place(order[line, place(at.value)]))
                joined.value = _joined(reduction, joined.value, update(line, item, lane))
                at.value += 1
                is_left.value = at.value < count
                with nest.if_(is_left.value):
                    is_left.value = equal(target(line, place(at.value)), here)
            out[indices] = joined.value


def _nd(types: Types) -> tuple[TensorType, TensorType, int]:
    """Return ScatterND's input type, its indices' type, and the number of axes that an index tuple
    (a row along the last axis of the indices) addresses."""
    x, indices, updates = required(types, 0), checked_indices(types), required(types, 2)
    depth = number_of(indices.shape[-1]) if indices.rank else 0
    wanted = (*indices.shape[:-1], *x.shape[depth:])
    if not 1 <= depth <= x.rank or clash(updates.shape, wanted) or updates.dtype is not x.dtype:
        raise Mismatch(
            f"indices {indices.shape} and updates {updates.shape} of {updates.dtype} do not fit an "
            f"input {x.shape} of {x.dtype}"
        )
    return x, indices, depth


def _nd_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, _, _ = _nd(types)
    _reduction(attrs)
    return (TensorType(x.dtype, x.shape),)


def _nd_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, indices, updates = present(arrays, 0), present(arrays, 1), present(arrays, 2)
    out = x.copy()
    at = tuple(bounded(indices[..., n], x.shape[n]) for n in range(indices.shape[-1]))
    _scatter(_reduction(attrs), out, at, updates)
    return (out,)


def _nd_nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops of ScatterND. Each update is a row of `width` elements; an example is the sum
    of rows by segment. The rows of the output are divided into one range for each thread. Each
    thread reads all updates in order and applies those of its own range."""
    shape, reduction = node.outputs[0].type.shape, _reduction(attributes_of(node))
    named = nest.input(1).shape
    depth, count = number_of(named[-1]), product(named[:-1])
    rows, width = product(shape[:depth]), product(shape[depth:])
    data, out = nest.input(0, (rows, width)), nest.output(0, (rows, width))
    updates, indices = nest.input(2, (count, width)), nest.input(1, (count, depth))

    def target(update: Scalar) -> Scalar:
        row = number(0, out.dtype)
        for axis in range(depth):
            at = position(nest.let(indices[update, axis]), shape[axis])
            row = row * shape[axis] + at if axis else at
        return nest.let(row)

    def join(update: Scalar, row: Scalar) -> None:
        with nest.for_(width, "lane") as lane:
            out[row, lane] = _joined(reduction, out[row, lane], updates[update, lane])

    is_worth = typical(width) >= _WIDE and typical(count * width) >= _WORTH_SHARING
    ranges = nest.choice("ranges", rows) if is_worth else 1
    each = ceildiv(rows, ranges)
    with nest.independent(ranges, "part") as part:
        first = part * each
        end = nest.let(minimum(first + each, rows), "end")
        if not node.attr(IN_PLACE):
            with (
                nest.for_(each) as row,
                nest.if_(first + row < end),
                nest.for_(width, "lane") as lane,
            ):
                out[first + row, lane] = data[first + row, lane]
        if isinstance(ranges, int):
            with nest.for_(count) as update:
                join(update, target(update))
            return
        with nest.if_(scalar(e.index(ranges)) < 2), nest.for_(count) as update:
            join(update, target(update))
        with nest.else_():
            _join_listed(nest, updates, (first, end), target, join)


def _threaded_nd_nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops of ScatterND for devices with thousands of threads: updates are sorted by
    target row, and each thread applies all updates of one element."""
    shape, reduction = node.outputs[0].type.shape, _reduction(attributes_of(node))
    named = nest.shape(1)
    depth, count = number_of(named[-1]), product(named[:-1])
    rows, width = product(shape[:depth]), product(shape[depth:])
    data, out = nest.input(0, (rows, width)), nest.output(0, (rows, width))
    updates, indices = nest.input(2, (count, width)), nest.input(1, (count, depth))
    if not node.attr(IN_PLACE):
        with nest.independent(rows, "row") as row, nest.independent(width, "lane") as lane:
            out[row, lane] = data[row, lane]
    if 0 in (count, rows, width):
        return
    targets = nest.shared("targets", (1, count), threads.COUNT)
    with nest.independent(count, "update") as update:
        target = number(0, threads.COUNT)
        for axis in range(depth):
            at = threads.count(position(indices[update, axis], shape[axis]))
            target = target * shape[axis] + at if axis else at
        targets[0, update] = target
    _join_sorted(
        nest,
        targets,
        width,
        reduction,
        lambda _, update, lane: updates[update, lane],
        lambda _, row, lane: (out, (row, lane)),
    )


def _elements_lines(node: Node, data: Data) -> Extent:
    """Return the number of units of work that ScatterElements can process in parallel: strips of
    neighbouring lines along the axis."""
    assert node.inputs[1] is not None
    shape = node.inputs[1].type.shape
    axis = axis_attr(attributes_of(node), len(shape))
    return product(shape[:axis]) * ceildiv(product(shape[axis + 1 :]), _STRIP)


def _join_listed(
    nest: LoopBuilder,
    updates: Tensor,
    bounds: tuple[Scalar, Scalar],
    target: Callable[[Scalar], Scalar],
    join: Callable[[Scalar, Scalar], None],
) -> None:
    """Write loops that apply, by `join(update, row)`, the updates whose row `target(update)` is in
    `bounds` (first, end). The updates of a block are first collected in a list without branches,
    since a branch for each update would be mispredicted."""
    (first, end), (count, width) = bounds, updates.shape
    listed, places = (nest.local(name, (_BLOCK,), DType.I64) for name in ("listed", "places"))
    with nest.for_(ceildiv(count, _BLOCK)) as block:
        row_count = nest.variable(number(0, DType.I64), "found")
        with nest.for_(_BLOCK) as i, nest.if_(block * _BLOCK + i < count):
            update = block * _BLOCK + i
            row = target(update)
            listed[row_count.value], places[row_count.value] = update, row
            row_count.value += cast(both(first <= row, row < end), DType.I64)
        at = nest.variable(number(0, DType.I64), "at")
        with nest.while_(at.value < row_count.value):
            ahead = nest.let(listed[minimum(at.value + _AHEAD, row_count.value - 1)])
            line = _LINE // updates.dtype.nbytes
            with nest.for_(ceildiv(width, line)) as i:
                updates.prefetch(ahead, i * line)
            join(nest.let(listed[at.value]), nest.let(places[at.value]))
            at.value += 1


def _cache_axis(types: Types, attrs: Attrs) -> int:
    cache, update = required(types, 0), required(types, 1)
    axis = axis_attr(attrs, cache.rank, -2)
    outside = [a for a in range(cache.rank) if a != axis]
    fits = cache.rank == update.rank and all(cache.shape[a] == update.shape[a] for a in outside)
    if not fits or axis == 0 or is_less(cache.shape[axis], update.shape[axis]):
        raise Mismatch(f"an update {update.shape} of a cache {cache.shape} along axis {axis}")
    if str(attrs.get("mode", "linear")) not in ("linear", "circular"):
        raise Mismatch(f"mode is {attrs['mode']!r}")
    return axis


def _cache_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    _cache_axis(types, attrs)
    cache = required(types, 0)
    starts = types[2] if len(types) > 2 else None
    if starts is not None and clash(starts.shape, cache.shape[:1]):
        raise Mismatch(f"write indices {starts.shape} for {cache.shape[0]} sequences")
    return (TensorType(cache.dtype, cache.shape),)


def _cache_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    cache, update, starts = present(arrays, 0), present(arrays, 1), optional(arrays, 2)
    axis, out = axis_attr(attrs, cache.ndim, -2), cache.copy()
    length, room = update.shape[axis], cache.shape[axis]
    for sequence in range(cache.shape[0]):
        first = 0 if starts is None else int(starts[sequence])
        steps = first + np.arange(length)
        if attrs.get("mode", "linear") == "circular":
            steps %= room
        inside = (steps >= 0) & (steps < room)
        target = np.moveaxis(out[sequence], axis - 1, 0)
        target[steps[inside]] = np.moveaxis(update[sequence], axis - 1, 0)[inside]
    return (out,)


def _cache_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    """Declare the stage of TensorScatter, which writes a range of positions of a cache. Along the
    axis, an element whose distance from the first written position is less than the length of the
    update has the value of the update. All other elements keep the value of the cache."""
    cache, update = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    starts = builder.optional(node, inputs, 2)
    axis = axis_attr(attributes_of(node), cache.rank, -2)
    is_circular = node.attr("mode", "linear") == "circular"

    def body(*at: Expr) -> Scalar:
        first = number(0, DType.I64) if starts is None else cast(starts(at[0]), DType.I64)
        step = scalar(at[axis]) - first
        if is_circular:
            step = remainder(step, cache.shape[axis])
        is_new = both(step >= 0, step < update.shape[axis])
        source = (step.expr if a == axis else index for a, index in enumerate(at))
        return where(is_new, update(*source), cache(*at))

    return (builder.output(node, body, hint="tensor_scatter"),)


def _overwrite_nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops of Overwrite: each step of the update is copied to a distinct position of the
    cache."""
    shape, room_shape = nest.input(1).shape, node.outputs[0].type.shape
    axis = axis_attr(attributes_of(node), len(shape), -2)
    lead, length, room = shape[:axis], shape[axis], room_shape[axis]
    lines, width = product(lead), product(shape[axis + 1 :])
    update = nest.input(1, (lines, length, width))
    out, starts = nest.output(0, (lines, room, width)), nest.optional(2)
    is_circular = node.attr("mode", "linear") == "circular"
    if 0 in (lines, length, width):
        return
    with nest.for_(lines, "line") as line, nest.independent(length, "step") as step:
        sequence = nest.unravel(line, lead)[0]
        slot = step if starts is None else cast(starts[sequence], DType.I64) + step
        slot = nest.let(remainder(slot, room) if is_circular else slot)
        with nest.if_(both(slot >= 0, slot < room)), nest.for_(width, "lane") as lane:
            out[line, slot, lane] = update[line, step, lane]


def _updating(node: Node) -> Node | None:
    """Return the variant of a scatter that overwrites its first operand in place. Return None if
    the scatter combines old and new elements: if a call fails and is repeated, in-place updates
    would be applied twice."""
    if node.attr("reduction", "none") != "none":
        return None
    attrs = {**dict(node.attrs), IN_PLACE: 1}
    return dataclasses.replace(node, attrs=attributes(**attrs))


_OVERWRITE = Operator(
    "Overwrite",
    Kind.NEST,
    _cache_infer,
    _cache_reference,
    None,
    nest=_overwrite_nest,
    traits=Trait.IN_PLACE,
)
SCATTER_ELEMENTS = Operator(
    "ScatterElements",
    Kind.NEST,
    _elements_infer,
    _elements_reference,
    None,
    nest=_elements_nest,
    threaded=Threaded(_threaded_elements_nest, _elements_lines),
    in_place=_updating,
    positions=positions.along_axis,
)
OPERATORS: tuple[Operator, ...] = (
    Operator(
        "TensorScatter",
        Kind.INJECTIVE,
        _cache_infer,
        _cache_reference,
        _cache_compute,
        in_place=lambda node: dataclasses.replace(node, op=_OVERWRITE.name),
    ),
    _OVERWRITE,
    SCATTER_ELEMENTS,
    Operator(
        "ScatterND",
        Kind.NEST,
        _nd_infer,
        _nd_reference,
        None,
        nest=_nd_nest,
        threaded=Threaded(_threaded_nd_nest, lambda node, data: 1),
        in_place=_updating,
        positions=positions.by_rows,
    ),
)
