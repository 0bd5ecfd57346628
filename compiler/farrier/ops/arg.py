"""ArgMax and ArgMin: where along an axis the extreme element lies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from farrier.ir.expr import Buffer, Expr, Reduce, ReduceOp
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops.builder import Builder, attributes_of, reduce
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Kind,
    Operator,
    Types,
    axis_attr,
    present,
    required,
)
from farrier.ops.reduce import input_index, reduced_shape
from farrier.ops.scalar import (
    Scalar,
    either,
    equal,
    scalar,
    unequal,
    where,
)


def _arg_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    axis = axis_attr(attrs, x.rank)
    shape = reduced_shape(x.shape, (axis,), bool(attrs.get("keepdims", 1)))
    return (TensorType(DType.I64, shape),)


def _arg(name: str, combine: ReduceOp, numpy: Callable[..., Array]) -> Operator:
    """The position of the extreme element (of the first NaN, where there is one)."""

    def refer(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
        x = present(arrays, 0)
        axis = axis_attr(attrs, x.ndim)
        if attrs.get("select_last_index", 0):
            found = x.shape[axis] - 1 - numpy(np.flip(x, axis), axis=axis)
        else:
            found = numpy(x, axis=axis)
        shape = reduced_shape(x.shape, (axis,), bool(attrs.get("keepdims", 1)))
        return (np.asarray(found, np.int64).reshape(shape),)

    def compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
        x = builder.operand(node, inputs, 0)
        axis = axis_attr(attributes_of(node), x.rank)
        keep, shape = bool(node.attr("keepdims", 1)), node.outputs[0].type.shape
        ranges = {"r": x.shape[axis]}
        last = bool(node.attr("select_last_index", 0))

        def element(at: tuple[Expr, ...], r: Expr) -> Scalar:
            return x(*input_index((axis,), x.rank, at, (r,), keep))

        best = builder.local(
            str(combine),
            shape,
            x.dtype,
            lambda *at: reduce(combine, ranges, lambda r: element(at, r)),
        )

        def position(*at: Expr) -> Reduce:
            def candidate(r: Expr) -> Scalar:
                value = element(at, r)
                hit = equal(value, best(*at))
                hit = either(hit, unequal(value, value)) if x.dtype.is_float else hit
                return where(hit, scalar(r), -1 if last else x.shape[axis])

            return reduce(ReduceOp.MAX if last else ReduceOp.MIN, ranges, candidate)

        return (builder.output(node, position),)

    return Operator(name, Kind.REDUCTION, _arg_infer, refer, compute)


OPERATORS: tuple[Operator, ...] = (
    _arg("ArgMax", ReduceOp.MAX, np.argmax),
    _arg("ArgMin", ReduceOp.MIN, np.argmin),
)
