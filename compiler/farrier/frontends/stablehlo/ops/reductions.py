"""Rules of reductions: a reduction for each result, or ArgMax and ArgMin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farrier.frontends.stablehlo.module import Block
from farrier.frontends.stablehlo.ops import bodies
from farrier.frontends.stablehlo.scope import Scope
from farrier.frontends.stablehlo.table import hlo
from farrier.ir.types import DType

REDUCE = {
    "add": "ReduceSum",
    "and": "ReduceMin",
    "maximum": "ReduceMax",
    "minimum": "ReduceMin",
    "multiply": "ReduceProd",
    "or": "ReduceMax",
}
COMBINE = {
    "add": "Add",
    "and": "And",
    "maximum": "Max",
    "minimum": "Min",
    "multiply": "Mul",
    "or": "Or",
}


@hlo("stablehlo.reduce")
def reduce(s: Scope, *operands: str) -> tuple[str, ...]:
    count = len(operands) // 2
    inputs, inits = operands[:count], operands[count:]
    [region] = s.operation.regions
    axes = s.ints_of("dimensions")
    if count == 2 and (op := _arg_op(region)):
        return _with_positions(s, op, inputs, axes)
    names = [name for name, _, _ in region.arguments]
    results = []
    for place, (x, init, result) in enumerate(zip(inputs, inits, region.returned, strict=True)):
        body = bodies.combined_by(s, region, names[place], names[count + place], result)
        if body not in REDUCE:
            raise bodies.unknown(s, region)
        results.append(combined(s, body, _reduced(s, body, x, axes), init))
    return tuple(results)


def _reduced(s: Scope, body: str, x: str, axes: Sequence[int]) -> str:
    if not axes:
        return x
    dtype, rank = s.dtype(x), s.rank(x)
    if s.b.has_channels_first(x) and sorted(axes) == list(range(1, rank - 1)):
        x, axes = s.b.channels_first(x), range(2, rank)
    if dtype is not DType.BOOL:
        return s.node(REDUCE[body], x, s.ints(axes), keepdims=0)
    return s.cast(s.node(REDUCE[body], s.cast(x, DType.I32), s.ints(axes), keepdims=0), dtype)


def combined(s: Scope, body: str, x: str, init: str) -> str:
    """Return the reduction `x` combined with the initial value `init` by the operation `body`. If
    `init` is the identity of the operation, return `x`."""
    data = s.b.data(init)
    if data is not None and data.ndim == 0 and _changes_nothing(body, data):
        return x
    return s.node(COMBINE[body], x, init)


def _changes_nothing(body: str, init: np.ndarray) -> bool:
    dtype, value = init.dtype, init.item()
    if body in ("add", "or"):
        return not value
    if body in ("multiply", "and"):
        return bool(value == 1)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return bool(value == (limits.min if body == "maximum" else limits.max))
    return bool(float(value) == (-np.inf if body == "maximum" else np.inf))


def _arg_op(region: Block) -> str:
    """Return `ArgMax` or `ArgMin` if the region reduces pairs (value, position) to the pair with
    the greatest or least value and, of equal values, the first position. Return "" for any other
    region."""
    if len(region.arguments) != 4:
        return ""
    value, place, other, other_place = (name for name, _, _ in region.arguments)
    directions = {
        operation.operands: bodies.direction_of(operation)
        for operation in region.operations
        if bodies.direction_of(operation)
    }
    if directions.get((place, other_place)) != "LT":
        return ""
    compared = {
        bodies.direction_of(operation)
        for operation in region.operations
        if operation.operands == (value, other) and bodies.direction_of(operation) != "EQ"
    }
    ops = {"GT": "ArgMax", "GE": "ArgMax", "LT": "ArgMin", "LE": "ArgMin"}
    matching = {ops.get(direction, "") for direction in compared - {""}}
    return matching.pop() if len(matching) == 1 else ""


def _with_positions(
    s: Scope, op: str, inputs: Sequence[str], axes: Sequence[int]
) -> tuple[str, ...]:
    [axis] = axes
    values, positions = inputs
    place = s.node(op, values, axis=axis, keepdims=1)
    best, chosen = (
        s.node("Squeeze", s.node("GatherElements", x, place, axis=axis), s.ints([axis]))
        for x in (values, positions)
    )
    return best, chosen
