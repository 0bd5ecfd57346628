"""Normalizations by mean and variance.

x is [n, c, spatial...]; the statistics are over the axes that each one names.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import Extent, product
from farrier.ir.expr import Buffer, Expr, Reduce
from farrier.ir.graph import Node
from farrier.ir.types import TensorType
from farrier.ops.builder import Builder, Operand, attributes_of, total
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Kind,
    Mismatch,
    NotSupported,
    Operator,
    Types,
    as_ints,
    axis_attr,
    differ,
    float_attr,
    int_attr,
    normal_axis,
    optional,
    present,
    required,
)
from farrier.ops.pointwise import broadcast_shapes
from farrier.ops.reduce import reduced_shape, reduction_axes
from farrier.ops.scalar import Scalar, magnitude, sqrt


def _per_channel(
    count: int, axis: int = 1
) -> Callable[[Types, Constants, Attrs], tuple[TensorType, ...]]:
    """Types `count` parameters after x, each one element a channel."""

    def infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
        x = required(types, 0)
        if x.rank < 2:
            raise Mismatch(f"input {x.shape} has no channels")
        if attrs.get("training_mode", 0):
            raise NotSupported("training mode: only inference is compiled")
        for position in range(1, count + 1):
            given = required(types, position)
            if given.rank != 1 or differ(given.shape[0], x.shape[axis]):
                raise Mismatch(
                    f"input {position} has shape {given.shape} for {x.shape[axis]} channels"
                )
        return (TensorType(x.dtype, x.shape),)

    return infer


def _channels(array: Array, rank: int) -> Array:
    return array.reshape(-1, *(1,) * (rank - 2))


def _batch_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    scale, bias, mean, variance = (_channels(present(arrays, i), x.ndim) for i in range(1, 5))
    factor = scale / np.sqrt(variance + variance.dtype.type(float_attr(attrs, "epsilon", 1e-5)))
    return ((x - mean) * factor + bias,)


def _batch_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, scale, bias, mean, variance = (builder.operand(node, inputs, i) for i in range(5))
    epsilon = float_attr(attributes_of(node), "epsilon", 1e-5)

    def body(*at: Expr) -> Scalar:
        c = at[1]
        return (x(*at) - mean(c)) * (scale(c) / sqrt(variance(c) + epsilon)) + bias(c)

    return (builder.output(node, body),)


def _standardize(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    mean = np.mean(x, axis=axes, keepdims=True)
    variance = np.mean((x - mean) ** 2, axis=axes, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(variance + x.dtype.type(epsilon)))


class _Moments:
    """Stages with the mean of `x` over `axes`, which stay with extent 1, and with
    1 / √(variance + epsilon): a division for each row, none for each element."""

    def __init__(self, builder: Builder, x: Operand, axes: tuple[int, ...], epsilon: float) -> None:
        self.x, self.axes = x, axes
        shape, ranges = reduced_shape(x.shape, axes, True), reduction_axes(x.shape, axes)
        count = product(ranges.values())

        def element(at: tuple[Expr, ...], reduced: tuple[Expr, ...]) -> tuple[Expr, ...]:
            inner = iter(reduced)
            return tuple(next(inner) if axis in axes else i for axis, i in enumerate(at))

        def summed(*at: Expr) -> Reduce:
            return total(ranges, lambda *r: x(*element(at, r)))

        sums = builder.local("sum", shape, x.dtype, summed)
        self._mean = builder.local("mean", shape, x.dtype, lambda *at: sums(*at) / count)

        def squared(*at: Expr) -> Reduce:
            def deviation(*reduced: Expr) -> Scalar:
                difference = x(*element(at, reduced)) - self._mean(*at)
                return difference * difference

            return total(ranges, deviation)

        squares = builder.local("square_sum", shape, x.dtype, squared)
        self._scale = builder.local(
            "scale", shape, x.dtype, lambda *at: 1 / sqrt(squares(*at) / count + epsilon)
        )

    def standard(self, at: tuple[Expr, ...]) -> Scalar:
        """(x − mean) / √(variance + epsilon) at `at`."""
        row = tuple(e.index(0) if a in self.axes else i for a, i in enumerate(at))
        return (self.x(*at) - self._mean(*row)) * self._scale(*row)


def _instance_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    normal = _standardize(x, tuple(range(2, x.ndim)), float_attr(attrs, "epsilon", 1e-5))
    scale, bias = (_channels(present(arrays, i), x.ndim) for i in (1, 2))
    return (normal * scale + bias,)


def _instance_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, scale, bias = (builder.operand(node, inputs, i) for i in range(3))
    epsilon = float_attr(attributes_of(node), "epsilon", 1e-5)
    moments = _Moments(builder, x, tuple(range(2, x.rank)), epsilon)

    def body(*at: Expr) -> Scalar:
        return moments.standard(at) * scale(at[1]) + bias(at[1])

    return (builder.output(node, body),)


def _groups(attrs: Attrs, channels: Extent) -> int:
    groups = int_attr(attrs, "num_groups")
    if groups < 1 or channels % groups:
        raise Mismatch(f"{channels} channels do not divide into {groups} groups")
    return groups


def _group_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    result = _per_channel(2)(types, constants, attrs)
    _groups(attrs, required(types, 0).shape[1])
    return result


def _group_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    grouped = x.reshape(len(x), _groups(attrs, x.shape[1]), -1)
    normal = _standardize(grouped, (2,), float_attr(attrs, "epsilon", 1e-5)).reshape(x.shape)
    scale, bias = (_channels(present(arrays, i), x.ndim) for i in (1, 2))
    return (normal * scale + bias,)


def _group_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, scale, bias = (builder.operand(node, inputs, i) for i in range(3))
    attrs = attributes_of(node)
    groups = _groups(attrs, x.shape[1])
    size = x.shape[1] // groups
    epsilon = float_attr(attrs, "epsilon", 1e-5)
    shape = (x.shape[0], groups)
    ranges = {"rc": size, **reduction_axes(x.shape, tuple(range(2, x.rank)))}
    count = product(ranges.values())

    def element(n: Expr, g: Expr, reduced: tuple[Expr, ...]) -> Scalar:
        return x(n, e.add(e.mul(g, size), reduced[0]), *reduced[1:])

    sums = builder.local(
        "sum", shape, x.dtype, lambda n, g: total(ranges, lambda *r: element(n, g, r))
    )
    mean = builder.local("mean", shape, x.dtype, lambda n, g: sums(n, g) / count)

    def squared(n: Expr, g: Expr) -> Reduce:
        def deviation(*reduced: Expr) -> Scalar:
            difference = element(n, g, reduced) - mean(n, g)
            return difference * difference

        return total(ranges, deviation)

    squares = builder.local("square_sum", shape, x.dtype, squared)
    inverse = builder.local(
        "scale", shape, x.dtype, lambda n, g: 1 / sqrt(squares(n, g) / count + epsilon)
    )

    def body(n: Expr, c: Expr, *at: Expr) -> Scalar:
        g = e.floordiv(c, size)
        return (x(n, c, *at) - mean(n, g)) * inverse(n, g) * scale(c) + bias(c)

    return (builder.output(node, body),)


def _trailing(attrs: Attrs, rank: int) -> tuple[int, ...]:
    return tuple(range(axis_attr(attrs, rank, -1), rank))


def _layer_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    axes = _trailing(attrs, x.rank)
    required(types, 1)
    for position, given in enumerate(types[1:], 1):
        if given is not None:
            whole = x.shape
            if broadcast_shapes(given.shape, whole) != whole:
                raise Mismatch(
                    f"input {position} of shape {given.shape} does not broadcast to {x.shape}, "
                    f"normalized over axes {axes}"
                )
    return (TensorType(x.dtype, x.shape),)


def _layer_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, scale, bias = present(arrays, 0), present(arrays, 1), optional(arrays, 2)
    normal = _standardize(x, _trailing(attrs, x.ndim), float_attr(attrs, "epsilon", 1e-5)) * scale
    return (normal if bias is None else normal + bias,)


def _layer_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, scale = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    bias, attrs = builder.optional(node, inputs, 2), attributes_of(node)
    epsilon = float_attr(attrs, "epsilon", 1e-5)
    moments = _Moments(builder, x, _trailing(attrs, x.rank), epsilon)

    def body(*at: Expr) -> Scalar:
        value = moments.standard(at) * scale.broadcast(*at)
        return value if bias is None else value + bias.broadcast(*at)

    return (builder.output(node, body),)


def _rms_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, scale = present(arrays, 0), present(arrays, 1)
    square = np.mean(x * x, axis=_trailing(attrs, x.ndim), keepdims=True)
    return (x / np.sqrt(square + x.dtype.type(float_attr(attrs, "epsilon", 1e-5))) * scale,)


def power_sum(builder: Builder, x: Operand, axes: tuple[int, ...], p: int = 2) -> Operand:
    """A stage with Σ|x|^p over `axes`, kept with extent 1."""
    ranges = reduction_axes(x.shape, axes)

    def body(*at: Expr) -> Reduce:
        def element(*reduced: Expr) -> Scalar:
            inner = iter(reduced)
            value = x(*(next(inner) if a in axes else i for a, i in enumerate(at)))
            return value * value if p == 2 else magnitude(value)

        return total(ranges, element)

    return builder.local("square_sum", reduced_shape(x.shape, axes, True), x.dtype, body)


def _rms_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, scale = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    attrs = attributes_of(node)
    axes, epsilon = _trailing(attrs, x.rank), float_attr(attrs, "epsilon", 1e-5)
    squares = power_sum(builder, x, axes)
    count = product(x.shape[axis] for axis in axes)
    inverse = builder.local(
        "scale",
        squares.shape,
        x.dtype,
        lambda *at: 1 / sqrt(squares(*at) / count + epsilon),
    )

    def body(*at: Expr) -> Scalar:
        row = (0 if a in axes else i for a, i in enumerate(at))
        return x(*at) * inverse(*row) * scale.broadcast(*at)

    return (builder.output(node, body),)


def _mean_variance_axes(attrs: Attrs, rank: int) -> tuple[int, ...]:
    return tuple(sorted(normal_axis(a, rank) for a in as_ints(attrs.get("axes", (0, 2, 3)))))


def _mean_variance_infer(
    types: Types, constants: Constants, attrs: Attrs
) -> tuple[TensorType, ...]:
    x = required(types, 0)
    _mean_variance_axes(attrs, x.rank)
    return (TensorType(x.dtype, x.shape),)


def _mean_variance_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x = builder.operand(node, inputs, 0)
    axes = _mean_variance_axes(attributes_of(node), x.rank)
    moments = _Moments(builder, x, axes, _MVN_EPSILON)
    return (builder.output(node, lambda *at: moments.standard(at)),)


def _mean_variance_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    return (_standardize(x, _mean_variance_axes(attrs, x.ndim), _MVN_EPSILON),)


_MVN_EPSILON = 1e-9  # ONNX adds it to the deviation; beside a variance it is the same to rounding


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "BatchNormalization", Kind.ELEMENTWISE, _per_channel(4), _batch_reference, _batch_compute
    ),
    Operator(
        "InstanceNormalization",
        Kind.REDUCTION,
        _per_channel(2),
        _instance_reference,
        _instance_compute,
    ),
    Operator("GroupNormalization", Kind.REDUCTION, _group_infer, _group_reference, _group_compute),
    Operator("LayerNormalization", Kind.REDUCTION, _layer_infer, _layer_reference, _layer_compute),
    Operator("RMSNormalization", Kind.REDUCTION, _layer_infer, _rms_reference, _rms_compute),
    Operator(
        "MeanVarianceNormalization",
        Kind.REDUCTION,
        _mean_variance_infer,
        _mean_variance_reference,
        _mean_variance_compute,
    ),
)
