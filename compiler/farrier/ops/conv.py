"""Convolution over any number of spatial axes.

x is [n, ic, spatial...], the weights are [oc, ic/group, kernel...], the bias is [oc].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import Dim, Extent, number
from farrier.ir.expr import Buffer, Expr, Reduce
from farrier.ir.graph import Node
from farrier.ir.types import Shape, TensorType
from farrier.ops import layout
from farrier.ops.builder import Builder, attributes_of, factor, total, without_halo
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Kind,
    Mismatch,
    NotStatic,
    Operator,
    Types,
    accumulator,
    fail_to_agree,
    optional,
    present,
    required,
    rounded,
    widened,
)
from farrier.ops.scalar import Scalar
from farrier.ops.traits import Product, Trait
from farrier.ops.window import Window, padded, patches, read, tap_names, tap_views, window_of

Body: TypeAlias = Callable[..., Reduce]


def checked_operands(types: Types) -> tuple[TensorType, TensorType]:
    x, w = required(types, 0), required(types, 1)
    if x.rank < 3 or w.rank != x.rank:
        raise Mismatch(f"input {x.shape} and weights {w.shape} must have one rank of at least 3")
    _check_known(w, w.shape[2:])
    return x, w


def check_known(types: Types) -> None:
    """Check that a model's convolution weights have a static shape. Raises NotStatic. Inside a
    compiled kernel, the number of channels may be a symbol instead.
    """
    w = required(types, 1)
    _check_known(w, w.shape)


def _check_known(w: TensorType, extents: Shape) -> None:
    if not all(isinstance(extent, int) for extent in extents):
        raise NotStatic(f"its weights have the shape {w.shape}, and need numbers")


def check_bias(types: Types, channels: Extent) -> None:
    bias = types[2] if len(types) > 2 else None
    if bias is not None and bias.shape != (channels,):
        raise Mismatch(f"bias has shape {bias.shape} for {channels} output channels")


def group_of(attrs: Attrs) -> Extent:
    group = attrs.get("group", 1)
    if not isinstance(group, int | Dim) or group < 1:
        raise Mismatch(f"group is {group}")
    return group


def _window(types: Types, attrs: Attrs) -> Window:
    x, w = checked_operands(types)
    return window_of(attrs, x.shape[2:], w.shape[2:])


def _explicit(types: Types, attrs: Attrs) -> Attrs:
    check_known(types)
    return {**_window(types, attrs).explicit(attrs), "group": group_of(attrs)}


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, w = checked_operands(types)
    (batch, channels, *spatial), (outputs, per_group, *_) = x.shape, w.shape
    group = group_of(attrs)
    if fail_to_agree(channels, per_group * group) or outputs % group != 0:
        raise Mismatch(f"input {x.shape}, weights {w.shape} and group {group} do not fit together")
    check_bias(types, outputs)
    extents = _window(types, attrs).outputs(tuple(spatial))
    return (TensorType(accumulator(x.dtype, w.dtype, attrs), (batch, outputs, *extents)),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, w = (widened(present(arrays, position), attrs) for position in (0, 1))
    bias = optional(arrays, 2)
    group, window = number(group_of(attrs)), window_of(attrs, x.shape[2:], w.shape[2:])
    extents = window.outputs(x.shape[2:])
    source = padded(x, window, extents, 0)
    batch, outputs, per_group = len(x), len(w), w.shape[1]
    # Depthwise: one product for each tap is faster than many tiny matmuls.
    if per_group == 1 and outputs == group:
        y = np.zeros((batch, outputs, *extents), x.dtype)
        for taps, view in tap_views(source, window, extents):
            y += view * np.moveaxis(w[:, 0], 0, -1)[taps].reshape(-1, *(1,) * window.rank)
    else:
        columns = patches(source, window, extents)
        # The terms of each sum; -1 would be ambiguous for an empty tensor.
        terms = per_group * math.prod(w.shape[2:])
        columns = columns.reshape(batch, group, terms, math.prod(extents))  # copies: im2col
        y = np.matmul(w.reshape(1, group, outputs // group, terms), columns)
        y = y.reshape(batch, outputs, *extents)
    y = y if bias is None else y + bias.reshape(-1, *(1,) * window.rank)
    return (rounded(y, attrs),)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, w = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    attrs = attributes_of(node)
    window = window_of(attrs, x.shape[2:], w.shape[2:])
    extents, dtype = node.outputs[0].type.shape[2:], node.outputs[0].type.dtype
    group, outputs, per_group = group_of(attrs), *w.shape[:2]
    kernel = dict(zip(tap_names(window.rank, "k"), window.kernel, strict=True))
    ranges = {"ic": per_group, **kernel} if per_group > 1 or group == 1 else kernel

    def body(n: Expr, oc: Expr, *at: Expr) -> Reduce:
        def product(*reduced: Expr) -> Scalar:
            ic, taps = (reduced[0], reduced[1:]) if "ic" in ranges else (e.index(0), reduced)
            first = e.mul(e.floordiv(oc, outputs // group), per_group) if group > 1 else e.index(0)
            element = read(x, window, (n, e.add(first, ic)), at, taps, extents, 0)
            return factor(node, element, dtype) * factor(node, w(oc, ic, *taps), dtype)

        return total(ranges, product)

    return (with_bias(builder, node, inputs, "conv", body),)


def with_bias(builder: Builder, node: Node, inputs: Buffers, hint: str, body: Body) -> Buffer:
    """Declare the stage of a convolution's sums, the reduction `body`. If the node has a bias, also
    declare a stage that adds it. Return the buffer of the last stage."""
    out, bias = node.outputs[0].type, builder.optional(node, inputs, 2)
    axes = ("n", "oc", *tap_names(out.rank - 2, "o"))
    if bias is None:
        return builder.output(node, body, hint=hint, axes=axes)
    raw = builder.local(
        hint, out.shape, out.dtype, body, axes=axes, layout=without_halo(out.layout)
    )
    return builder.output(
        node, lambda n, oc, *at: raw(n, oc, *at) + bias(oc), hint=f"{hint}_bias", axes=axes
    )


def _window_of(node: Node) -> Window:
    x, w = node.inputs[:2]
    assert x is not None
    assert w is not None
    return window_of(dict(node.attrs), x.type.shape[2:], w.type.shape[2:])


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "Conv",
        Kind.CONTRACTION,
        _infer,
        _reference,
        _compute,
        explicit=_explicit,
        traits=Trait.ZERO_PADDED,
        product=Product.CONVOLUTION,
        window=_window_of,
        layout=layout.convolution,
    ),
)
