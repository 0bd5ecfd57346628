"""Rules of arithmetic on broadcast tensors."""

from __future__ import annotations

import functools

import numpy as np

from farrier.frontends.builder import Builder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.ops.activations import NONE, activated


def _binary(call: Call, b: Builder, *, op: str) -> str:
    result = b.add(op, call.value(0), call.value(1))
    return activated(b, result, call.operator.options.get("activation", NONE))


def _floor_div(call: Call, b: Builder) -> str:
    """Convert FLOOR_DIV. Integer division truncates, so 1 is subtracted if the signs differ and
    there is a remainder."""
    x, y = call.value(0), call.value(1)
    if b.dtype(x).is_float:
        return b.add("Floor", b.add("Div", x, y))
    return b.add("Div", b.add("Sub", x, b.add("Mod", x, y, fmod=0)), y)


def _floor_mod(call: Call, b: Builder) -> str:
    """Convert FLOOR_MOD: the remainder with the sign of the divisor."""
    x, y = call.value(0), call.value(1)
    if not b.dtype(x).is_float:
        return b.add("Mod", x, y, fmod=0)
    remainder = b.add("Mod", x, y, fmod=1)
    zero = b.constant(np.zeros((), b.dtype(x).numpy))
    signs_differ = b.add("Xor", b.add("Less", remainder, zero), b.add("Less", y, zero))
    is_off = b.add("And", signs_differ, b.add("Not", b.add("Equal", remainder, zero)))
    return b.add("Where", is_off, b.add("Add", remainder, y), remainder)


def _squared_difference(call: Call, b: Builder) -> str:
    difference = b.add("Sub", call.value(0), call.value(1))
    return b.add("Mul", difference, difference)


def _sum(call: Call, b: Builder) -> str:
    return b.add("Sum", *call.values())


RULES: dict[str, Rule] = {
    "ADD": functools.partial(_binary, op="Add"),
    "ADD_N": _sum,
    "DIV": functools.partial(_binary, op="Div"),
    "FLOOR_DIV": _floor_div,
    "FLOOR_MOD": _floor_mod,
    "MAXIMUM": functools.partial(_binary, op="Max"),
    "MINIMUM": functools.partial(_binary, op="Min"),
    "MUL": functools.partial(_binary, op="Mul"),
    "POW": functools.partial(_binary, op="Pow"),
    "SQUARED_DIFFERENCE": _squared_difference,
    "SUB": functools.partial(_binary, op="Sub"),
}
