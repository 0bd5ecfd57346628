"""Operators that select elements by an index tensor: Gather, GatherElements, GatherND, OneHot."""

from __future__ import annotations

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import Extent, number
from farrier.ir.expr import Buffer, Expr
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops import positions
from farrier.ops.builder import Builder, attributes_of
from farrier.ops.conversion import converted, np_converted
from farrier.ops.indexing import bounded, checked_indices, position
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
    clash,
    int_attr,
    normal_axis,
    present,
    required,
    static_extents,
)
from farrier.ops.scalar import Scalar, cast, equal, maximum, minimum, scalar, where
from farrier.ops.traits import Moves


def _gather_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, indices = required(types, 0), checked_indices(types)
    axis = axis_attr(attrs, x.rank)
    return (TensorType(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])),)


def _gather_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, indices = present(arrays, 0), present(arrays, 1)
    axis = axis_attr(attrs, x.ndim)
    return (np.asarray(np.take(x, bounded(indices, x.shape[axis]), axis=axis)),)


def _gather_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, indices = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    axis = axis_attr(attributes_of(node), x.rank)

    def body(*at: Expr) -> Scalar:
        chosen = indices(*at[axis : axis + indices.rank])
        rest = at[axis + indices.rank :]
        return x(*at[:axis], position(chosen, x.shape[axis]).expr, *rest)

    return (builder.output(node, body),)


def _elements_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, indices = required(types, 0), checked_indices(types)
    axis = axis_attr(attrs, x.rank)
    if x.rank != indices.rank or any(
        wanted > extent
        for a, (wanted, extent) in enumerate(zip(indices.shape, x.shape, strict=True))
        if a != axis
    ):
        raise Mismatch(f"indices {indices.shape} do not fit an input {x.shape} beside axis {axis}")
    return (TensorType(x.dtype, indices.shape),)


def _elements_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, indices = present(arrays, 0), present(arrays, 1)
    axis = axis_attr(attrs, x.ndim)
    grid: list[Array] = list(np.indices(indices.shape, sparse=True))
    grid[axis] = bounded(indices, x.shape[axis])
    return (x[tuple(grid)],)


def _elements_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, indices = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    axis = axis_attr(attributes_of(node), x.rank)

    def body(*at: Expr) -> Scalar:
        return x(*at[:axis], position(indices(*at), x.shape[axis]).expr, *at[axis + 1 :])

    return (builder.output(node, body, hint="gather_elements"),)


def _nd(types: Types, attrs: Attrs) -> tuple[TensorType, TensorType, int, int]:
    """Return four values for a GatherND: the type of the input, the type of the indices, the number
    of batch axes, and the number of input axes that an index tuple addresses. An index tuple is a
    row along the last axis of the indices."""
    x, indices = required(types, 0), checked_indices(types)
    batch = int_attr(attrs, "batch_dims", 0)
    depth = number(indices.shape[-1]) if indices.rank else 0
    if not 1 <= depth <= x.rank - batch or clash(x.shape[:batch], indices.shape[:batch]):
        raise Mismatch(
            f"indices {indices.shape} do not fit an input {x.shape} with {batch} batch axes"
        )
    return x, indices, batch, depth


def _nd_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, indices, batch, depth = _nd(types, attrs)
    return (TensorType(x.dtype, (*indices.shape[:-1], *x.shape[batch + depth :])),)


def _nd_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, indices = present(arrays, 0), present(arrays, 1)
    batch = int_attr(attrs, "batch_dims", 0)
    lead = indices.shape[:-1]
    grid: list[Array] = list(np.indices(lead, sparse=True)[:batch])
    for depth in range(indices.shape[-1]):
        grid.append(bounded(indices[..., depth], x.shape[batch + depth]))
    return (x[tuple(grid)],)


def _nd_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x, indices = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    batch, depth = int(node.attr("batch_dims", 0)), number(indices.shape[-1])

    def body(*at: Expr) -> Scalar:
        lead, rest = at[: indices.rank - 1], at[indices.rank - 1 :]
        named = (
            position(indices(*lead, named_axis), x.shape[batch + named_axis]).expr
            for named_axis in range(depth)
        )
        return x(*at[:batch], *named, *rest)

    return (builder.output(node, body, hint="gather_nd"),)


def _one_hot(types: Types, constants: Constants, attrs: Attrs) -> tuple[Extent, int]:
    """Return the number of classes, and the position of the class axis in the output."""
    depth = static_extents(types, constants, 1, "depth") or (0,)
    return depth[0], axis_attr(attrs, required(types, 0).rank + 1, -1)


def _one_hot_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    indices, values = required(types, 0), required(types, 2)
    depth, axis = _one_hot(types, constants, attrs)
    if values.shape != (2,):
        raise Mismatch(f"values have shape {values.shape}, and must be [off, on]")
    return (TensorType(values.dtype, (*indices.shape[:axis], depth, *indices.shape[axis:])),)


def _one_hot_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    indices, values = present(arrays, 0), present(arrays, 2)
    depth = int(present(arrays, 1).reshape(-1)[0])
    axis = axis_attr(attrs, indices.ndim + 1, -1)
    chosen = np_converted(indices, DType.I64)
    wrapped = np.where(chosen < 0, chosen + depth, chosen)
    classes = np.arange(depth).reshape([-1 if a == axis else 1 for a in range(indices.ndim + 1)])
    return (np.where(np.expand_dims(wrapped, axis) == classes, values[1], values[0]),)


def _one_hot_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    indices, values = builder.operand(node, inputs, 0), builder.operand(node, inputs, 2)
    depth = (builder.extents(node, 1) or (0,))[0]
    axis = normal_axis(int(node.attr("axis", -1)), indices.rank + 1)

    def body(*at: Expr) -> Scalar:
        chosen = converted(indices(*at[:axis], *at[axis + 1 :]), DType.I64)
        wrapped = where(chosen < 0, chosen + depth, chosen)
        return where(equal(wrapped, scalar(e.index(at[axis]))), values(1), values(0))

    return (builder.output(node, body, hint="one_hot"),)


def _sequence_axes(attrs: Attrs, rank: int) -> tuple[int, int]:
    """Return ReverseSequence's batch axis (sequences) and time axis (their steps)."""
    batch, time = (int_attr(attrs, name, d) for name, d in (("batch_axis", 1), ("time_axis", 0)))
    if {batch, time} != {0, 1} or rank < 2:
        raise Mismatch(f"sequences along axis {batch} and steps along {time} of rank {rank}")
    return batch, time


def _reverse_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, lengths = required(types, 0), checked_indices(types)
    batch, _ = _sequence_axes(attrs, x.rank)
    if clash(lengths.shape, (x.shape[batch],)):
        raise Mismatch(f"lengths {lengths.shape} of {x.shape[batch]} sequences")
    return (TensorType(x.dtype, x.shape),)


def _reverse_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, lengths = present(arrays, 0), present(arrays, 1)
    batch, time = _sequence_axes(attrs, x.ndim)
    out = x.swapaxes(0, batch).copy()  # [sequence, step, ...]
    for sequence, length in enumerate(np.clip(lengths, 0, x.shape[time])):
        out[sequence, :length] = out[sequence, :length][::-1].copy()
    return (np.ascontiguousarray(out.swapaxes(0, batch)),)


def _reverse_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    """Declare the stage of ReverseSequence: the steps of each sequence in reverse order; steps
    beyond the sequence's length keep their positions."""
    x, lengths = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    batch, time = _sequence_axes(attributes_of(node), x.rank)

    def body(*at: Expr) -> Scalar:
        declared = cast(lengths(at[batch]), DType.I64)
        length = minimum(maximum(declared, 0), x.shape[time])
        step = scalar(at[time])
        source = where(step < length, length - 1 - step, step).expr
        return x(*(source if axis == time else index for axis, index in enumerate(at)))

    return (builder.output(node, body, hint="reverse_sequence"),)


GATHER = Operator(
    "Gather",
    Kind.INJECTIVE,
    _gather_infer,
    _gather_reference,
    _gather_compute,
    moves=Moves.REPEATED,
    positions=positions.along_axis,
)
OPERATORS: tuple[Operator, ...] = (
    Operator(
        "ReverseSequence",
        Kind.INJECTIVE,
        _reverse_infer,
        _reverse_reference,
        _reverse_compute,
        moves=Moves.ONCE,
    ),
    GATHER,
    Operator(
        "GatherElements",
        Kind.INJECTIVE,
        _elements_infer,
        _elements_reference,
        _elements_compute,
        moves=Moves.REPEATED,
        positions=positions.along_axis,
    ),
    Operator(
        "GatherND",
        Kind.INJECTIVE,
        _nd_infer,
        _nd_reference,
        _nd_compute,
        moves=Moves.REPEATED,
        positions=positions.by_rows,
    ),
    Operator(
        "OneHot",
        Kind.INJECTIVE,
        _one_hot_infer,
        _one_hot_reference,
        _one_hot_compute,
        frozenset({1}),
    ),
)
