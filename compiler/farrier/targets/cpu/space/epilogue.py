"""Where the elementwise stages of a kernel are computed: as values, beside their reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from farrier.ir.expr import (
    Binary,
    BinaryOp,
    ByteTable,
    Expr,
    Load,
    MemoryScope,
    Select,
    Unary,
    UnaryOp,
)
from farrier.ir.special import FUNCTIONS
from farrier.ir.tensor import Stage
from farrier.ir.walk import children, walk
from farrier.schedule import Schedule

_SERIES = frozenset(map(UnaryOp, FUNCTIONS))
_SERIES_COST = 15  # a polynomial, in operations
_DIVISION_COST = 4
_TABLE_COST = 4  # of a machine that declares how it looks bytes up


def inline_once(schedule: Schedule, stages: Sequence[Stage]) -> list[Stage]:
    """Inlines every stage but the last that is read at one place, and returns the others, in order,
    for `keep_values`. Call it before loops are split."""
    kept = []
    for stage in stages[:-1]:
        if reads_of(stage.buffer.name, stages) <= 1:
            schedule.inline(stage.buffer.name)
        else:
            kept.append(stage)
    return kept


def keep_values(schedule: Schedule, stages: Iterable[Stage], loop: str, lane_axis: int) -> None:
    """Computes what several expressions read once, as values, within `loop`, whose body is a vector
    along the axis at `lane_axis`. The last stage is placed first: it reads the others."""
    for stage in reversed(list(stages)):
        schedule.compute_at(stage.buffer.name, loop)
        schedule.set_scope(stage.buffer.name, MemoryScope.REGISTER)
        loops = [f"{stage.buffer.name}_{axis.name}" for axis in stage.axes]
        lane = loops.pop(lane_axis)
        if loops:
            schedule.reorder(*loops, lane)
        schedule.vectorize(lane)


def reads_of(buffer: str, stages: Iterable[Stage]) -> int:
    """At how many places the stages read a buffer."""
    nodes = (node for stage in stages for node in walk(stage.body))
    return sum(isinstance(node, Load) and node.buffer.name == buffer for node in nodes)


def operations(stages: Iterable[Stage]) -> int:
    """Arithmetic operations an element, a function of libm counted as its series. Addresses and
    tests for padding are left out: they are computed once a vector, or leave the loop."""
    return sum(_operations(stage.body) for stage in stages)


def _operations(expr: Expr) -> int:
    inner = children(expr)
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
            inner = [condition, then, otherwise] if own else [then, otherwise]
        case ByteTable():
            own = _TABLE_COST
        case _:
            own = 0
    return own + sum(_operations(child) for child in inner)
