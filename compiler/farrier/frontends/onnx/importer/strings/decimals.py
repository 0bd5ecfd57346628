"""Rewrite casts between integers and strings of decimal digits."""

from __future__ import annotations

from typing import Any

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.frontends.onnx.importer.strings.codes import bind_strings, codes
from farrier.ir.types import DType
from farrier.ops import NotSupported

# The characters of the longest number of each type, with its sign.
_WIDTHS = {
    DType.I8: 4,
    DType.U8: 3,
    DType.I16: 6,
    DType.U16: 5,
    DType.I32: 11,
    DType.U32: 10,
    DType.I64: 20,
    DType.U64: 20,
    DType.BOOL: 1,
}
_POWERS = np.array([10**e for e in range(20)], np.uint64)
_ZERO, _MINUS = ord("0"), ord("-")


def to_strings(node: RawNode, scope: ImportScope) -> list[RawNode]:
    """Rewrite a Cast of integers to strings of their digits; bools become 1 and 0."""
    x = node.inputs[0]
    dtype = scope.dtype(x)
    if dtype not in _WIDTHS:
        raise NotSupported(f"a Cast of {dtype} to strings, which rounds to decimal digits,")
    last = scope.constant(ints([-1]))

    def c(value: Any, kind: type[np.generic] = np.int64) -> str:
        return scope.constant(np.array(value, kind))

    signed = scope.add("Unsqueeze", scope.add("Cast", x, to="i64"), last)
    size = scope.add("Unsqueeze", scope.add("Cast", x, to="u64"), last)
    negative = scope.add("Less", signed, c(0))
    if str(dtype).startswith("i"):
        opposite = scope.add("Sub", c(0, np.uint64), size)
        size = scope.add("Where", negative, opposite, size)
    else:
        negative = scope.add("And", negative, c(False, np.bool_))  # u64 from 2^63
    reached = scope.add("GreaterOrEqual", size, scope.constant(_POWERS[1:]))
    more = scope.add("ReduceSum", scope.add("Cast", reached, to="i64"), last, keepdims=1)
    # Position p has the digit of 10^(digits - 1 - p), one later behind a sign.
    sign = scope.add("Cast", negative, to="i64")
    positions = c(np.arange(_WIDTHS[dtype]))
    exponent = scope.add("Sub", scope.add("Add", more, sign), positions)
    power = scope.add("Gather", scope.constant(_POWERS), _within(exponent, scope), axis=0)
    digit = scope.add("Mod", scope.add("Div", size, power), c(10, np.uint64))
    points = scope.add("Add", scope.add("Cast", digit, to="u32"), c(_ZERO, np.uint32))
    is_past = scope.add("Less", exponent, c(0))
    points = scope.add("Where", is_past, c(0, np.uint32), points)
    is_sign = scope.add("And", negative, scope.add("Equal", positions, c(0)))
    points = scope.add("Where", is_sign, c(_MINUS, np.uint32), points)
    bind_strings(scope, node.outputs[0], points)
    return []


def from_strings(node: RawNode, to: DType, scope: ImportScope) -> list[RawNode]:
    """Rewrite a Cast of strings of decimal digits, with an optional sign, to integers."""
    if to not in _WIDTHS or to is DType.BOOL:
        raise NotSupported(f"a Cast of strings to {to}")
    points = scope.add("Cast", codes(scope, node.inputs[0]), to="i64")
    last = scope.constant(ints([-1]))

    def c(value: Any) -> str:
        return scope.constant(ints(value))

    digit = scope.add("Sub", points, c(_ZERO))
    at_least, at_most = (
        scope.add("GreaterOrEqual", digit, c(0)),
        scope.add("LessOrEqual", digit, c(9)),
    )
    is_digit = scope.add("And", at_least, at_most)
    counted = scope.add("Cast", is_digit, to="i64")
    # The number of digits that follow: all digits minus the digits up to here.
    total = scope.add("ReduceSum", counted, last, keepdims=1)
    follow = scope.add("Sub", total, scope.add("CumSum", counted, c(-1)))
    powers = scope.constant(_POWERS[:19].astype(np.int64))
    power = scope.add("Gather", powers, _within(follow, scope, 18), axis=0)
    worth = scope.add("Where", is_digit, scope.add("Mul", digit, power), c(0))
    size = scope.add("ReduceSum", worth, last, keepdims=0)
    is_minus = scope.add("Cast", scope.add("Equal", points, c(_MINUS)), to="i64")
    negative = scope.add("ReduceMax", is_minus, last, keepdims=0)
    sign = scope.add("Sub", c(1), scope.add("Add", negative, negative))
    value = scope.add("Mul", size, sign)
    return [RawNode("Cast", [value], node.outputs, {"to": str(to)}, node.origin)]


def _within(exponent: str, scope: ImportScope, most: int = 19) -> str:
    low, high = (scope.constant(ints(value)) for value in (0, most))
    return scope.add("Min", scope.add("Max", exponent, low), high)
