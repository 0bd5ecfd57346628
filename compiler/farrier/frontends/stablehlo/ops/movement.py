"""Rules of operations that move elements, and of sizes of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farrier.frontends.builder.images import first_axes
from farrier.frontends.stablehlo.module import Dense
from farrier.frontends.stablehlo.scope import LAST, Scope, Spread, Value
from farrier.frontends.stablehlo.table import hlo
from farrier.ir.dim import Extent
from farrier.ir.types import DType, Shape
from farrier.ops import NotSupported


@hlo("stablehlo.constant")
def constant(s: Scope) -> Value:
    value = s.attr("value")
    if not isinstance(value, Dense):
        raise NotSupported("a constant that is not dense")
    dtype = s.result_dtype
    if not value.is_splat:
        return s.b.constant(value.elements, dtype)
    ones = value.elements.reshape((1,) * s.result.rank)
    return Spread(s.b.constant(ones, dtype), tuple(size or 0 for size in value.type.sizes))


@hlo("stablehlo.broadcast_in_dim", takes_spreads=True)
def broadcast_in_dim(s: Scope, x: Value) -> Value:
    sizes = tuple(size or 0 for size in s.result.sizes)
    return _broadcast(s, x, s.ints_of("broadcast_dimensions", []), sizes)


@hlo("stablehlo.dynamic_broadcast_in_dim", takes_spreads=True)
def dynamic_broadcast_in_dim(s: Scope, x: Value, shape: Value) -> Value:
    axes = s.ints_of("broadcast_dimensions", [])
    name = s.full(shape)
    sizes = s.sizes_in(name)
    if sizes is not None:
        return _broadcast(s, x, axes, sizes)
    ones = _broadcast(s, x, axes, (1,) * s.result.rank, is_partial=True)
    assert isinstance(ones, Spread)
    return s.node("Expand", ones.name, s.cast(name, DType.I64))


def _broadcast(
    s: Scope, x: Value, axes: Sequence[int], sizes: Shape, *, is_partial: bool = False
) -> Value:
    """Return a tensor broadcast to the shape `sizes`: axis i of the tensor becomes axis `axes[i]`
    of the result. If `is_partial`, `sizes` is used only for axes in which the tensor has extent 1;
    other extents stay as they are."""
    own: Shape = s.shape(x if isinstance(x, str) else x.name)
    order = sorted(range(len(axes)), key=lambda place: axes[place])
    name = s.transpose(x if isinstance(x, str) else x.name, order)
    inner: list[Extent] = [1] * len(sizes)
    for place in order:
        inner[axes[place]] = own[place]
    if is_partial:
        sizes = tuple(size if size == 1 else sizes[axis] for axis, size in enumerate(inner))
    return Spread(s.reshape(name, inner), sizes)


@hlo("stablehlo.reshape", takes_spreads=True)
def reshape(s: Scope, x: Value) -> Value:
    sizes = tuple(size or 0 for size in s.result.sizes)
    if isinstance(x, Spread) and all(size == 1 for size in s.shape(x.name)):
        return Spread(s.reshape(x.name, [1] * len(sizes)), sizes)
    return s.reshape(s.full(x), sizes)


@hlo("stablehlo.dynamic_reshape")
def dynamic_reshape(s: Scope, x: str, shape: str) -> str:
    sizes = s.sizes_in(shape)
    if sizes is not None:
        return s.reshape(x, sizes)
    return s.node("Reshape", x, s.cast(shape, DType.I64), allowzero=1)


@hlo("stablehlo.transpose", takes_spreads=True)
def transpose(s: Scope, x: Value) -> Value:
    order = s.ints_of("permutation")
    if isinstance(x, Spread):
        return Spread(s.transpose(x.name, order), tuple(x.sizes[axis] for axis in order))
    return s.transpose(x, order)


@hlo("stablehlo.slice")
def slice_(s: Scope, x: str) -> str:
    starts, ends = s.ints_of("start_indices"), s.ints_of("limit_indices")
    steps = s.ints_of("strides", [1] * len(starts))
    shape = s.shape(x)
    axes = [
        axis
        for axis, (start, end, step) in enumerate(zip(starts, ends, steps, strict=True))
        if (start, step) != (0, 1) or shape[axis] != end
    ]
    if not axes:
        return x
    picked = [[values[axis] for axis in axes] for values in (starts, ends, steps)]
    return s.node("Slice", x, picked[0], picked[1], axes, picked[2])


@hlo("stablehlo.real_dynamic_slice")
def real_dynamic_slice(s: Scope, x: str, starts: str, ends: str, steps: str) -> str:
    bounds = [s.sizes_in(each) for each in (starts, ends, steps)]
    axes = list(range(s.rank(x)))
    if None in bounds:
        wide = [s.cast(each, DType.I64) for each in (starts, ends, steps)]
        return s.node("Slice", x, wide[0], wide[1], axes, wide[2])
    return s.node(
        "Slice", x, *(list(bounds[place] or ()) for place in (0, 1)), axes, list(bounds[2] or ())
    )


@hlo("stablehlo.concatenate")
def concatenate(s: Scope, *parts: str) -> str:
    axis = s.attr("dimension")
    if not all(s.b.has_channels_first(x) for x in parts):
        return s.concat(parts, axis)
    place = first_axes(s.rank(parts[0])).index(axis)
    return s.b.channels_last(s.concat([s.b.channels_first(x) for x in parts], place))


@hlo("stablehlo.reverse")
def reverse(s: Scope, x: str) -> str:
    axes = s.ints_of("dimensions")
    if not axes:
        return x
    count = len(axes)
    return s.node("Slice", x, [-1] * count, [-LAST] * count, axes, [-1] * count)


@hlo("stablehlo.pad")
def pad(s: Scope, x: str, value: str) -> str:
    low, high = s.ints_of("edge_padding_low"), s.ints_of("edge_padding_high")
    for axis, between in enumerate(s.ints_of("interior_padding", [0] * len(low))):
        if between:
            x = _with_gaps(s, x, value, axis, between)
    return _padded(s, x, value, low, high)


@hlo("stablehlo.dynamic_pad")
def dynamic_pad(s: Scope, x: str, value: str, low: str, high: str, between: str) -> str:
    gaps = s.sizes_in(between)
    if gaps is None or any(gap != 0 for gap in gaps):
        raise NotSupported("dynamic_pad between elements")
    pads = [s.cast(each, DType.I64) for each in (low, high)]
    return s.node("Pad", x, s.concat(pads, 0), value)


def _padded(s: Scope, x: str, value: str, low: Sequence[int], high: Sequence[int]) -> str:
    return s.node("Pad", x, [*low, *high], value) if any([*low, *high]) else x


def _with_gaps(s: Scope, x: str, value: str, axis: int, between: int) -> str:
    """Insert `between` copies of a value between the elements of an axis."""
    shape = s.shape(x)
    apart = s.reshape(x, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    high = [0] * (len(shape) + 1)
    high[axis + 1] = between
    wide = _padded(s, apart, value, [0] * len(high), high)
    joined = s.reshape(wide, [*shape[:axis], shape[axis] * (between + 1), *shape[axis + 1 :]])
    return s.slice(joined, axis, 0, -between)


@hlo("stablehlo.iota")
def iota(s: Scope) -> Value:
    return _iota(s, tuple(size or 0 for size in s.result.sizes))


@hlo("stablehlo.dynamic_iota")
def dynamic_iota(s: Scope, shape: str) -> Value:
    sizes = s.sizes_in(shape)
    if sizes is None:
        raise NotSupported("dynamic_iota of a size that values decide")
    return _iota(s, sizes)


def _iota(s: Scope, sizes: Shape) -> Value:
    axis, dtype = s.attr("iota_dimension"), s.result_dtype
    size = sizes[axis]
    if isinstance(size, int):
        numbers = s.b.constant(np.arange(size).astype(dtype.numpy), dtype)
    else:
        zero, step = (s.scalar(value, DType.I64) for value in (0, 1))
        end = s.node("Reshape", [size], s.ints([]))
        numbers = s.cast(s.node("Range", zero, end, step), dtype)
    inner: list[Extent] = [1] * len(sizes)
    inner[axis] = size
    return Spread(s.reshape(numbers, inner), sizes)


@hlo("stablehlo.get_dimension_size", takes_spreads=True)
def get_dimension_size(s: Scope, x: Value) -> str:
    size = s.node("Reshape", [s.shape(x)[s.attr("dimension")]], s.ints([]))
    return s.cast(size, s.result_dtype)


@hlo("stablehlo.bitcast_convert")
def bitcast_convert(s: Scope, x: str) -> str:
    if s.dtype(x).bits != s.result_dtype.bits:
        raise NotSupported("bitcast_convert between types of different widths")
    return s.node("BitCast", x, to=s.result_dtype.value)


@hlo("stablehlo.optimization_barrier", takes_spreads=True)
def optimization_barrier(s: Scope, *values: Value) -> tuple[Value, ...]:
    return values
