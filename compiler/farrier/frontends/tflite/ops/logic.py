"""Rules of comparisons, logic and selects."""

from __future__ import annotations

import functools

from farrier.frontends.builder import Builder
from farrier.frontends.tflite.call import Call, Rule
from farrier.ops import Mismatch


def _binary(call: Call, b: Builder, *, op: str) -> str:
    return b.add(op, call.value(0), call.value(1))


def _unequal(call: Call, b: Builder) -> str:
    return b.add("Not", b.add("Equal", call.value(0), call.value(1)))


def _select(call: Call, b: Builder) -> str:
    """Convert SELECT: a vector of conditions selects entire rows of tensors of higher rank."""
    condition, x, y = call.values()[:3]
    rank, shape = len(b.shape(x)), b.shape(condition)
    if len(shape) == 1 and rank > 1:
        if shape[0] != b.shape(x)[0]:
            raise Mismatch(f"{shape[0]} conditions for {b.shape(x)[0]} rows")
        condition = b.add("Reshape", condition, [shape[0], *(1,) * (rank - 1)])
    return b.add("Where", condition, x, y)


def _select_v2(call: Call, b: Builder) -> str:
    return b.add("Where", *call.values()[:3])


_OPS = {
    "EQUAL": "Equal",
    "GREATER": "Greater",
    "GREATER_EQUAL": "GreaterOrEqual",
    "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual",
    "LOGICAL_AND": "And",
    "LOGICAL_OR": "Or",
}
RULES: dict[str, Rule] = {
    **{name: functools.partial(_binary, op=op) for name, op in _OPS.items()},
    "NOT_EQUAL": _unequal,
    "SELECT": _select,
    "SELECT_V2": _select_v2,
}
