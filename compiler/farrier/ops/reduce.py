"""Reductions over axes: Reduce* and the global pools."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from typing import Unpack, overload

import numpy as np

from farrier.ir.dim import Extent, maximum, minimum, product
from farrier.ir.expr import Buffer, Expr, Reduce, ReduceOp
from farrier.ir.graph import Node
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops import layout
from farrier.ops.builder import Builder, Operand, attributes_of, reduce, total, without_halo
from farrier.ops.conversion import converted, np_whole
from farrier.ops.derivative import Adjoint
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Facts,
    Kind,
    Mismatch,
    Operator,
    Types,
    int_attr,
    normal_axis,
    optional,
    present,
    required,
    static_ints,
)
from farrier.ops.scalar import (
    Scalar,
    cast,
    equal,
    exp_nonpositive,
    log,
    magnitude,
    power,
    sqrt,
    where,
)
from farrier.ops.symbolic import to_one
from farrier.ops.traits import Trait


@dataclasses.dataclass(frozen=True, slots=True)
class _Rule:
    """A reduction: `after(combine over before(x), count)`, where `before` and `after` are
    elementwise, and `count` is the number of reduced elements.

    If `is_real`, integers are reduced in float64, and the result is truncated.
    """

    combine: ReduceOp
    numpy: Callable[[Array, tuple[int, ...]], Array]  # It keeps the reduced axes.
    before: Callable[[Scalar], Scalar] = lambda x: x
    after: Callable[[Scalar, Extent], Scalar] | None = None
    is_real: bool = False


def _axes(listed: tuple[int, ...] | None, rank: int, attrs: Attrs) -> tuple[int, ...]:
    """Return the axes to reduce, sorted. If none are listed, these are all axes, or with the
    attribute `noop_with_empty_axes` none."""
    if not listed:
        return () if attrs.get("noop_with_empty_axes", 0) else tuple(range(rank))
    if not rank and set(listed) <= {0, -1}:
        return ()  # Exporters write the axis for scalars too.
    axes = sorted(normal_axis(axis, rank) for axis in listed)
    if len(set(axes)) != len(axes):
        raise Mismatch(f"axes {listed} of a tensor of rank {rank} repeat one")
    return tuple(axes)


@overload
def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keep: bool) -> tuple[int, ...]: ...
@overload
def reduced_shape(shape: Shape, axes: tuple[int, ...], keep: bool) -> Shape: ...
def reduced_shape(shape: Shape, axes: tuple[int, ...], keep: bool) -> Shape:
    if keep:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    axes = _axes(static_ints(types, constants, 1, "axes"), x.rank, attrs)
    keep = bool(attrs.get("keepdims", 1))
    return (TensorType(x.dtype, reduced_shape(x.shape, axes, keep)),)


def input_index(
    axes: tuple[int, ...], rank: int, at: tuple[Expr, ...], reduced: tuple[Expr, ...], keep: bool
) -> tuple[Expr, ...]:
    """Return the input index of output index `at` and reduction index `reduced`."""
    inner, outer = iter(reduced), iter(at)
    index = []
    for axis in range(rank):
        if axis in axes:
            index.append(next(inner))
            if keep:
                next(outer)
        else:
            index.append(next(outer))
    return tuple(index)


def reduction_axes(shape: Shape, axes: tuple[int, ...]) -> dict[str, Extent]:
    return {f"r{axis}": shape[axis] for axis in axes}


def _operator(
    name: str,
    rule: _Rule,
    **facts: Unpack[Facts],
) -> Operator:
    def refer(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
        x, listed = present(arrays, 0), optional(arrays, 1)
        axes = _axes(None if listed is None else tuple(listed.reshape(-1).tolist()), x.ndim, attrs)
        is_truncated = rule.is_real and x.dtype.kind in "iu"
        with np.errstate(all="ignore"):
            result = rule.numpy(x.astype(np.float64) if is_truncated else x, axes)
        if is_truncated:
            result = np_whole(result, DType.from_numpy(x.dtype))
        shape = reduced_shape(x.shape, axes, bool(attrs.get("keepdims", 1)))
        return (np.asarray(result).astype(x.dtype, copy=False).reshape(shape),)

    def compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
        x = builder.operand(node, inputs, 0)
        axes = _axes(builder.static(node, 1), x.rank, attributes_of(node))
        return (_stages(builder, node, x, axes, bool(node.attr("keepdims", 1)), rule),)

    facts["traits"] = facts.get("traits", Trait.NONE) | Trait.READS_ONCE
    return Operator(
        name,
        Kind.REDUCTION,
        _infer,
        refer,
        compute,
        static=frozenset({1}),
        layout=layout.axes_reduced,
        **facts,
    )


def _stages(
    builder: Builder, node: Node, x: Operand, axes: tuple[int, ...], keep: bool, rule: _Rule
) -> Buffer:
    """Declare the stage that reduces `x` over `axes`. If the rule has a function `after`, also
    declare a stage that applies it to the result. Return the buffer of the last stage."""
    ranges = reduction_axes(x.shape, axes)
    count = product(ranges.values())
    dtype = _inner_dtype(x.dtype, rule.is_real)

    def body(*at: Expr) -> Scalar | Reduce:
        def element(*reduced: Expr) -> Scalar:
            return rule.before(cast(x(*input_index(axes, x.rank, at, reduced, keep)), dtype))

        return reduce(rule.combine, ranges, element) if ranges else element()

    after = rule.after
    if after is None:
        return builder.output(node, body)
    out = node.outputs[0].type
    raw = builder.local(f"{rule.combine}", out.shape, dtype, body, layout=without_halo(out.layout))
    return builder.output(node, lambda *at: converted(after(raw(*at), count), out.dtype))


def _inner_dtype(dtype: DType, is_real: bool) -> DType:
    return DType.F64 if is_real and dtype.is_integer else dtype


def _log_sum_exp(x: Array, axes: tuple[int, ...]) -> Array:
    if x.dtype.kind in "iu":
        lowest = np.iinfo(x.dtype).min
        highest = np.max(x, axis=axes, keepdims=True, initial=lowest)
        count = np.sum(x == highest, axis=axes, keepdims=True)
        return np.asarray(highest + np_whole(np.log(count), DType.from_numpy(x.dtype)))
    high = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(high), high, 0)
    return np.asarray(np.log(np.sum(np.exp(x - shift), axis=axes, keepdims=True)) + shift)


def _log_sum_exp_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    """Compute log Σ e^(x − max) + max, which does not overflow.

    With integers each power is truncated as in ONNX Runtime: it is 1 for elements equal to the
    maximum, and 0 for all others.
    """
    x = builder.operand(node, inputs, 0)
    axes = _axes(builder.static(node, 1), x.rank, attributes_of(node))
    keep = bool(node.attr("keepdims", 1))
    ranges, out = reduction_axes(x.shape, axes), node.outputs[0].type
    dtype = _inner_dtype(x.dtype, is_real=True)

    def at_input(at: tuple[Expr, ...], reduced: tuple[Expr, ...]) -> Scalar:
        return x(*input_index(axes, x.rank, at, reduced, keep))

    high = builder.local(
        "max",
        out.shape,
        out.dtype,
        lambda *at: reduce(ReduceOp.MAX, ranges, lambda *r: at_input(at, r)),
    )

    def weight(at: tuple[Expr, ...], reduced: tuple[Expr, ...]) -> Scalar:
        value = at_input(at, reduced)
        if x.dtype.is_integer:
            return cast(equal(value, high(*at)), dtype)
        return exp_nonpositive(value - high(*at))

    sums = builder.local(
        "sum", out.shape, dtype, lambda *at: total(ranges, lambda *r: weight(at, r))
    )

    def result(*at: Expr) -> Scalar:
        most, beyond = high(*at), converted(log(sums(*at)), out.dtype)
        # An infinite or NaN maximum is the result: most - most is NaN then.
        return where(equal(most - most, 0), beyond + most, most)

    return (builder.output(node, result),)


def _global(name: str, rule: _Rule, traits: Trait = Trait.NONE) -> Operator:
    """Declare a global pool: a reduction over all spatial axes, which remain as axes of extent
    1."""

    def infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
        x = required(types, 0)
        if x.rank < 3:
            raise Mismatch(f"input {x.shape} has no spatial axis")
        return (TensorType(x.dtype, (*x.shape[:2], *(1,) * (x.rank - 2))),)

    def refer(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
        x = present(arrays, 0)
        return (rule.numpy(x, tuple(range(2, x.ndim))).astype(x.dtype, copy=False),)

    def compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
        x = builder.operand(node, inputs, 0)
        return (_stages(builder, node, x, tuple(range(2, x.rank)), True, rule),)

    return Operator(
        name,
        Kind.REDUCTION,
        infer,
        refer,
        compute,
        traits=traits | Trait.READS_ONCE,
        layout=layout.points_reduced,
    )


def _global_lp(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, p = present(arrays, 0), int_attr(attrs, "p", 2)
    sums = np.sum(np.abs(x) ** p, axis=tuple(range(2, x.ndim)), keepdims=True)
    return (np.asarray(sums ** x.dtype.type(1 / p)),)


def _global_lp_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, p = builder.operand(node, inputs, 0), int_attr(attributes_of(node), "p", 2)
    rule = _Rule(
        ReduceOp.SUM,
        _MEAN.numpy,
        lambda value: power(magnitude(value), p),
        lambda value, count: power(value, 1 / p),
    )
    return (_stages(builder, node, x, tuple(range(2, x.rank)), True, rule),)


def _keep(function: Callable[..., Array]) -> Callable[[Array, tuple[int, ...]], Array]:
    return lambda x, axes: np.asarray(function(x, axis=axes, keepdims=True))


_SUM = _keep(np.sum)


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    """Return the mean over some axes; the mean of no elements is 0, as in ONNX Runtime."""
    count = math.prod(x.shape[axis] for axis in axes)
    return np.asarray(np.mean(x, axis=axes, keepdims=True)) if count else _SUM(x, axes)


_MEAN = _Rule(ReduceOp.SUM, _mean, after=lambda x, count: x / maximum(count, 1), is_real=True)


def _extreme(combine: ReduceOp, function: Callable[..., Array]) -> _Rule:
    """Return the rule for the maximum or minimum. For no elements it is the identity of the
    reduction."""

    def of(x: Array, axes: tuple[int, ...]) -> Array:
        nothing = combine.identity(DType.from_numpy(x.dtype)).value
        return np.asarray(function(x, axis=axes, keepdims=True, initial=nothing))

    return _Rule(combine, of)


_MAXIMUM = _extreme(ReduceOp.MAX, np.max)


def _spread(s: Adjoint, name: str) -> str:
    """Broadcast a tensor with the shape of a reduction's result to the shape of the reduction's
    operand."""
    shape = s.shapes[0]
    axes = _axes(s.static(1), len(shape), attributes_of(s.node))
    kept = reduced_shape(shape, axes, keep=True)
    return s("Expand", s.reshaped(name, kept), s.ints(shape))


def _mean_derivative(s: Adjoint) -> Sequence[str]:
    count = product(s.shapes[0]) // product(s.shape(s.result))
    return [_spread(s, s("Div", s.by, s("Cast", s.ints([count]), to=str(s.dtype))))]


def _square_derivative(s: Adjoint) -> Sequence[str]:
    return [s("Mul", s("Mul", s.operands[0], 2.0), _spread(s, s.by))]


_EXACT = Trait.TOTAL | Trait.EXACT
_MINIMUM = _extreme(ReduceOp.MIN, np.min)
_TOTAL, _PRODUCT = _Rule(ReduceOp.SUM, _SUM), _Rule(ReduceOp.PROD, _keep(np.prod))
REDUCE_MEAN = _operator("ReduceMean", _MEAN, joined_by="ReduceMean", derivative=_mean_derivative)
REDUCE_SUM = _operator(
    "ReduceSum",
    _TOTAL,
    traits=Trait.TOTAL,
    joined_by="ReduceSum",
    symbolic=to_one(operator.add),
    derivative=lambda s: [_spread(s, s.by)],
)
REDUCE_MAX = _operator(
    "ReduceMax", _MAXIMUM, traits=_EXACT, joined_by="ReduceMax", symbolic=to_one(maximum)
)
GLOBAL_AVERAGE = _global("GlobalAveragePool", _MEAN)
OPERATORS: tuple[Operator, ...] = (
    REDUCE_SUM,
    REDUCE_MEAN,
    REDUCE_MAX,
    _operator(
        "ReduceMin", _MINIMUM, traits=_EXACT, joined_by="ReduceMin", symbolic=to_one(minimum)
    ),
    _operator("ReduceProd", _PRODUCT, joined_by="ReduceProd", symbolic=to_one(operator.mul)),
    _operator(
        "ReduceL1",
        _Rule(ReduceOp.SUM, lambda x, a: _SUM(np.abs(x), a), magnitude),
        joined_by="ReduceSum",
    ),
    _operator(
        "ReduceL2",
        _Rule(
            ReduceOp.SUM,
            lambda x, a: np.sqrt(_SUM(x * x, a)),
            lambda x: x * x,
            lambda x, count: sqrt(x),
            is_real=True,
        ),
    ),
    _operator(
        "ReduceSumSquare",
        _Rule(ReduceOp.SUM, lambda x, a: _SUM(x * x, a), lambda x: x * x),
        joined_by="ReduceSum",
        derivative=_square_derivative,
    ),
    _operator(
        "ReduceLogSum",
        _Rule(
            ReduceOp.SUM,
            lambda x, a: np.log(_SUM(x, a)),
            after=lambda x, count: log(x),
            is_real=True,
        ),
    ),
    dataclasses.replace(
        _operator("ReduceLogSumExp", _Rule(ReduceOp.SUM, _log_sum_exp)),
        compute=_log_sum_exp_compute,
    ),
    GLOBAL_AVERAGE,
    _global("GlobalMaxPool", _MAXIMUM, Trait.EXACT),
    dataclasses.replace(
        _global("GlobalLpPool", _MEAN), reference=_global_lp, compute=_global_lp_compute
    ),
)
