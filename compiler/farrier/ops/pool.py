"""Pooling: each window is reduced to one element per channel. x is [n, c, spatial...]."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import overload

import ml_dtypes
import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import is_less, number
from farrier.ir.expr import Buffer, Expr, Reduce, ReduceOp
from farrier.ir.graph import Node
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops import layout
from farrier.ops.builder import Builder, Operand, attributes_of, reduce, total, without_halo
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
    int_attr,
    present,
    required,
)
from farrier.ops.scalar import Scalar, cast, magnitude, power, scalar, sqrt
from farrier.ops.traits import Moves, Trait
from farrier.ops.window import (
    Window,
    padded,
    read,
    tap_names,
    tap_views,
    valid_taps,
    window_by_attributes,
    window_of,
)


def _spatial(types: Types) -> Shape:
    x = required(types, 0)
    if x.rank < 3:
        raise Mismatch(f"input {x.shape} has no spatial axis")
    return x.shape[2:]


def _explicit(types: Types, attrs: Attrs) -> Attrs:
    return window_of(attrs, _spatial(types), None).explicit(attrs)


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, spatial = required(types, 0), _spatial(types)
    window = window_of(attrs, spatial, None)
    extents = window.outputs(spatial, bool(attrs.get("ceil_mode", 0)))
    return (TensorType(x.dtype, (*x.shape[:2], *extents)),)


def _padding(dtype: DType) -> float | int:
    """Return the lowest number of a dtype, which is the maximum of a window that covers only
    padding.

    This is ONNX Runtime's result; the specification leaves it open.
    """
    if dtype.is_float:
        return float(ml_dtypes.finfo(dtype.numpy).min)  # type: ignore[no-untyped-call]
    return ReduceOp.MAX.identity(dtype).value


def _max_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    window, extents = _window(x.shape, attrs)
    source = padded(x, window, extents, _padding(DType.from_numpy(x.dtype)))
    views = (view for _, view in tap_views(source, window, extents))
    return (functools.reduce(np.maximum, views).copy(),)


@overload
def _window(shape: tuple[int, ...], attrs: Attrs) -> tuple[Window, tuple[int, ...]]: ...
@overload
def _window(shape: Shape, attrs: Attrs) -> tuple[Window, Shape]: ...
def _window(shape: Shape, attrs: Attrs) -> tuple[Window, Shape]:
    window = window_of(attrs, shape[2:], None)
    return window, window.outputs(shape[2:], bool(attrs.get("ceil_mode", 0)))


def _max_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x = builder.operand(node, inputs, 0)
    window, extents = _window(x.shape, attributes_of(node))
    kernel = dict(zip(tap_names(window.rank, "k"), window.kernel, strict=True))

    # Vectors of narrow integers have more elements than schedules of reductions count on.
    is_narrow = x.dtype.is_integer and x.dtype.bits < DType.I32.bits
    dtype = DType.I32 if is_narrow else x.dtype

    def body(n: Expr, c: Expr, *at: Expr) -> Reduce:
        fill = _padding(x.dtype)
        return reduce(
            ReduceOp.MAX,
            kernel,
            lambda *taps: cast(read(x, window, (n, c), at, taps, extents, fill), dtype),
        )

    axes = ("n", "c", *tap_names(window.rank, "o"))
    if not is_narrow:
        return (builder.output(node, body, hint="max_pool", axes=axes),)
    kind = node.outputs[0].type
    layout = without_halo(kind.layout)
    wide = builder.local("max_pool_i32", kind.shape, dtype, body, axes=axes, layout=layout)
    narrow = builder.output(node, lambda *at: cast(wide(*at), x.dtype), hint="max_pool", axes=axes)
    return (narrow,)


def _sums(x: Array, attrs: Attrs) -> Array:
    window, extents = _window(x.shape, attrs)
    views = tap_views(padded(x, window, extents, 0), window, extents)
    result = np.zeros((*x.shape[:2], *extents), x.dtype)
    for _, view in views:
        result += view
    return result


def _average_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    window, extents = _window(x.shape, attrs)
    inside = np.ones((1, 1, *x.shape[2:]), x.dtype)
    if attrs.get("count_include_pad", 0):
        before, after = map(number, window.before), map(number, window.after)
        widths = [(0, 0), (0, 0), *zip(before, after, strict=True)]
        inside = np.pad(inside, widths, constant_values=1)
        bare = Window(window.kernel, window.strides, window.dilations, *((0,) * window.rank,) * 2)
    else:
        bare = window
    counts = np.zeros((1, 1, *extents), x.dtype)
    for _, view in tap_views(padded(inside, bare, extents, 0), bare, extents):
        counts += view
    return (_sums(x, attrs) / counts,)


def _window_sum(
    builder: Builder,
    node: Node,
    inputs: Buffers,
    element: Callable[[Scalar], Scalar] = lambda value: value,
) -> tuple[Operand, Window]:
    """Declare a stage that sums `element(x)` over the elements x of each window. Return the result
    of the stage, and the window."""
    x, out = builder.operand(node, inputs, 0), node.outputs[0].type
    window, extents = _window(x.shape, attributes_of(node))
    kernel = dict(zip(tap_names(window.rank, "k"), window.kernel, strict=True))

    def body(n: Expr, c: Expr, *at: Expr) -> Reduce:
        return total(kernel, lambda *taps: element(read(x, window, (n, c), at, taps, extents, 0)))

    axes = ("n", "c", *tap_names(window.rank, "o"))
    layout = without_halo(out.layout)
    return builder.local("pool_sum", out.shape, out.dtype, body, axes=axes, layout=layout), window


def _average_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    sums, window = _window_sum(builder, node, inputs)
    shape = builder.operand(node, inputs, 0).shape[2:]
    extents = node.outputs[0].type.shape[2:]
    with_pads = bool(node.attr("count_include_pad", 0))

    def body(n: Expr, c: Expr, *at: Expr) -> Scalar:
        fixed = 1
        varying: list[Expr] = []
        for axis in range(window.rank):
            low, high = (
                (-window.before[axis], shape[axis] + window.after[axis])
                if with_pads
                else (0, shape[axis])
            )
            last = (extents[axis] - 1) * window.strides[axis] - window.before[axis]
            whole = last + window.reach(axis)
            if not is_less(-window.before[axis], low) and is_less(whole, high + 1):
                fixed *= window.kernel[axis]
            else:
                varying.append(valid_taps(window, axis, at[axis], low, high))
        count = functools.reduce(e.mul, varying, e.index(fixed))
        value = sums(n, c, *at)
        return value / (cast(scalar(count), value.dtype) if varying else fixed)

    axes = ("n", "c", *tap_names(window.rank, "o"))
    return (builder.output(node, body, hint="average_pool", axes=axes),)


def _to_p(x: Scalar, p: int) -> Scalar:
    return magnitude(x) if p == 1 else x * x if p == 2 else power(magnitude(x), p)


def _root(x: Scalar, p: int) -> Scalar:
    return x if p == 1 else sqrt(x) if p == 2 else power(x, 1 / p)


def _lp_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, p = present(arrays, 0), int_attr(attrs, "p", 2)
    return (_sums(np.abs(x) ** p, attrs) ** x.dtype.type(1 / p),)


def _lp_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    p = int_attr(attributes_of(node), "p", 2)
    sums, window = _window_sum(builder, node, inputs, lambda value: _to_p(value, p))
    axes = ("n", "c", *tap_names(window.rank, "o"))
    return (builder.output(node, lambda *at: _root(sums(*at), p), hint="lp_pool", axes=axes),)


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "MaxPool",
        Kind.REDUCTION,
        _infer,
        _max_reference,
        _max_compute,
        explicit=_explicit,
        traits=Trait.EXACT,
        moves=Moves.EXTREME,
        window=window_by_attributes,
        layout=layout.vectors_of_channels,
    ),
    Operator(
        "AveragePool",
        Kind.REDUCTION,
        _infer,
        _average_reference,
        _average_compute,
        explicit=_explicit,
        traits=Trait.ZERO_PADDED,
        window=window_by_attributes,
        layout=layout.channelwise,
    ),
    Operator(
        "LpPool",
        Kind.REDUCTION,
        _infer,
        _lp_reference,
        _lp_compute,
        explicit=_explicit,
        layout=layout.channelwise,
    ),
)
