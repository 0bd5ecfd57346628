"""Rewrite Range whose limits or step are known only at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.ir.dim import Extent

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder


def places(count: Extent, builder: Builder) -> str:
    """Return the name of an i64 vector with 0, 1, 2, … below `count`."""
    return builder.add("Range", 0, count, 1)


def range_(node: RawNode, builder: Builder) -> RawNode:
    """Rewrite a Range: compute the number of its elements, and multiply 0, 1, 2, … by the step."""
    if all(builder.data(name) is not None for name in node.inputs):
        return node
    start, limit, step = (_scalar(name, builder) for name in node.inputs)
    dtype = builder.dtype(start)
    count = builder.add("Max", _steps(start, limit, step, builder), 0)
    # A step of zero has no count.
    is_none = builder.add("Equal", step, builder.constant(np.zeros((), dtype.numpy)))
    count = builder.add("Where", is_none, -1, count)
    at = builder.add("Cast", places(builder.sizes(count).item(), builder), to=str(dtype))
    offsets = builder.add("Mul", at, step)
    return RawNode("Add", [start, offsets], node.outputs, {}, node.origin)


def _steps(start: str, limit: str, step: str, builder: Builder) -> str:
    """Return the name of the number of steps from start to limit, rounded up, in i64. It is zero or
    negative for an empty range."""
    kind = builder.dtype(start)
    wide = "f64" if kind.is_float else "i64"
    start, limit, step = (builder.add("Cast", name, to=wide) for name in (start, limit, step))
    span = builder.add("Sub", limit, start)
    if kind.is_float:
        return builder.add("Cast", builder.add("Ceil", builder.add("Div", span, step)), to="i64")
    # The count is -(-span // step). A quotient that is rounded towards zero is less by 1 where
    # operands of one sign leave a remainder.
    whole = builder.add("Div", span, step)
    rest = builder.add("Sub", span, builder.add("Mul", whole, step))
    inexact = builder.add("Cast", builder.add("Mul", rest, step), to="i64")
    more = builder.add("Cast", builder.add("Greater", inexact, 0), to="i64")
    return builder.add("Add", whole, more)


def _scalar(name: str, builder: Builder) -> str:
    """Return the operand reshaped to a scalar."""
    if builder.shape(name) == ():
        return name
    return builder.add("Reshape", name, [])
