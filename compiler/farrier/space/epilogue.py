"""Where the elementwise stages of a kernel are computed: as values, beside their reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from farrier.ir.expr import Binary, Load, Scope, Select, Unary, UnaryOp
from farrier.ir.substitute import loads
from farrier.ir.tensor import Stage
from farrier.ir.walk import walk
from farrier.schedule import Schedule

_SERIES = frozenset((UnaryOp.EXP, UnaryOp.LOG, UnaryOp.ERF, UnaryOp.TANH, UnaryOp.SIN, UnaryOp.COS))
_SERIES_COST = 15  # a polynomial, in operations
_DIVISION_COST = 4


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
        schedule.set_scope(stage.buffer.name, Scope.REGISTER)
        loops = [f"{stage.buffer.name}_{axis.name}" for axis in stage.axes]
        lane = loops.pop(lane_axis)
        if loops:
            schedule.reorder(*loops, lane)
        schedule.vectorize(lane)


def reads_of(buffer: str, stages: Iterable[Stage]) -> int:
    """At how many places the stages read a buffer."""
    return sum(load.buffer.name == buffer for stage in stages for load in loads(stage.body))


def operations(stages: Iterable[Stage]) -> int:
    """Arithmetic operations an element, a function of libm counted as its series."""
    count = 0
    for stage in stages:
        for node in walk(stage.body):
            match node:
                case Unary(op, _):
                    count += _SERIES_COST if op in _SERIES else 1
                case Binary(op, _, _):
                    count += _DIVISION_COST if op.value in ("div", "pow") else 1
                case Select() | Load():
                    count += 1
    return count
