"""Normalizations by the size of neighbouring elements: local response normalization, L1 and L2
norms."""

from __future__ import annotations

import numpy as np

from farrier.ir import expr as e
from farrier.ir.expr import Buffer, Expr, Reduce
from farrier.ir.graph import Node
from farrier.ir.types import TensorType
from farrier.ops.builder import Builder, attributes_of, total
from farrier.ops.normalize import power_sum
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
    axis_attr,
    float_attr,
    int_attr,
    present,
    required,
)
from farrier.ops.scalar import Scalar, both, number, power, scalar, sqrt, where
from farrier.ops.traits import Trait


def _same(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    return (TensorType(x.dtype, x.shape),)


def _lp_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    _p(attrs)
    _lp_axis(attrs, required(types, 0).rank)
    return _same(types, constants, attrs)


def _p(attrs: Attrs) -> int:
    p = int_attr(attrs, "p", 2)
    if p not in (1, 2):
        raise Mismatch(f"p is {p}, and must be 1 or 2")
    return p


def _lp_axis(attrs: Attrs, rank: int) -> tuple[int, ...]:
    return (axis_attr(attrs, rank, -1),)


def _lp_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, p = present(arrays, 0), _p(attrs)
    axis = _lp_axis(attrs, x.ndim)
    norm = np.sum(np.abs(x) ** p, axis=axis, keepdims=True)
    norm = norm if p == 1 else np.sqrt(norm)
    return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0),)


def _lp_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, attrs = builder.operand(node, inputs, 0), attributes_of(node)
    p, axes = _p(attrs), _lp_axis(attrs, x.rank)
    sums = power_sum(builder, x, axes, p)

    def body(*at: Expr) -> Scalar:
        norm = sums(*(0 if a in axes else i for a, i in enumerate(at)))
        return where(norm <= 0, number(0, x.dtype), x(*at) / (norm if p == 1 else sqrt(norm)))

    return (builder.output(node, body),)


def _lrn_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, (size, *_) = required(types, 0), _neighbours(attrs)
    if size < 1 or x.rank < 2:
        raise Mismatch(f"{size} neighbouring channels of {x.shape}")
    return _same(types, constants, attrs)


def _neighbours(attrs: Attrs) -> tuple[int, int, int]:
    """Return the number of channels in the window of a local response normalization, and how many
    of them lie before and after its centre."""
    size = int_attr(attrs, "size")
    return size, (size - 1) // 2, size - 1 - (size - 1) // 2


def _lrn_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    size, before, after = _neighbours(attrs)
    widths = [(0, 0), (before, after), *((0, 0),) * (x.ndim - 2)]
    squares = np.pad(x * x, widths)
    sums = sum((squares[:, k : k + x.shape[1]] for k in range(1, size)), squares[:, : x.shape[1]])
    alpha, beta = float_attr(attrs, "alpha", 1e-4), float_attr(attrs, "beta", 0.75)
    response = sums * x.dtype.type(alpha / size) + x.dtype.type(float_attr(attrs, "bias", 1.0))
    return (x / response ** x.dtype.type(beta),)


def _lrn_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, attrs = builder.operand(node, inputs, 0), attributes_of(node)
    size, before, _ = _neighbours(attrs)

    def summed(n: Expr, c: Expr, *at: Expr) -> Reduce:
        def square(k: Expr) -> Scalar:
            channel = e.sub(e.add(c, k), before)
            value = x(n, channel, *at)
            low = scalar(e.Binary(e.BinaryOp.LE, e.index(0), channel))
            inside = both(low, scalar(e.less(channel, x.shape[1])))
            return where(inside, value * value, 0)

        return total({"k": size}, square)

    squares = builder.local("square_sum", x.shape, x.dtype, summed)
    alpha, beta = float_attr(attrs, "alpha", 1e-4), float_attr(attrs, "beta", 0.75)

    def body(*at: Expr) -> Scalar:
        response = squares(*at) * (alpha / size) + float_attr(attrs, "bias", 1.0)
        return x(*at) / power(response, beta)

    return (builder.output(node, body),)


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "LpNormalization",
        Kind.REDUCTION,
        _lp_infer,
        _lp_reference,
        _lp_compute,
        traits=Trait.READS_ONCE,
    ),
    Operator("LRN", Kind.REDUCTION, _lrn_infer, _lrn_reference, _lrn_compute),
)
