"""CumSum and CumProd: the sums and products of all prefixes along an axis."""

from __future__ import annotations

import numpy as np

from farrier.ir import expr as e
from farrier.ir.expr import Buffer, Expr, Reduce, ReduceOp
from farrier.ir.graph import Node
from farrier.ir.types import TensorType
from farrier.ops.builder import Builder, reduce
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


def _running(name: str, combine: ReduceOp, numpy: np.ufunc) -> Operator:
    """`y[…, i, …]` combines `x` up to i, or from i on under `reverse`, without i under
    `exclusive`."""

    def reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
        x = present(arrays, 0)
        axis = normal_axis(int(present(arrays, 1).reshape(-1)[0]), x.ndim)
        moved = np.moveaxis(np.flip(x, axis) if attrs.get("reverse", 0) else x, axis, 0)
        if attrs.get("exclusive", 0):
            first = np.full_like(moved[:1], numpy.identity)
            moved = np.concatenate([first, moved[:-1]])
        result = np.moveaxis(numpy.accumulate(moved, dtype=x.dtype), 0, axis)
        return (np.flip(result, axis) if attrs.get("reverse", 0) else result,)

    def compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
        x = builder.operand(node, inputs, 0)
        axis = normal_axis((builder.static(node, 1) or (0,))[0], x.rank)
        exclusive, reverse = bool(node.attr("exclusive", 0)), bool(node.attr("reverse", 0))

        def body(*at: Expr) -> Reduce:
            def element(r: Expr) -> Scalar:
                low, high = (at[axis], r) if reverse else (r, at[axis])
                op = e.BinaryOp.LT if exclusive else e.BinaryOp.LE
                counted = scalar(e.Binary(op, low, high))
                return where(counted, x(*at[:axis], r, *at[axis + 1 :]), numpy.identity)

            return reduce(combine, {"r": x.shape[axis]}, element)

        return (builder.output(node, body),)

    return Operator(name, Kind.REDUCTION, _infer, reference, compute, static=frozenset({1}))


OPERATORS: tuple[Operator, ...] = (
    _running("CumSum", ReduceOp.SUM, np.add),
    _running("CumProd", ReduceOp.PROD, np.multiply),
)
