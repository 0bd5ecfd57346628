"""ConvTranspose: each input element adds a scaled kernel to the output.

x is [n, ic, spatial...], the weights are [ic, oc/group, kernel...], the bias is [oc].
"""

from __future__ import annotations

import math

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import is_less, maximum, number
from farrier.ir.expr import Buffer, Expr, Reduce
from farrier.ir.graph import Node
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops import layout
from farrier.ops.builder import Builder, Operand, attributes_of, total
from farrier.ops.conv import check_bias, check_known, checked_operands, group_of, with_bias
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
    accumulator,
    as_ints,
    fail_to_agree,
    optional,
    present,
    required,
)
from farrier.ops.scalar import Scalar, both, scalar, where
from farrier.ops.traits import Product
from farrier.ops.window import Window, tap_names, tap_views, window_of


def _window(types: Types, attrs: Attrs) -> tuple[Window, Shape]:
    """Return the window of the convolution whose transpose this node computes, and the spatial
    extents of the node's output.
    """
    x, w = checked_operands(types)
    spatial, kernel = x.shape[2:], w.shape[2:]
    rank = len(spatial)
    mode = str(attrs.get("auto_pad") or "NOTSET")
    plain = window_of({k: v for k, v in attrs.items() if k != "auto_pad"}, spatial, kernel)
    spare = as_ints(attrs.get("output_padding") or (0,) * rank)
    full = [
        (extent - 1) * plain.strides[a] + plain.reach(a) + spare[a]
        for a, extent in enumerate(spatial)
    ]
    wanted: Shape | None = None
    if attrs.get("output_shape"):
        wanted = as_ints(attrs["output_shape"])[-rank:]
    elif mode.startswith("SAME"):
        wanted = tuple(extent * s for extent, s in zip(spatial, plain.strides, strict=True))
    before, after = plain.before, plain.after
    if wanted is not None:
        cut = [maximum(f - o, 0) for f, o in zip(full, wanted, strict=True)]
        small, large = tuple(c // 2 for c in cut), tuple(c - c // 2 for c in cut)
        before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
    elif mode == "VALID":
        before = after = (0,) * rank
    extents = tuple(f - b - a for f, b, a in zip(full, before, after, strict=True))
    if wanted is not None:
        extents = wanted
    if any(extent < 1 for extent in extents):
        raise Mismatch(f"pads {before + after} leave nothing of an output of {tuple(full)}")
    return Window(plain.kernel, plain.strides, plain.dilations, before, after), extents


def _explicit(types: Types, attrs: Attrs) -> Attrs:
    check_known(types)
    window, extents = _window(types, attrs)
    spatial = required(types, 0).shape[2:]
    spare = tuple(
        extents[a]
        + window.before[a]
        + window.after[a]
        - (n - 1) * window.strides[a]
        - window.reach(a)
        for a, n in enumerate(spatial)
    )
    whole = window.explicit(attrs)
    if "auto_pad" in whole:
        return whole
    kept = {k: v for k, v in whole.items() if k != "output_shape"}
    return {**kept, "group": group_of(attrs), "output_padding": tuple(map(number, spare))}


def _extents_of(attrs: Attrs, x: Array, w: Array) -> tuple[Window, tuple[int, ...]]:
    shapes = [TensorType(DType.F32, x.shape), TensorType(DType.F32, w.shape)]
    window, extents = _window(shapes, attrs)
    return window, tuple(map(number, extents))


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, w = checked_operands(types)
    group = group_of(attrs)
    if fail_to_agree(x.shape[1], w.shape[0]) or w.shape[0] % group != 0:
        raise Mismatch(f"input {x.shape}, weights {w.shape} and group {group} do not fit together")
    outputs = w.shape[1] * group
    check_bias(types, outputs)
    extents = _window(types, attrs)[1]
    return (TensorType(accumulator(x.dtype, w.dtype, attrs), (x.shape[0], outputs, *extents)),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, w, bias = present(arrays, 0), present(arrays, 1), optional(arrays, 2)
    group = number(group_of(attrs))
    window, extents = _extents_of(attrs, x, w)
    batch, channels, *spatial = x.shape
    outputs = w.shape[1] * group
    per_group = channels // group
    taps_of_group = w.shape[1] * math.prod(w.shape[2:])  # -1 is open where an extent is 0
    weights = w.reshape(1, group, per_group, taps_of_group).swapaxes(2, 3)
    columns = np.matmul(weights, x.reshape(batch, group, per_group, math.prod(spatial)))
    columns = columns.reshape(batch, outputs, *window.kernel, *spatial)
    first = tuple(map(number, window.before))
    room = [
        max((n - 1) * s + window.reach(a), first[a] + extents[a])
        for a, (n, s) in enumerate(zip(spatial, window.strides, strict=True))
    ]
    y = np.zeros((batch, outputs, *room), x.dtype)
    for taps, view in tap_views(y, window, tuple(spatial)):
        view += columns[(slice(None), slice(None), *taps)]
    crop = tuple(slice(b, b + n) for b, n in zip(first, extents, strict=True))
    y = np.ascontiguousarray(y[(slice(None), slice(None), *crop)])
    return (y if bias is None else y + bias.reshape(-1, *(1,) * window.rank),)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, w = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    attrs = attributes_of(node)
    window, _ = _window([v.type if v else None for v in node.inputs], attrs)
    group, per_group = group_of(attrs), w.shape[1]
    channels = w.shape[0] // group
    # Without overlap every output has exactly one tap: o % stride, of input o // stride.
    apart = (
        window.kernel == window.strides
        and not any(window.before)
        and (max(window.dilations) == 1)
        and all(
            is_less(o, i * s + 1)
            for o, i, s in zip(
                node.outputs[0].type.shape[2:], x.shape[2:], window.strides, strict=True
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
                term = _scattered(x, window, (n, source), at, taps) * w(source, local, *taps)
                meets = _meets(window, at, taps)
                return term if meets is None else where(meets, term, 0)
            steps = zip(at, window.strides, strict=True)
            inner = tuple(e.mod(o, s) for o, s in zip(at, window.strides, strict=True))
            return x(n, source, *(e.floordiv(o, s) for o, s in steps)) * w(source, local, *inner)

        return total(ranges, product)

    return (with_bias(builder, node, inputs, "conv_transpose", body),)


def _offset(window: Window, axis: int, at: Expr, tap: Expr) -> Expr:
    """Return `stride` times the position along `axis` of the input element that contributes to
    output `at` through kernel element `tap`. Such an element exists only if the result is a
    multiple of the stride."""
    return e.sub(e.add(at, window.before[axis]), e.mul(tap, window.dilations[axis]))


def _meets(window: Window, at: tuple[Expr, ...], taps: tuple[Expr, ...]) -> Scalar | None:
    """Return the condition that kernel elements `taps` connect output `at` with an input element on
    the grid of strides; None if all strides are 1. The whole product is guarded by it, not just a
    factor: 0 times an infinite weight would be NaN.
    """
    condition: Scalar | None = None
    for axis, stride in enumerate(window.strides):
        if stride > 1:
            rest = e.mod(_offset(window, axis, at[axis], taps[axis]), stride)
            check = scalar(e.Binary(e.BinaryOp.EQ, rest, e.index(0)))
            condition = check if condition is None else both(condition, check)
    return condition


def _scattered(
    x: Operand,
    window: Window,
    lead: tuple[Expr, ...],
    at: tuple[Expr, ...],
    taps: tuple[Expr, ...],
) -> Scalar:
    """Return the input element that the output element `at` sums for the kernel elements `taps`. It
    is 0 if its position is outside of the input."""
    indices: list[Expr] = list(lead)
    guard: Scalar | None = None
    for axis in range(window.rank):
        position = e.floordiv(_offset(window, axis, at[axis], taps[axis]), window.strides[axis])
        checks = (
            scalar(e.Binary(e.BinaryOp.LE, e.index(0), position)),
            scalar(e.less(position, x.shape[2 + axis])),
        )
        for check in checks:
            guard = check if guard is None else both(guard, check)
        indices.append(position)
    assert guard is not None
    return where(guard, x(*indices), 0)


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "ConvTranspose",
        Kind.CONTRACTION,
        _infer,
        _reference,
        _compute,
        explicit=_explicit,
        product=Product.TRANSPOSED_CONVOLUTION,
        layout=layout.ungrouped_convolution,
    ),
)
