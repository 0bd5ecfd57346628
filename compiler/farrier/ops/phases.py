"""PhasesToSpace, an internal operator that interleaves groups of channels as points of an image.

x is [n, phases · c, extents…], y is [n, c, extents · strides…]. The phase of a point of y is its
position modulo `strides`, flattened in row-major order. Channel `phase · c + i` of x holds channel
i of y at the points of that phase. For a 2-D image with equal strides this is ONNX's DepthToSpace
in mode DCR.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from farrier.ir import expr as e
from farrier.ir.expr import Buffer, Expr
from farrier.ir.graph import Node
from farrier.ir.types import TensorType
from farrier.ops import layout
from farrier.ops.builder import Builder, attributes_of
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
    present,
    required,
)
from farrier.ops.scalar import Scalar
from farrier.ops.traits import Trait


def _strides(attrs: Attrs) -> tuple[int, ...]:
    return tuple(map(int, as_ints(attrs["strides"])))


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, strides = required(types, 0), _strides(attrs)
    if x.rank != len(strides) + 2:
        raise Mismatch(f"input {x.shape} does not have {len(strides)} spatial axes")
    batch, channels, *spatial = x.shape
    if channels % math.prod(strides):
        raise Mismatch(f"{channels} channels are not a multiple of {math.prod(strides)} phases")
    extents = (extent * stride for extent, stride in zip(spatial, strides, strict=True))
    return (TensorType(x.dtype, (batch, channels // math.prod(strides), *extents)),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, strides = present(arrays, 0), _strides(attrs)
    batch, channels, *spatial = x.shape
    rank, depth = len(strides), channels // math.prod(strides)
    parts = x.reshape(batch, *strides, depth, *spatial)
    pairs = ((rank + 2 + axis, 1 + axis) for axis in range(rank))
    order = (0, rank + 1, *(axis for pair in pairs for axis in pair))
    extents = (extent * stride for extent, stride in zip(spatial, strides, strict=True))
    return (np.ascontiguousarray(parts.transpose(order)).reshape(batch, depth, *extents),)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, strides = builder.operand(node, inputs, 0), _strides(attributes_of(node))
    depth = node.outputs[0].type.shape[1]

    def body(n: Expr, channel: Expr, *at: Expr) -> Scalar:
        points = list(zip(at, strides, strict=True))
        phase = functools.reduce(
            lambda outer, point: e.add(e.mul(outer, point[1]), e.mod(*point)), points, e.index(0)
        )
        source = e.add(e.mul(phase, depth), channel)
        return x(n, source, *(e.floordiv(*point) for point in points))

    return (builder.output(node, body, hint="phases_to_space"),)


_whole_blocks = layout.blocks_moved(
    lambda node, images: node.outputs[0].type.shape[1] % images.lanes == 0
)


def _layout(node: Node, images: layout.Images) -> layout.Form:
    form = layout.channels_spread(node, images)
    return _whole_blocks(node, images) if form is layout.Form.PLAIN else form


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "PhasesToSpace",
        Kind.INJECTIVE,
        _infer,
        _reference,
        _compute,
        traits=Trait.READS_ONCE,
        layout=_layout,
    ),
)
