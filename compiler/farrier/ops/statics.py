"""Operators that a model computes shapes with.

They have no kernel: once the inputs' shapes are known, the importer folds them.
"""

from __future__ import annotations

import math

import numpy as np

from farrier.ir.types import DType, TensorType
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Constants,
    Kind,
    Mismatch,
    NotStatic,
    Operator,
    Types,
    int_attr,
    present,
    required,
    static_ints,
)


def _shape_bounds(attrs: Attrs, rank: int) -> slice:
    return slice(int_attr(attrs, "start", 0), int_attr(attrs, "end", rank))


def _shape_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    return (TensorType(DType.I64, (len(x.shape[_shape_bounds(attrs, x.rank)]),)),)


def _shape_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    return (np.array(x.shape[_shape_bounds(attrs, x.ndim)], np.int64),)


def _size_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    required(types, 0)
    return (TensorType(DType.I64, ()),)


def _size_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    return (np.array(present(arrays, 0).size, np.int64),)


def _range_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    start = required(types, 0)
    for position in range(3):
        required(types, position)
        if position not in constants:
            raise NotStatic(f"its bound (input {position}) depends on data known only at run time")
    first, limit, step = (constants[position].item() for position in range(3))
    if step == 0:
        raise Mismatch("a step of 0")
    return (TensorType(start.dtype, (max(math.ceil((limit - first) / step), 0),)),)


def _range_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    start, limit, step = (present(arrays, position) for position in range(3))
    count = max(math.ceil((limit.item() - start.item()) / step.item()), 0)
    return ((start + np.arange(count).astype(start.dtype) * step).astype(start.dtype),)


def _filled_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    required(types, 0)
    shape = static_ints(types, constants, 0, "shape") or ()
    if min(shape, default=0) < 0:
        raise Mismatch(f"shape {shape} has a negative extent")
    return (TensorType(DType(str(attrs.get("dtype", "f32"))), shape),)


def _filled_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    """A read-only view of one element: a constant of any size takes no memory."""
    shape = tuple(int(n) for n in present(arrays, 0))
    dtype = DType(str(attrs.get("dtype", "f32"))).numpy
    return (np.broadcast_to(np.asarray(attrs.get("value", 0), dtype), shape),)


def _eye_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    if x.rank != 2:
        raise Mismatch(f"its input {x.shape} is no matrix")
    return (TensorType(DType(str(attrs.get("dtype", x.dtype))), x.shape),)


def _eye_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    rows, columns = x.shape
    dtype = DType(str(attrs["dtype"])).numpy if "dtype" in attrs else x.dtype
    return (np.eye(rows, columns, int_attr(attrs, "k", 0)).astype(dtype),)


OPERATORS: tuple[Operator, ...] = (
    Operator("Shape", Kind.OPAQUE, _shape_infer, _shape_reference, None),
    Operator("Size", Kind.OPAQUE, _size_infer, _size_reference, None),
    Operator("EyeLike", Kind.OPAQUE, _eye_infer, _eye_reference, None),
    Operator("Range", Kind.OPAQUE, _range_infer, _range_reference, None, frozenset({0, 1, 2})),
    Operator(
        "ConstantOfShape", Kind.OPAQUE, _filled_infer, _filled_reference, None, frozenset({0})
    ),
)
