"""Operators that return shapes, and operators with which models compute shapes.

The importer constant-folds them. A kernel computes the results that depend on sizes known only at
run time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from farrier.ir import expr as e
from farrier.ir.control import BIND, REQUIRE
from farrier.ir.dim import Dim, Extent, ceildiv, maximum
from farrier.ir.expr import Buffer, Expr
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops.builder import Builder
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Infer,
    Kind,
    Mismatch,
    NotStatic,
    Operator,
    TypeRule,
    Types,
    extents_array,
    int_attr,
    present,
    required,
    static_extents,
)
from farrier.ops.scalar import Scalar, cast, number, scalar, where
from farrier.ops.traits import Trait


def shape_bounds(attrs: Attrs, rank: int) -> slice:
    """Return the attributes `start` and `end` of Shape as a slice of the axes."""
    return slice(int_attr(attrs, "start", 0), int_attr(attrs, "end", rank))


def _of_type(name: str, infer: Infer, result: TypeRule) -> Operator:
    """Declare an operator whose result depends only on the type of its input."""

    def refer(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
        x = present(arrays, 0)
        return (result([TensorType(DType.from_numpy(x.dtype), x.shape)], attrs),)

    return Operator(name, Kind.OPAQUE, infer, refer, None, from_types=result)


def _shape_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    return (TensorType(DType.I64, (len(x.shape[shape_bounds(attrs, x.rank)]),)),)


def _shape(types: Types, attrs: Attrs) -> Array:
    x = required(types, 0)
    return extents_array(x.shape[shape_bounds(attrs, x.rank)])


def _size_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    required(types, 0)
    return (TensorType(DType.I64, ()),)


def _size(types: Types, attrs: Attrs) -> Array:
    return extents_array([required(types, 0).size]).reshape(())


def _range(types: Types, constants: Constants) -> tuple[Any, Any, Extent]:
    """Return Range's start and step, as numbers or symbolic dims, and the count of elements."""
    values = []
    for position in range(3):
        required(types, position)
        if position not in constants:
            raise NotStatic(f"its bound (input {position}) depends on data known only at run time")
        values += constants[position].reshape(-1).tolist()
    if any(isinstance(value, Dim) for value in values):
        values = [_whole(value) for value in values]
    start, limit, step = values
    if step == 0:
        raise Mismatch("a step of 0")
    span = limit - start
    is_float = isinstance(span, float) or isinstance(step, float)
    count = math.ceil(span / step) if is_float else ceildiv(span, step)
    return start, step, maximum(count, 0)


def _whole(value: float | Dim) -> Extent:
    """Return a bound of a Range as an integer, for a Range with another bound that is a symbolic
    dim. Raises NotStatic for a fraction."""
    if isinstance(value, float) and not value.is_integer():
        raise NotStatic(f"its length depends on {value} and on a size")
    return value if isinstance(value, Dim) else int(value)


def _range_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(required(types, 0).dtype, (_range(types, constants)[2],)),)


def _range_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    start, limit, step = (present(arrays, position) for position in range(3))
    count = max(math.ceil((limit.item() - start.item()) / step.item()), 0)
    return ((start + np.arange(count).astype(start.dtype) * step).astype(start.dtype),)


def _range_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    operands = [builder.constant(value) for value in node.inputs]
    constants = {position: data for position, data in enumerate(operands) if data is not None}
    start, step, _ = _range([value.type if value else None for value in node.inputs], constants)
    dtype = node.outputs[0].type.dtype

    def body(i: Expr) -> Scalar:
        return number(start, dtype) + cast(scalar(i), dtype) * number(step, dtype)

    return (builder.output(node, body),)


def _extents_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    return (TensorType(x.dtype, x.shape),)


def _extents_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    data = builder.constant(node.inputs[0])
    out = node.outputs[0].type
    assert data is not None

    def body(*at: Expr) -> Scalar:
        flat = e.index(0)
        for i, extent in zip(at, out.shape, strict=True):
            flat = e.add(e.mul(flat, extent), i)
        elements = [number(extent, out.dtype) for extent in data.reshape(-1).tolist()]
        value = elements[-1]
        for position in reversed(range(len(elements) - 1)):
            value = where(scalar(e.less(flat, position + 1)), elements[position], value)
        return value

    return (builder.output(node, body),)


def _bind_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, sizes = required(types, 0), required(types, 1)
    if x.dtype is not DType.I64 or x.shape != sizes.shape or 1 not in constants:
        raise Mismatch(f"the sizes {sizes.shape} of {x.shape} of {x.dtype}, which must be i64")
    return (x,)


def _filled_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    required(types, 0)
    shape = static_extents(types, constants, 0, "shape") or ()
    if any(extent < 0 for extent in shape):
        raise Mismatch(f"shape {shape} has a negative extent")
    return (TensorType(DType(str(attrs.get("dtype", "f32"))), shape),)


def _filled_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    """Return a read-only array of one element that is broadcast to the shape. It takes the memory
    of that element only."""
    shape = tuple(int(n) for n in present(arrays, 0))
    dtype = DType(str(attrs.get("dtype", "f32"))).numpy
    return (np.broadcast_to(np.asarray(attrs.get("value", 0), dtype), shape),)


def _eye_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    if x.rank != 2:
        raise Mismatch(f"its input {x.shape} is no matrix")
    return (TensorType(DType(str(attrs.get("dtype", x.dtype))), x.shape),)


def _eye(types: Types, attrs: Attrs) -> Array:
    (eye,) = _eye_infer(types, {}, attrs)
    rows, columns = eye.static_shape
    return np.eye(rows, columns, int_attr(attrs, "k", 0)).astype(eye.dtype.numpy)


OPERATORS: tuple[Operator, ...] = (
    _of_type("Shape", _shape_infer, _shape),
    _of_type("Size", _size_infer, _size),
    _of_type("EyeLike", _eye_infer, _eye),
    Operator(
        "Range",
        Kind.INJECTIVE,
        _range_infer,
        _range_reference,
        _range_compute,
        frozenset({0, 1, 2}),
    ),
    # Internal operator: a constant that depends on sizes known only when the model runs.
    Operator(
        "Extents",
        Kind.INJECTIVE,
        _extents_infer,
        lambda arrays, attrs: (present(arrays, 0),),
        _extents_compute,
        frozenset({0}),
    ),
    # Internal operator: after this node, the elements of the tensor equal the dims in the constant.
    Operator(
        BIND,
        Kind.CONTROL,
        _bind_infer,
        lambda arrays, attrs: (present(arrays, 0),),
        None,
        frozenset({1}),
    ),
    # Internal operator: checks that the elements of the tensor equal those of the constant.
    Operator(
        REQUIRE,
        Kind.CONTROL,
        _bind_infer,
        lambda arrays, attrs: (present(arrays, 0),),
        None,
        frozenset({1}),
    ),
    Operator(
        "ConstantOfShape",
        Kind.OPAQUE,
        _filled_infer,
        _filled_reference,
        None,
        frozenset({0}),
        traits=Trait.SHARES_MEMORY,
    ),
)
