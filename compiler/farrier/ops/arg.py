"""ArgMax and ArgMin: the position of the largest or smallest element along an axis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from farrier.ir.expr import Buffer, Expr, Reduce, ReduceOp
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops import positions
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
    both,
    either,
    equal,
    scalar,
    unequal,
    where,
)
from farrier.ops.traits import Trait


def _arg_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    axis = axis_attr(attrs, x.rank)
    shape = reduced_shape(x.shape, (axis,), bool(attrs.get("keepdims", 1)))
    return (TensorType(DType.I64, shape),)


def compared(combine: ReduceOp, value: Scalar, r: Expr) -> Scalar:
    """Return element `r` of a row as an operand of the reduction `combine`. A NaN at a position
    other than 0 is replaced by the identity of `combine`, so that it never becomes the result.
    """
    if not value.dtype.is_float:
        return value
    counts = either(equal(value, value), equal(scalar(r), 0))
    return where(counts, value, scalar(combine.identity(value.dtype)))


def _arg(name: str, combine: ReduceOp, numpy: Callable[..., Array]) -> Operator:
    """Declare ArgMax or ArgMin. NaN is treated as in ONNX Runtime, which scans a row from its first
    element: a NaN at position 0 is the result, and a NaN at any other position is ignored.
    """

    def refer(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
        x = present(arrays, 0)
        axis = axis_attr(attrs, x.ndim)
        is_nan = np.moveaxis(x != x, axis, 0)
        x = np.where(x != x, combine.identity(DType.from_numpy(x.dtype)).value, x).astype(x.dtype)
        if attrs.get("select_last_index", 0):
            position = x.shape[axis] - 1 - numpy(np.flip(x, axis), axis=axis)
        else:
            position = numpy(x, axis=axis)
        position = np.where(is_nan[0], 0, position)
        shape = reduced_shape(x.shape, (axis,), bool(attrs.get("keepdims", 1)))
        return (np.asarray(position, np.int64).reshape(shape),)

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
            lambda *at: reduce(combine, ranges, lambda r: compared(combine, element(at, r), r)),
        )

        def position(*at: Expr) -> Reduce:
            def candidate(r: Expr) -> Scalar:
                value = element(at, r)
                is_best = equal(value, best(*at))
                if x.dtype.is_float:
                    leads = both(unequal(value, value), equal(scalar(r), 0))
                    is_best = either(is_best, leads)
                return where(is_best, scalar(r), -1 if last else x.shape[axis])

            return reduce(ReduceOp.MAX if last else ReduceOp.MIN, ranges, candidate)

        return (builder.output(node, position),)

    return Operator(
        name,
        Kind.REDUCTION,
        _arg_infer,
        refer,
        compute,
        traits=Trait.EXACT,
        positions=positions.best_of_axis,
    )


OPERATORS: tuple[Operator, ...] = (
    _arg("ArgMax", ReduceOp.MAX, np.argmax),
    _arg("ArgMin", ReduceOp.MIN, np.argmin),
)
