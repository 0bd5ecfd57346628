"""Operators that only rearrange or repeat elements: transpose, expand, tile, DepthToSpace,
SpaceToDepth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import number
from farrier.ir.expr import Buffer, Expr
from farrier.ir.graph import Node
from farrier.ir.types import Shape, TensorType
from farrier.ops import layout
from farrier.ops.builder import Builder, attributes_of
from farrier.ops.derivative import Adjoint
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
    always,
    as_ints,
    int_attr,
    present,
    required,
    static_extents,
)
from farrier.ops.pointwise import broadcast_shapes
from farrier.ops.scalar import Scalar
from farrier.ops.traits import Moves, Trait


def _permutation(attrs: Attrs, rank: int) -> tuple[int, ...]:
    order = as_ints(attrs.get("perm", range(rank)[::-1]))
    if sorted(order) != list(range(rank)):
        raise Mismatch(f"perm {order} is no permutation of the {rank} axes")
    return order


def _transpose_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    return (TensorType(x.dtype, tuple(x.shape[a] for a in _permutation(attrs, x.rank))),)


def _transpose_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    return (x.transpose(_permutation(attrs, x.ndim)).copy(),)


def _transpose_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x = builder.operand(node, inputs, 0)
    order = _permutation(attributes_of(node), x.rank)
    return (
        builder.output(node, lambda *at: x(*(at[order.index(axis)] for axis in range(x.rank)))),
    )


def _transpose_derivative(s: Adjoint) -> Sequence[str]:
    order = _permutation(attributes_of(s.node), len(s.shapes[0]))
    return [s("Transpose", s.by, perm=tuple(np.argsort(order).tolist()))]


def _expand_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    required(types, 1)
    wanted = static_extents(types, constants, 1, "shape") or ()
    return (TensorType(x.dtype, broadcast_shapes(x.shape, wanted)),)


def _expand_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    shape = broadcast_shapes(x.shape, tuple(int(n) for n in present(arrays, 1)))
    return (np.broadcast_to(x, tuple(map(number, shape))),)


def _expand_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x = builder.operand(node, inputs, 0)
    return (builder.output(node, x.broadcast),)


def _tile_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    required(types, 1)
    repeats = static_extents(types, constants, 1, "repeats") or ()
    if len(repeats) != x.rank:
        raise Mismatch(f"repeats {repeats} for a tensor of rank {x.rank}")
    shape = tuple(n * count for n, count in zip(x.shape, repeats, strict=True))
    return (TensorType(x.dtype, shape),)


def _tile_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    return (np.tile(present(arrays, 0), tuple(int(n) for n in present(arrays, 1))),)


def _tile_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x = builder.operand(node, inputs, 0)

    def body(*at: Expr) -> Scalar:
        repeated = zip(at, x.shape, node.outputs[0].type.shape, strict=True)
        return x(*(i if extent == out else e.mod(i, extent) for i, extent, out in repeated))

    return (builder.output(node, body),)


def _block(types: Types, attrs: Attrs) -> tuple[int, Shape]:
    x, block = required(types, 0), int_attr(attrs, "blocksize")
    if x.rank != 4 or block < 1:
        raise Mismatch(f"input {x.shape} must be [n, c, y, x], and blocksize {block} positive")
    return block, x.shape


def _to_space_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    block, (n, c, h, w) = _block(types, attrs)
    if c % (block * block):
        raise Mismatch(f"{c} channels do not divide by blocksize {block} squared")
    shape = (n, c // (block * block), h * block, w * block)
    return (TensorType(required(types, 0).dtype, shape),)


def _to_space_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, b = present(arrays, 0), int_attr(attrs, "blocksize")
    n, c, h, w = x.shape
    if attrs.get("mode", "DCR") == "DCR":
        parts = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return (parts.reshape(n, c // (b * b), h * b, w * b),)


def _to_space_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, b = builder.operand(node, inputs, 0), int(node.attr("blocksize"))
    depth = x.shape[1] // (b * b)
    depth_first = node.attr("mode", "DCR") == "DCR"

    def body(n: Expr, c: Expr, y: Expr, x_: Expr) -> Scalar:
        offset = e.add(e.mul(e.mod(y, b), b), e.mod(x_, b))
        channel = e.add(e.mul(offset, depth), c) if depth_first else e.add(e.mul(c, b * b), offset)
        return x(n, channel, e.floordiv(y, b), e.floordiv(x_, b))

    return (builder.output(node, body, hint="depth_to_space"),)


def _to_depth_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    block, (n, c, h, w) = _block(types, attrs)
    if h % block or w % block:
        raise Mismatch(f"an image of {h}×{w} does not divide into blocks of {block}")
    shape = (n, c * block * block, h // block, w // block)
    return (TensorType(required(types, 0).dtype, shape),)


def _to_depth_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, b = present(arrays, 0), int_attr(attrs, "blocksize")
    n, c, h, w = x.shape
    depth_first = attrs.get("mode", "DCR") == "DCR"
    order = (0, 3, 5, 1, 2, 4) if depth_first else (0, 1, 3, 5, 2, 4)
    parts = x.reshape(n, c, h // b, b, w // b, b).transpose(order)
    return (parts.reshape(n, c * b * b, h // b, w // b),)


def _to_depth_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, b = builder.operand(node, inputs, 0), int(node.attr("blocksize"))

    depth_first = node.attr("mode", "DCR") == "DCR"

    def body(n: Expr, c: Expr, y: Expr, x_: Expr) -> Scalar:
        offset = e.floordiv(c, x.shape[1]) if depth_first else e.mod(c, b * b)
        channel = e.mod(c, x.shape[1]) if depth_first else e.floordiv(c, b * b)
        row = e.add(e.mul(y, b), e.floordiv(offset, b))
        column = e.add(e.mul(x_, b), e.mod(offset, b))
        return x(n, channel, row, column)

    return (builder.output(node, body, hint="space_to_depth"),)


TRANSPOSE = Operator(
    "Transpose",
    Kind.INJECTIVE,
    _transpose_infer,
    _transpose_reference,
    _transpose_compute,
    traits=Trait.TOTAL | Trait.READS_ONCE | Trait.PACKED,
    moves=Moves.ONCE,
    derivative=_transpose_derivative,
)
EXPAND = Operator(
    "Expand",
    Kind.INJECTIVE,
    _expand_infer,
    _expand_reference,
    _expand_compute,
    frozenset({1}),
    traits=Trait.SHARES_MEMORY,
    moves=Moves.REPEATED,
    copies=always,
    derivative=lambda s: [s.by],
)
OPERATORS: tuple[Operator, ...] = (
    TRANSPOSE,
    EXPAND,
    Operator(
        "Tile",
        Kind.INJECTIVE,
        _tile_infer,
        _tile_reference,
        _tile_compute,
        frozenset({1}),
        moves=Moves.REPEATED,
    ),
    Operator(
        "DepthToSpace",
        Kind.INJECTIVE,
        _to_space_infer,
        _to_space_reference,
        _to_space_compute,
        traits=Trait.READS_ONCE,
        moves=Moves.ONCE,
        layout=layout.channels_spread,
    ),
    Operator(
        "SpaceToDepth",
        Kind.INJECTIVE,
        _to_depth_infer,
        _to_depth_reference,
        _to_depth_compute,
        traits=Trait.READS_ONCE,
        moves=Moves.ONCE,
    ),
)
