"""Normalizations by mean and variance.

x is [n, c, spatial...]; each operator's definition names the axes of its statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import Extent, product
from farrier.ir.expr import Buffer, Expr, Reduce
from farrier.ir.graph import Node
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops import layout
from farrier.ops.builder import Builder, Operand, attributes_of, total
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Data,
    Kind,
    Mismatch,
    NotSupported,
    Operator,
    Types,
    as_ints,
    axis_attr,
    fail_to_agree,
    float_attr,
    int_attr,
    normal_axis,
    optional,
    present,
    required,
)
from farrier.ops.pointwise import broadcast_shapes
from farrier.ops.reduce import reduced_shape, reduction_axes
from farrier.ops.scalar import Scalar, magnitude, maximum, sqrt
from farrier.ops.traits import Trait


def _per_channel(
    count: int, axis: int = 1
) -> Callable[[Types, Constants, Attrs], tuple[TensorType, ...]]:
    """Return the `infer` rule of an operator on x and `count` parameters of shape [channels], where
    `axis` is the channel axis of x."""

    def infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
        x = required(types, 0)
        if x.rank < 2:
            raise Mismatch(f"input {x.shape} has no channels")
        if attrs.get("training_mode", 0):
            raise NotSupported("training mode: only inference is compiled")
        for position in range(1, count + 1):
            parameter = required(types, position)
            if parameter.rank != 1 or fail_to_agree(parameter.shape[0], x.shape[axis]):
                raise Mismatch(
                    f"input {position} has shape {parameter.shape} for {x.shape[axis]} channels"
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


def _batch_affine(node: Node, data: Data) -> tuple[Array, Array] | None:
    gamma, beta, mean, variance = (data(value) for value in node.inputs[1:5])
    if gamma is None or beta is None or mean is None or variance is None:
        return None
    epsilon = float(node.attr("epsilon", 1e-5))
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = gamma.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
        return scale, beta.astype(np.float64) - mean * scale


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


Point: TypeAlias = tuple[Expr, ...]


class _Moments:
    """The stages that compute mean and 1 / √(variance + epsilon) of groups of elements. Elements
    are then multiplied by the latter, which is faster than a division.

    `shape` is the shape of the groups; `element(group, reduced)` returns element `reduced` of a
    group. The computed mean has a rounding error, which is large relative to the deviations if the
    elements lie close together far from 0. One more stage therefore computes the mean of the
    deviations, which the results subtract.
    """

    def __init__(
        self,
        builder: Builder,
        dtype: DType,
        shape: Shape,
        ranges: Mapping[str, Extent],
        element: Callable[[Point, Point], Scalar],
        epsilon: float,
    ) -> None:
        count = product(ranges.values())

        def mean_of(hint: str, value: Callable[[Point, Point], Scalar]) -> Operand:
            sums = builder.local(
                hint, shape, dtype, lambda *at: total(ranges, lambda *r: value(at, r))
            )
            return builder.local("mean", shape, dtype, lambda *at: sums(*at) / count)

        def deviation(at: Point, reduced: Point) -> Scalar:
            return element(at, reduced) - self._mean(*at)

        def squared(at: Point, reduced: Point) -> Scalar:
            return deviation(at, reduced) * deviation(at, reduced)

        self._mean = mean_of("sum", element)
        rest = mean_of("rest_sum", deviation)
        square = mean_of("square_sum", squared)

        def scale(*at: Expr) -> Scalar:
            # The difference is not negative but for rounding, where all elements are equal.
            variance = maximum(square(*at) - rest(*at) * rest(*at), 0)
            return 1 / sqrt(variance + epsilon)

        self._scale = builder.local("scale", shape, dtype, scale)
        self._shift = builder.local(
            "shift", shape, dtype, lambda *at: -(rest(*at) * self._scale(*at))
        )

    def standard(self, value: Scalar, group: Point) -> Scalar:
        """Return (value − mean) / √(variance + epsilon) for a `value` of the group `group`."""
        return (value - self._mean(*group)) * self._scale(*group) + self._shift(*group)


class _AxisMoments:
    """The moments of `x` over `axes`, with those axes kept as extent 1."""

    def __init__(self, builder: Builder, x: Operand, axes: tuple[int, ...], epsilon: float) -> None:
        self.x, self.axes = x, axes

        def element(at: Point, reduced: Point) -> Scalar:
            inner = iter(reduced)
            return x(*(next(inner) if axis in axes else i for axis, i in enumerate(at)))

        shape, ranges = reduced_shape(x.shape, axes, True), reduction_axes(x.shape, axes)
        self._moments = _Moments(builder, x.dtype, shape, ranges, element, epsilon)

    def standard(self, at: Point) -> Scalar:
        """Return (x − mean) / √(variance + epsilon) for the element of x at index `at`."""
        row = tuple(e.index(0) if a in self.axes else i for a, i in enumerate(at))
        return self._moments.standard(self.x(*at), row)


def _instance_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    normal = _standardize(x, tuple(range(2, x.ndim)), float_attr(attrs, "epsilon", 1e-5))
    scale, bias = (_channels(present(arrays, i), x.ndim) for i in (1, 2))
    return (normal * scale + bias,)


def _instance_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, scale, bias = (builder.operand(node, inputs, i) for i in range(3))
    epsilon = float_attr(attributes_of(node), "epsilon", 1e-5)
    moments = _AxisMoments(builder, x, tuple(range(2, x.rank)), epsilon)

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
    ranges = {"rc": size, **reduction_axes(x.shape, tuple(range(2, x.rank)))}

    def element(at: Point, reduced: Point) -> Scalar:
        n, g = at
        return x(n, e.add(e.mul(g, size), reduced[0]), *reduced[1:])

    epsilon = float_attr(attrs, "epsilon", 1e-5)
    moments = _Moments(builder, x.dtype, (x.shape[0], groups), ranges, element, epsilon)

    def body(n: Expr, c: Expr, *at: Expr) -> Scalar:
        group = n, e.floordiv(c, size)
        return moments.standard(x(n, c, *at), group) * scale(c) + bias(c)

    return (builder.output(node, body),)


def _trailing(attrs: Attrs, rank: int) -> tuple[int, ...]:
    return tuple(range(axis_attr(attrs, rank, -1), rank))


def _layer_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    axes = _trailing(attrs, x.rank)
    required(types, 1)
    for position, parameter in enumerate(types[1:], 1):
        if parameter is not None:
            whole = x.shape
            if broadcast_shapes(parameter.shape, whole) != whole:
                raise Mismatch(
                    f"input {position} of shape {parameter.shape} does not broadcast to {x.shape}, "
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
    moments = _AxisMoments(builder, x, _trailing(attrs, x.rank), epsilon)

    def body(*at: Expr) -> Scalar:
        value = moments.standard(at) * scale.broadcast(*at)
        return value if bias is None else value + bias.broadcast(*at)

    return (builder.output(node, body),)


def _rms_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, scale = present(arrays, 0), present(arrays, 1)
    square = np.mean(x * x, axis=_trailing(attrs, x.ndim), keepdims=True)
    return (x / np.sqrt(square + x.dtype.type(float_attr(attrs, "epsilon", 1e-5))) * scale,)


def power_sum(builder: Builder, x: Operand, axes: tuple[int, ...], p: int = 2) -> Operand:
    """Declare a stage with Σ|x|^p over `axes`, kept with extent 1."""
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
    moments = _AxisMoments(builder, x, axes, _MVN_EPSILON)
    return (builder.output(node, lambda *at: moments.standard(at)),)


def _mean_variance_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    return (_standardize(x, _mean_variance_axes(attrs, x.ndim), _MVN_EPSILON),)


# ONNX adds it to the deviation; added to the variance, its effect is within rounding.
_MVN_EPSILON = 1e-9


BATCH_NORMALIZATION = Operator(
    "BatchNormalization",
    Kind.ELEMENTWISE,
    _per_channel(4),
    _batch_reference,
    _batch_compute,
    traits=Trait.PER_CHANNEL,
    affine=_batch_affine,
    layout=layout.elementwise,
)
LAYER_NORMALIZATION = Operator(
    "LayerNormalization",
    Kind.REDUCTION,
    _layer_infer,
    _layer_reference,
    _layer_compute,
    traits=Trait.READS_ONCE,
)
OPERATORS: tuple[Operator, ...] = (
    BATCH_NORMALIZATION,
    Operator(
        "InstanceNormalization",
        Kind.REDUCTION,
        _per_channel(2),
        _instance_reference,
        _instance_compute,
        traits=Trait.PER_CHANNEL,
        layout=layout.channelwise,
    ),
    Operator("GroupNormalization", Kind.REDUCTION, _group_infer, _group_reference, _group_compute),
    LAYER_NORMALIZATION,
    Operator(
        "RMSNormalization",
        Kind.REDUCTION,
        _layer_infer,
        _rms_reference,
        _rms_compute,
        traits=Trait.READS_ONCE,
    ),
    Operator(
        "MeanVarianceNormalization",
        Kind.REDUCTION,
        _mean_variance_infer,
        _mean_variance_reference,
        _mean_variance_compute,
    ),
)
