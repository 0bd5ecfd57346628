"""How much arithmetic a program is: the numerator of every GFLOP/s."""

from __future__ import annotations

import math

from farrier.ir.expr import Binary, Cast, Expr, Reduce, Select, Unary, dtype_of
from farrier.ir.tensor import Program, Stage
from farrier.ir.types import DType

# What indices and conditions on them are made of.
_OF_INDICES = frozenset((DType.I64, DType.BOOL))


def arithmetic(program: Program) -> int:
    """Operations on data, at every point of every stage: a multiply-add counts two, a function
    such as exp one, an index none. Padding is counted as if it were data, as is usual."""
    return sum(map(_of_stage, program.stages))


def _of_stage(stage: Stage) -> int:
    points = math.prod(axis.extent for axis in stage.axes)
    body, each = stage.body, 0
    if isinstance(body, Reduce):
        points *= math.prod(axis.extent for axis in body.axes)
        body, each = body.body, 1
    return points * (each + _of_value(body, set()))


def _of_value(expr: Expr, seen: set[int]) -> int:
    """Operations of one value; a part that stands in several places of it is computed once."""
    if id(expr) in seen:
        return 0
    seen.add(id(expr))
    match expr:
        case Unary(_, operand):
            return _counts(operand) + _of_value(operand, seen)
        case Binary(_, left, right):
            return _counts(left) + _of_value(left, seen) + _of_value(right, seen)
        case Select(condition, then, otherwise):
            return sum(_of_value(part, seen) for part in (condition, then, otherwise))
        case Cast(_, operand):
            return _of_value(operand, seen)
        case _:
            return 0


def _counts(operand: Expr) -> int:
    return int(dtype_of(operand) not in _OF_INDICES)
