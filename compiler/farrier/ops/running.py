"""CumSum: the sums of all prefixes along an axis."""

from __future__ import annotations

import numpy as np

from farrier.ir import expr as e
from farrier.ir.expr import Buffer, Expr, Reduce
from farrier.ir.graph import Node
from farrier.ir.types import TensorType
from farrier.ops.builder import Builder, total
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Kind,
    Operator,
    Types,
    normal_axis,
    present,
    required,
    static_ints,
)
from farrier.ops.scalar import (
    Scalar,
    scalar,
    where,
)


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    for axis in static_ints(types, constants, 1, "axis") or ():
        normal_axis(axis, x.rank)
    return (TensorType(x.dtype, x.shape),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    axis = int(present(arrays, 1).reshape(-1)[0])
    flipped = np.flip(x, axis) if attrs.get("reverse", 0) else x
    result = np.cumsum(flipped, axis=axis, dtype=x.dtype)
    result = result - flipped if attrs.get("exclusive", 0) else result
    return (np.flip(result, axis) if attrs.get("reverse", 0) else result,)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x = builder.operand(node, inputs, 0)
    axis = normal_axis((builder.static(node, 1) or (0,))[0], x.rank)
    exclusive, reverse = bool(node.attr("exclusive", 0)), bool(node.attr("reverse", 0))

    def body(*at: Expr) -> Reduce:
        def element(r: Expr) -> Scalar:
            low, high = (at[axis], r) if reverse else (r, at[axis])
            op = e.BinaryOp.LT if exclusive else e.BinaryOp.LE
            counted = scalar(e.Binary(op, low, high))
            return where(counted, x(*at[:axis], r, *at[axis + 1 :]), 0)

        return total({"r": x.shape[axis]}, element)

    return (builder.output(node, body),)


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "CumSum",
        Kind.REDUCTION,
        _infer,
        _reference,
        _compute,
        static=frozenset({1}),
    ),
)
