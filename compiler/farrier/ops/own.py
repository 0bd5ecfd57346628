"""Farrier's own operators, which no model has: passes put them in."""

from __future__ import annotations

from farrier.ir.expr import Buffer
from farrier.ir.graph import Node
from farrier.ir.types import TensorType
from farrier.ops.builder import Builder
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Kind,
    Operator,
    Types,
    present,
    required,
)


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    """The logical type; the layout is the pass's choice and stands in the output's type."""
    x = required(types, 0)
    return (TensorType(x.dtype, x.shape),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    return (present(arrays, 0),)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    x = builder.operand(node, inputs, 0)
    return (builder.output(node, x),)


OPERATORS: tuple[Operator, ...] = (
    # The same tensor in another layout: a copy, where nothing can be fused with it.
    Operator("Relayout", Kind.ELEMENTWISE, _infer, _reference, _compute),
)
