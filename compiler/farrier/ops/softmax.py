"""Softmax, LogSoftmax and Hardmax along one axis. The maximum is subtracted first, so that the
exponential cannot overflow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import maximum as most
from farrier.ir.expr import Buffer, Expr, Reduce, ReduceOp
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops.arg import compared
from farrier.ops.builder import Builder, Operand, attributes_of, reduce, total
from farrier.ops.derivative import Adjoint
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
from farrier.ops.scalar import (
    Scalar,
    equal,
    exp_nonpositive,
    log,
    number,
    scalar,
    where,
)
from farrier.ops.traits import Trait


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    axis_attr(attrs, x.rank, -1)
    return (TensorType(x.dtype, x.shape),)


def _shifted(x: Array, axis: int) -> Array:
    return np.asarray(x - np.max(x, axis=axis, keepdims=True))


def _softmax(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    axis = axis_attr(attrs, x.ndim, -1)
    with np.errstate(all="ignore"):
        weights = np.exp(_shifted(x, axis))
        return (weights / np.sum(weights, axis=axis, keepdims=True),)


def _log_softmax(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    axis = axis_attr(attrs, x.ndim, -1)
    with np.errstate(all="ignore"):
        shifted = _shifted(x, axis)
        return (shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)),)


def _hardmax(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    axis = axis_attr(attrs, x.ndim, -1)
    is_led_by_nan = np.take(x != x, [0], axis)
    x = np.where(x != x, -np.inf, x).astype(x.dtype)
    result = np.zeros_like(x)
    np.put_along_axis(result, np.argmax(x, axis=axis, keepdims=True), 1, axis)
    return (np.where(is_led_by_nan, result.dtype.type(0), result),)


class _Row:
    """The rows of `x` along `axis`. Stages reduce each row to an element of a tensor without that
    axis."""

    def __init__(self, builder: Builder, x: Operand, axis: int) -> None:
        self.builder, self.x, self.axis = builder, x, axis
        self.shape = x.shape[:axis] + x.shape[axis + 1 :]
        self.ranges = {"r": x.shape[axis]}

    def element(self, row: tuple[Expr, ...], r: Expr) -> Scalar:
        return self.x(*row[: self.axis], r, *row[self.axis :])

    def of(self, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return the index of the row that contains the element at `at`."""
        return at[: self.axis] + at[self.axis + 1 :]

    def highest(self) -> Operand:
        def body(*row: Expr) -> Reduce:
            return reduce(ReduceOp.MAX, self.ranges, lambda r: self.element(row, r))

        return self.builder.local("max", self.shape, self.x.dtype, body)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x = builder.operand(node, inputs, 0)
    row = _Row(builder, x, axis_attr(attributes_of(node), x.rank, -1))
    high = row.highest()
    weights = builder.local(
        "exp", x.shape, x.dtype, lambda *at: exp_nonpositive(x(*at) - high(*row.of(at)))
    )

    def sums(*at: Expr) -> Reduce:
        return total(row.ranges, lambda r: weights(*at[: row.axis], r, *at[row.axis :]))

    whole = builder.local("sum", row.shape, x.dtype, sums)
    # The row needs one division. The sum is at least 1, the share of the maximum, unless the row
    # has no elements: `none` makes the sum 1 then, so an attention over no keys is 0 and not NaN.
    size = x.shape[row.axis]
    none = most(size, 1) - size
    share = builder.local(
        "share",
        row.shape,
        x.dtype,
        lambda *at: 1 / (whole(*at) + none if none != 0 else whole(*at)),
    )
    return (builder.output(node, lambda *at: weights(*at) * share(*row.of(at))),)


def _log_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x = builder.operand(node, inputs, 0)
    row = _Row(builder, x, axis_attr(attributes_of(node), x.rank, -1))
    high = row.highest()

    def sums(*at: Expr) -> Reduce:
        return total(row.ranges, lambda r: exp_nonpositive(row.element(at, r) - high(*at)))

    whole = builder.local("sum", row.shape, x.dtype, sums)

    def body(*at: Expr) -> Scalar:
        return x(*at) - high(*row.of(at)) - log(whole(*row.of(at)))

    return (builder.output(node, body),)


def _hard_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x = builder.operand(node, inputs, 0)
    row = _Row(builder, x, axis_attr(attributes_of(node), x.rank, -1))

    def highest(*at: Expr) -> Reduce:
        def element(r: Expr) -> Scalar:
            return compared(ReduceOp.MAX, row.element(at, r), r)

        return reduce(ReduceOp.MAX, row.ranges, element)

    high = builder.local("max", row.shape, x.dtype, highest)

    def first(*at: Expr) -> Reduce:
        def candidate(r: Expr) -> Scalar:
            # If the first element is NaN, no element equals the maximum, and the row is all 0.
            is_highest = equal(row.element(at, r), high(*at))
            return where(is_highest, scalar(r), x.shape[row.axis])

        return reduce(ReduceOp.MIN, row.ranges, candidate)

    winner = builder.local("first", row.shape, DType.I64, first)

    def body(*at: Expr) -> Scalar:
        hit = equal(winner(*row.of(at)), Scalar(e.index(at[row.axis]), DType.I64))
        return where(hit, number(1, x.dtype), 0)

    return (builder.output(node, body),)


def _derivative(s: Adjoint) -> Sequence[str]:
    share = s("Mul", s.by, s.result)
    return [s("Sub", share, s("Mul", s.result, _row_sums(s, share)))]


def _log_derivative(s: Adjoint) -> Sequence[str]:
    return [s("Sub", s.by, s("Mul", s("Exp", s.result), _row_sums(s, s.by)))]


def _row_sums(s: Adjoint, name: str) -> str:
    return s("ReduceSum", name, s.ints([s.node.attr("axis", -1)]), keepdims=1)


SOFTMAX = Operator(
    "Softmax",
    Kind.REDUCTION,
    _infer,
    _softmax,
    _compute,
    traits=Trait.READS_ONCE,
    derivative=_derivative,
)
OPERATORS: tuple[Operator, ...] = (
    SOFTMAX,
    Operator(
        "LogSoftmax",
        Kind.REDUCTION,
        _infer,
        _log_softmax,
        _log_compute,
        traits=Trait.READS_ONCE,
        derivative=_log_derivative,
    ),
    Operator("Hardmax", Kind.REDUCTION, _infer, _hardmax, _hard_compute, traits=Trait.EXACT),
)
