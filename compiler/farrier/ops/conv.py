"""Convolution and its transpose, over any number of spatial axes.

x is [n, ic, spatial...]; the weights of Conv are [oc, ic/group, kernel...], those of ConvTranspose
[ic, oc/group, kernel...]; the bias is [oc].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from farrier.ir import expr as e
from farrier.ir.expr import Buffer, Expr, Reduce
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops.builder import Builder, Operand, attributes_of, total, without_halo
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
    int_attr,
    optional,
    present,
    required,
)
from farrier.ops.scalar import Scalar, both, scalar, where
from farrier.ops.window import Window, padded, patches, read, tap_names, tap_views, window_of

Body: TypeAlias = Callable[..., Reduce]


def _operands(types: Types) -> tuple[TensorType, TensorType]:
    x, w = required(types, 0), required(types, 1)
    if x.rank < 3 or w.rank != x.rank:
        raise Mismatch(f"input {x.shape} and weights {w.shape} must have one rank of at least 3")
    if x.dtype is not w.dtype:
        raise Mismatch(f"input is {x.dtype} and weights are {w.dtype}")
    return x, w


def _check_bias(types: Types, channels: int) -> None:
    bias = types[2] if len(types) > 2 else None
    if bias is not None and bias.shape != (channels,):
        raise Mismatch(f"bias has shape {bias.shape} for {channels} output channels")


def _group(attrs: Attrs) -> int:
    group = int_attr(attrs, "group", 1)
    if group < 1:
        raise Mismatch(f"group is {group}")
    return group


def _window(types: Types, attrs: Attrs) -> Window:
    x, w = _operands(types)
    return window_of(attrs, x.static_shape[2:], w.static_shape[2:])


def _explicit(types: Types, attrs: Attrs) -> Attrs:
    rest = {k: v for k, v in attrs.items() if k != "auto_pad"}
    return {**rest, **_window(types, attrs).attributes(), "group": _group(attrs)}


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, w = _operands(types)
    (batch, channels, *spatial), (outputs, per_group, *_) = x.static_shape, w.static_shape
    group = _group(attrs)
    if channels != per_group * group or outputs % group:
        raise Mismatch(f"input {x.shape}, weights {w.shape} and group {group} do not fit together")
    _check_bias(types, outputs)
    extents = _window(types, attrs).outputs(tuple(spatial))
    return (TensorType(x.dtype, (batch, outputs, *extents)),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, w, bias = present(arrays, 0), present(arrays, 1), optional(arrays, 2)
    group, window = _group(attrs), window_of(attrs, x.shape[2:], w.shape[2:])
    extents = window.outputs(x.shape[2:])
    source = padded(x, window, extents, 0)
    batch, outputs, per_group = len(x), len(w), w.shape[1]
    if per_group == 1 and outputs == group:  # depthwise: one product a tap beats many tiny matmuls
        y = np.zeros((batch, outputs, *extents), x.dtype)
        for taps, view in tap_views(source, window, extents):
            y += view * np.moveaxis(w[:, 0], 0, -1)[taps].reshape(-1, *(1,) * window.rank)
    else:
        columns = patches(source, window, extents)
        columns = columns.reshape(batch, group, -1, math.prod(extents))  # copies: im2col
        y = np.matmul(w.reshape(1, group, outputs // group, -1), columns)
        y = y.reshape(batch, outputs, *extents)
    return (y if bias is None else y + bias.reshape(-1, *(1,) * window.rank),)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, w = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    attrs = attributes_of(node)
    window = window_of(attrs, x.shape[2:], w.shape[2:])
    extents = node.outputs[0].type.static_shape[2:]
    group, outputs, per_group = _group(attrs), w.shape[0], w.shape[1]
    kernel = dict(zip(tap_names(window.rank, "k"), window.kernel, strict=True))
    ranges = {"ic": per_group, **kernel} if per_group > 1 or group == 1 else kernel

    def body(n: Expr, oc: Expr, *at: Expr) -> Reduce:
        def product(*reduced: Expr) -> Scalar:
            ic, taps = (reduced[0], reduced[1:]) if "ic" in ranges else (e.index(0), reduced)
            first = e.mul(e.floordiv(oc, outputs // group), per_group) if group > 1 else e.index(0)
            element = read(x, window, (n, e.add(first, ic)), at, taps, extents, 0)
            return element * w(oc, ic, *taps)

        return total(ranges, product)

    return (_with_bias(builder, node, inputs, "conv", body),)


def _with_bias(builder: Builder, node: Node, inputs: Buffers, hint: str, body: Body) -> Buffer:
    """The reduction `body`, then a stage that adds the bias where there is one."""
    out, bias = node.outputs[0].type, builder.optional(node, inputs, 2)
    axes = ("n", "oc", *tap_names(out.rank - 2, "o"))
    if bias is None:
        return builder.output(node, body, hint=hint, axes=axes)
    raw = builder.local(
        hint, out.static_shape, out.dtype, body, axes=axes, layout=without_halo(out.layout)
    )
    return builder.output(
        node, lambda n, oc, *at: raw(n, oc, *at) + bias(oc), hint=f"{hint}_bias", axes=axes
    )


def _transpose_window(types: Types, attrs: Attrs) -> tuple[Window, tuple[int, ...]]:
    """The window of the convolution that this transposes, and the output's spatial extents."""
    x, w = _operands(types)
    spatial, kernel = x.static_shape[2:], w.static_shape[2:]
    rank = len(spatial)
    mode = str(attrs.get("auto_pad") or "NOTSET")
    plain = window_of({k: v for k, v in attrs.items() if k != "auto_pad"}, spatial, kernel)
    spare = as_ints(attrs.get("output_padding") or (0,) * rank)
    full = [
        (extent - 1) * plain.strides[a] + plain.reach(a) + spare[a]
        for a, extent in enumerate(spatial)
    ]
    wanted: tuple[int, ...] | None = None
    if attrs.get("output_shape"):
        wanted = as_ints(attrs["output_shape"])[-rank:]
    elif mode.startswith("SAME"):
        wanted = tuple(extent * s for extent, s in zip(spatial, plain.strides, strict=True))
    before, after = plain.before, plain.after
    if wanted is not None:
        cut = [max(f - o, 0) for f, o in zip(full, wanted, strict=True)]
        small, large = tuple(c // 2 for c in cut), tuple(c - c // 2 for c in cut)
        before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
    elif mode == "VALID":
        before = after = (0,) * rank
    extents = tuple(f - b - a for f, b, a in zip(full, before, after, strict=True))
    if wanted is not None:
        extents = wanted
    if min(extents) < 1:
        raise Mismatch(f"pads {before + after} leave nothing of an output of {tuple(full)}")
    return Window(plain.kernel, plain.strides, plain.dilations, before, after), extents


def _explicit_transpose(types: Types, attrs: Attrs) -> Attrs:
    window, extents = _transpose_window(types, attrs)
    spatial = required(types, 0).static_shape[2:]
    spare = tuple(
        extents[a]
        + window.before[a]
        + window.after[a]
        - (n - 1) * window.strides[a]
        - window.reach(a)
        for a, n in enumerate(spatial)
    )
    kept = {k: v for k, v in attrs.items() if k not in ("auto_pad", "output_shape")}
    return {**kept, **window.attributes(), "group": _group(attrs), "output_padding": spare}


def _extents_of(attrs: Attrs, x: Array, w: Array) -> tuple[Window, tuple[int, ...]]:
    shapes = [TensorType(DType.F32, x.shape), TensorType(DType.F32, w.shape)]
    return _transpose_window(shapes, attrs)


def _infer_transpose(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, w = _operands(types)
    group = _group(attrs)
    if x.shape[1] != w.shape[0] or w.static_shape[0] % group:
        raise Mismatch(f"input {x.shape}, weights {w.shape} and group {group} do not fit together")
    outputs = w.static_shape[1] * group
    _check_bias(types, outputs)
    extents = _transpose_window(types, attrs)[1]
    return (TensorType(x.dtype, (x.shape[0], outputs, *extents)),)


def _reference_transpose(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, w, bias = present(arrays, 0), present(arrays, 1), optional(arrays, 2)
    group = _group(attrs)
    window, extents = _extents_of(attrs, x, w)
    batch, channels, *spatial = x.shape
    outputs = w.shape[1] * group
    weights = w.reshape(1, group, channels // group, -1).swapaxes(2, 3)
    columns = np.matmul(weights, x.reshape(batch, group, channels // group, -1))
    columns = columns.reshape(batch, outputs, *window.kernel, *spatial)
    room = [
        max((n - 1) * s + window.reach(a), window.before[a] + extents[a])
        for a, (n, s) in enumerate(zip(spatial, window.strides, strict=True))
    ]
    y = np.zeros((batch, outputs, *room), x.dtype)
    for taps, view in tap_views(y, window, tuple(spatial)):
        view += columns[(slice(None), slice(None), *taps)]
    crop = tuple(slice(b, b + n) for b, n in zip(window.before, extents, strict=True))
    y = np.ascontiguousarray(y[(slice(None), slice(None), *crop)])
    return (y if bias is None else y + bias.reshape(-1, *(1,) * window.rank),)


def _compute_transpose(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, w = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    attrs = attributes_of(node)
    window, _ = _transpose_window([v.type if v else None for v in node.inputs], attrs)
    group, per_group = _group(attrs), w.shape[1]
    channels = x.shape[1] // group
    # Without overlap every output has exactly one tap: o % stride, of input o // stride.
    apart = (
        window.kernel == window.strides
        and not any(window.before)
        and (max(window.dilations) == 1)
        and all(
            o <= i * s
            for o, i, s in zip(
                node.outputs[0].type.static_shape[2:], x.shape[2:], window.strides, strict=True
            )
        )
    )
    kernel = dict(zip(tap_names(window.rank, "k"), window.kernel, strict=True))
    ranges = {"ic": channels} if apart else {"ic": channels, **kernel}

    def body(n: Expr, oc: Expr, *at: Expr) -> Reduce:
        first = e.mul(e.floordiv(oc, per_group), channels) if group > 1 else e.index(0)
        local = e.mod(oc, per_group) if group > 1 else oc

        def product(ic: Expr, *taps: Expr) -> Scalar:
            source = e.add(first, ic)
            if not apart:
                return _scattered(x, window, (n, source), at, taps) * w(source, local, *taps)
            steps = zip(at, window.strides, strict=True)
            inner = tuple(e.mod(o, s) for o, s in zip(at, window.strides, strict=True))
            return x(n, source, *(e.floordiv(o, s) for o, s in steps)) * w(source, local, *inner)

        return total(ranges, product)

    return (_with_bias(builder, node, inputs, "conv_transpose", body),)


def _scattered(
    x: Operand,
    window: Window,
    lead: tuple[Expr, ...],
    at: tuple[Expr, ...],
    taps: tuple[Expr, ...],
) -> Scalar:
    """The input element that tap `taps` adds to output `at`, or 0 where there is none."""
    indices: list[Expr] = list(lead)
    guard: Scalar | None = None
    for axis in range(window.rank):
        stride = window.strides[axis]
        offset = e.sub(
            e.add(at[axis], window.before[axis]), e.mul(taps[axis], window.dilations[axis])
        )
        position = e.floordiv(offset, stride)
        checks = [
            scalar(e.Binary(e.BinaryOp.LE, e.index(0), position)),
            scalar(e.less(position, x.shape[2 + axis])),
        ]
        if stride > 1:
            checks.append(scalar(e.Binary(e.BinaryOp.EQ, e.mod(offset, stride), e.index(0))))
        for check in checks:
            guard = check if guard is None else both(guard, check)
        indices.append(position)
    assert guard is not None
    return where(guard, x(*indices), 0)


OPERATORS: tuple[Operator, ...] = (
    Operator("Conv", Kind.CONTRACTION, _infer, _reference, _compute, explicit=_explicit),
    Operator(
        "ConvTranspose",
        Kind.CONTRACTION,
        _infer_transpose,
        _reference_transpose,
        _compute_transpose,
        explicit=_explicit_transpose,
    ),
)
