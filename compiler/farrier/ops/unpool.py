"""The positions of the maxima of a MaxPool, and the inverse of that pool: MaxPoolIndices,
MaxUnpool.

The index of a maximum is its offset in the input [n, c, spatial...], row-major. With
`storage_order` 1, the spatial axes are instead ordered with the first one varying fastest.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import Extent, product
from farrier.ir.dim import number as number_of
from farrier.ir.expr import Buffer, Expr, Reduce, ReduceOp
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops.builder import Builder, attributes_of, reduce
from farrier.ops.nest import LoopBuilder
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Kind,
    Mismatch,
    Operator,
    Types,
    as_ints,
    clash,
    int_attr,
    optional,
    present,
    required,
    static_extents,
)
from farrier.ops.scalar import Scalar, both, cast, equal, number, scalar, where
from farrier.ops.window import (
    Window,
    all_of,
    bounds_checks,
    positions,
    read,
    tap_names,
    window_of,
)


def _geometry(shape: tuple[Extent, ...], attrs: Attrs) -> tuple[Window, tuple[Extent, ...]]:
    """Return the pool's window, and the spatial extents of its output."""
    if len(shape) < 3:
        raise Mismatch(f"input {shape} has no spatial axis")
    window = window_of(attrs, shape[2:], None)
    return window, tuple(window.outputs(shape[2:], bool(attrs.get("ceil_mode", 0))))


def _strides(spatial: tuple[Extent, ...], attrs: Attrs) -> list[Extent]:
    """Return the increment of an index for a step along each spatial axis."""
    rank = len(spatial)
    if int_attr(attrs, "storage_order", 0):
        return [product(spatial[:axis]) for axis in range(rank)]
    return [product(spatial[axis + 1 :]) for axis in range(rank)]


def _indices_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    _, extents = _geometry(x.shape, attrs)
    return (TensorType(DType.I64, (*x.shape[:2], *extents)),)


def _indices_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    window, extents = _geometry(x.shape, attrs)
    spatial, strides = x.shape[2:], list(map(number_of, _strides(x.shape[2:], attrs)))
    shape = (*x.shape[:2], *map(number_of, extents))
    out, best = np.zeros(shape, np.int64), np.zeros(shape, x.dtype)
    is_placed = np.zeros(shape, bool)
    for tap in np.ndindex(*window.kernel):
        at: list[Any] = []
        valid: Any = True
        flat: Any = 0
        for axis, line in enumerate(np.indices(shape[2:], sparse=True)):
            first = tap[axis] * window.dilations[axis] - number_of(window.before[axis])
            position = line * window.strides[axis] + first
            valid = valid & (position >= 0) & (position < spatial[axis])
            at.append(np.clip(position, 0, spatial[axis] - 1))
            flat = flat + position * strides[axis]
        value = x[(slice(None), slice(None), *at)]
        if x.dtype.kind not in "iu":  # NaN counts as less than all numbers.
            value = np.where(value == value, value, -np.inf).astype(x.dtype)
        wins = valid & (~is_placed | (value > best))
        best, out = np.where(wins, value, best), np.where(wins, flat, out)
        is_placed |= valid
    planes = np.arange(math.prod(shape[:2])).reshape(*shape[:2], *(1 for _ in spatial))
    return (out + planes * math.prod(spatial),)


def _indices_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    """Declare two stages: the first computes the maximum of each window, the second the first
    element of the window that equals the maximum. NaN counts as less than all numbers, as in ONNX
    Runtime."""
    x, attrs = builder.operand(node, inputs, 0), attributes_of(node)
    window, extents = _geometry(x.shape, attrs)
    spatial, kernel = (
        x.shape[2:],
        dict(zip(tap_names(window.rank, "k"), window.kernel, strict=True)),
    )
    is_narrow = x.dtype.is_integer and x.dtype.bits < DType.I32.bits
    dtype = DType.I32 if is_narrow else x.dtype  # Schedules require lanes of 32 bits or more.
    lowest = ReduceOp.MAX.identity(x.dtype).value
    axes, shape = ("n", "c", *tap_names(window.rank, "o")), node.outputs[0].type.shape

    def element(lead: tuple[Expr, ...], at: tuple[Expr, ...], taps: tuple[Expr, ...]) -> Scalar:
        value = read(x, window, lead, at, taps, extents, lowest)
        counts = where(equal(value, value), value, lowest) if x.dtype.is_float else value
        return cast(counts, dtype)

    def largest(n: Expr, c: Expr, *at: Expr) -> Reduce:
        return reduce(ReduceOp.MAX, kernel, lambda *taps: element((n, c), at, taps))

    best = builder.local("max_pool", shape, dtype, largest, axes=axes)

    def first(n: Expr, c: Expr, *at: Expr) -> Reduce:
        def number_of_tap(*taps: Expr) -> Scalar:
            is_best = equal(element((n, c), at, taps), best(n, c, *at))
            halos = [(0, 0)] * window.rank
            position = positions(window, at, taps)
            checks = bounds_checks(window, position, spatial, extents, halos)
            if checks:
                is_best = both(scalar(all_of(checks)), is_best)
            place = functools.reduce(
                lambda outer, tap: e.add(e.mul(outer, tap[1]), tap[0]),
                zip(taps, window.kernel, strict=True),
                e.index(0),
            )
            return where(is_best, cast(scalar(place), DType.I32), math.prod(window.kernel))

        return reduce(ReduceOp.MIN, kernel, number_of_tap)

    tap = builder.local("tap", shape, DType.I32, first, axes=axes)

    def index(n: Expr, c: Expr, *at: Expr) -> Scalar:
        """Return the offset in the input of the maximum of the window at output (n, c, *at)."""
        rest, place = tap(n, c, *at), number(0, DType.I64)
        for axis in reversed(range(window.rank)):
            extent = window.kernel[axis]
            inner = rest / extent if axis else number(0, DType.I32)
            along = rest - inner * extent
            steps = cast(along, DType.I64) * window.dilations[axis] - window.before[axis]
            line = steps + scalar(e.mul(at[axis], window.strides[axis]))
            place, rest = place + line * _strides(spatial, attrs)[axis], inner
        plane = e.add(e.mul(n, x.shape[1]), c)
        return place + scalar(e.mul(plane, product(spatial)))

    return (builder.output(node, index, hint="indices", axes=axes),)


def _inside(position: list[Scalar], extents: tuple[Extent, ...]) -> Scalar:
    inside = number(True, DType.BOOL)
    for at, extent in zip(position, extents, strict=True):
        inside = both(inside, both(at >= 0, at < extent))
    return inside


def _dot(position: list[Scalar], strides: list[Extent]) -> Scalar:
    total = number(0, DType.I64)
    for at, stride in zip(position, strides, strict=True):
        total = total + at * stride
    return total


def _unpooled(types: Types, attrs: Attrs) -> tuple[Extent, ...]:
    """Return the shape that the input of the pool had, computed from the window. MaxUnpool has this
    shape as its output unless the node specifies another."""
    x, rank = required(types, 0), required(types, 0).rank - 2
    kernel = as_ints(attrs["kernel_shape"])
    strides = as_ints(attrs.get("strides", (1,) * rank))
    pads = as_ints(attrs.get("pads", (0,) * (2 * rank)))
    if rank < 1 or len(kernel) != rank or len(strides) != rank or len(pads) != 2 * rank:
        raise Mismatch(f"a window {kernel} with strides {strides} over an input {x.shape}")
    spatial = (
        (x.shape[2 + a] - 1) * strides[a] - pads[a] - pads[rank + a] + kernel[a]
        for a in range(rank)
    )
    return (*x.shape[:2], *spatial)


def _unpool_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, indices = required(types, 0), required(types, 1)
    if clash(indices.shape, x.shape) or indices.dtype is not DType.I64:
        raise Mismatch(f"indices {indices.shape} of {indices.dtype} for an input {x.shape}")
    shape = _unpooled(types, attrs)
    wanted = static_extents(types, constants, 2, "output shape")
    if wanted is not None and (len(wanted) != x.rank or clash(wanted[:2], x.shape[:2])):
        raise Mismatch(f"output shape {wanted} for an input {x.shape}")
    return (TensorType(x.dtype, wanted or shape),)


def _unpool_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, indices, wanted_shape = present(arrays, 0), present(arrays, 1), optional(arrays, 2)
    shape = tuple(map(number_of, _unpooled([TensorType(DType.F32, x.shape)], attrs)))
    wanted = shape if wanted_shape is None else tuple(int(v) for v in wanted_shape)
    size, planes = math.prod(shape[2:]), math.prod(shape[:2])
    plane = np.repeat(np.arange(planes), math.prod(x.shape[2:]))
    at = indices.reshape(-1) - plane * size
    is_here = (at >= 0) & (at < size)
    whole = np.zeros((planes, size), x.dtype)
    whole[plane[is_here], at[is_here]] = x.reshape(-1)[is_here]
    out = np.zeros(wanted, x.dtype)
    shared = tuple(slice(0, min(sizes)) for sizes in zip(shape, wanted, strict=True))
    out[shared] = whole.reshape(shape)[shared]
    return (out,)


def _unpool_nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops of MaxUnpool: zeros, then the elements of each plane at their indices. An
    index that points outside of the element's plane is ignored."""
    attrs, out_shape = attributes_of(node), node.outputs[0].type.shape
    types = [value.type if value is not None else None for value in node.inputs]
    shape, spatial, planes = _unpooled(types, attrs), out_shape[2:], product(out_shape[:2])
    count = product(nest.shape(0)[2:])
    x, indices = nest.input(0, (planes, count)), nest.input(1, (planes, count))
    out = nest.output(0, (planes, product(spatial)))
    with nest.for_(planes, "plane") as plane:
        with nest.for_(product(spatial), "lane") as lane:
            out[plane, lane] = 0
        with nest.for_(count) as i:
            at = nest.let(indices[plane, i] - plane * product(shape[2:]))
            with nest.if_(both(at >= 0, at < product(shape[2:]))):
                position = list(nest.unravel(at, shape[2:]))
                with nest.if_(_inside(position, spatial)):
                    strides = [product(spatial[axis + 1 :]) for axis in range(len(spatial))]
                    out[plane, nest.let(_dot(position, strides))] = x[plane, i]


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "MaxPoolIndices", Kind.REDUCTION, _indices_infer, _indices_reference, _indices_compute
    ),
    Operator(
        "MaxUnpool",
        Kind.NEST,
        _unpool_infer,
        _unpool_reference,
        None,
        frozenset({2}),
        nest=_unpool_nest,
    ),
)
