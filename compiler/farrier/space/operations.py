"""Count the operations and reads of stages for the analytic cost models."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import assert_never

from farrier.ir.dim import typical
from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    ByteTable,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Size,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.operands import operands
from farrier.ir.special import FUNCTIONS
from farrier.ir.tensor import Stage
from farrier.ir.walk import walk

# Cycles to join the lanes of one vector of partial results, which is little of a core's work.
JOIN_CYCLES = 12.0

_SERIES = frozenset(map(UnaryOp, FUNCTIONS))
_SERIES_COST = 15  # The polynomial of exp takes about fifteen operations.
_DIVISION_COST = 4  # A division occupies its port about as long as four multiplications.
_TABLE_COST = 4  # A machine that looks bytes up at once needs about four instructions for it.


def reads_of(buffer: str, stages: Iterable[Stage]) -> int:
    """Return the number of places in the stages' expressions at which a buffer is read."""
    nodes = (node for stage in stages for node in walk(stage.body))
    return sum(isinstance(node, Load) and node.buffer.name == buffer for node in nodes)


def count_points(axes: Iterable[Axis]) -> int:
    """Return the number of points in the product of the axes, at typical extents."""
    return math.prod(typical(axis.extent) for axis in axes)


def operations_of(expr: Expr) -> int:
    """Return the number of arithmetic operations of an expression, as `operations` counts them."""
    return _operations(expr)


def operations(stages: Iterable[Stage]) -> int:
    """Return the number of arithmetic operations for one element of the stages; a function of libm
    counts as the operations of its series. Address arithmetic and tests for padding are not
    counted: they are computed once per vector, or are moved out of the loop."""
    return sum(_operations(stage.body) for stage in stages)


def _operations(expr: Expr) -> int:
    inner = operands(expr)
    match expr:
        case Load():
            return 1
        case Unary(op, _):
            own = _SERIES_COST if op in _SERIES else 1
        case Binary(op, _, _):
            own = _DIVISION_COST if op.value in ("div", "pow") else 1
            own = _SERIES_COST if op is BinaryOp.SWISH else own
        case Select(condition, then, otherwise):
            own = 1 if any(isinstance(node, Load) for node in walk(condition)) else 0
            inner = inner if own else (then, otherwise)
        case ByteTable():
            own = _TABLE_COST
        case Const() | Var() | Size() | Cast() | Reduce():
            own = 0
        case _:
            assert_never(expr)
    return own + sum(_operations(child) for child in inner)
