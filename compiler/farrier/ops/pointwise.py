"""Elementwise operators with broadcasting, from scalar formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, Unpack

import numpy as np

from farrier.ir.expr import Buffer, Expr
from farrier.ir.graph import Node
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops import layout
from farrier.ops.builder import Builder, attributes_of
from farrier.ops.derivative import Slope, by_slope
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
    differ,
    required,
)
from farrier.ops.scalar import Scalar

Formula: TypeAlias = Callable[..., Scalar]  # (attrs, *operands)
Numpy: TypeAlias = Callable[..., Array]  # (attrs, *arrays)
Result: TypeAlias = Callable[[Types, Attrs], DType]


def first_dtype(types: Types, attrs: Attrs) -> DType:
    """Check that all inputs have the same dtype, and return it as the dtype of the output."""
    dtype = required(types, 0).dtype
    for position, other in enumerate(types):
        if other is not None and other.dtype is not dtype:
            raise Mismatch(f"input 0 is {dtype} and input {position} is {other.dtype}")
    return dtype


def boolean(types: Types, attrs: Attrs) -> DType:
    """Check that all inputs have the same dtype, and return BOOL as the dtype of the output."""
    first_dtype(types, attrs)
    return DType.BOOL


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Apply numpy's broadcasting to shapes; raises Mismatch naming the two that clash.

    A dim never counts as 1, even if 1 is in its range: it must equal an extent other than 1, and
    raises Undecided if that depends on its value.
    """
    result: Shape = ()
    for shape in shapes:
        rank = max(len(result), len(shape))
        left, right = ((1,) * (rank - len(s)) + s for s in (result, shape))
        if any(1 not in (a, b) and differ(a, b) for a, b in zip(left, right, strict=True)):
            raise Mismatch(f"shapes {result} and {shape} do not broadcast")
        result = tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))
    return result


def pointwise(
    name: str,
    formula: Formula,
    reference: Numpy,
    *,
    result: Result = first_dtype,
    **facts: Unpack[Facts],
) -> Operator:
    """Declare an operator whose output element is `formula(attrs, *inputs)`; `reference` computes
    the same on numpy arrays, and `result` infers the output's dtype."""

    def infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
        if not types:
            raise Mismatch("it has no inputs")
        shapes = [kind.shape for kind in types if kind is not None]
        dtype = result(types, attrs)
        return (TensorType(dtype, broadcast_shapes(*shapes)),)

    def refer(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return (np.asarray(reference(attrs, *arrays)),)

    def compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
        attrs = attributes_of(node)
        operands = [builder.optional(node, inputs, i) for i in range(len(node.inputs))]

        def body(*indices: Expr) -> Scalar:
            return formula(attrs, *(o and o.broadcast(*indices) for o in operands))

        return (builder.output(node, body),)

    return Operator(
        name,
        Kind.ELEMENTWISE,
        infer,
        refer,
        compute,
        layout=layout.elementwise,
        **facts,
    )


def function(
    name: str,
    formula: Callable[[Scalar], Scalar],
    reference: Callable[[Array], Array],
    slope: Slope | None = None,
    *,
    result: Result = first_dtype,
    **facts: Unpack[Facts],
) -> Operator:
    """Declare an elementwise operator of one operand; `slope` is its derivative, if it has one."""
    if slope is not None:
        facts["derivative"] = by_slope(slope)
    return pointwise(
        name, lambda attrs, x: formula(x), lambda attrs, x: reference(x), result=result, **facts
    )
