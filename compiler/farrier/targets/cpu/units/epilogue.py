"""The scheduling of a kernel's elementwise stages: they are inlined, or kept in registers next to
their reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from farrier.ir.expr import MemoryScope
from farrier.ir.tensor import Stage
from farrier.schedule import Schedule
from farrier.space.operations import reads_of


def inline_once(schedule: Schedule, stages: Sequence[Stage]) -> list[Stage]:
    """Inline every stage that is read at a single place, except the last stage. Return the
    remaining stages, in order, for `keep_values`. Must be called before loops are split."""
    kept = []
    for stage in stages[:-1]:
        if reads_of(stage.buffer.name, stages) <= 1:
            schedule.inline(stage.buffer.name)
        else:
            kept.append(stage)
    return kept


def keep_values(schedule: Schedule, stages: Iterable[Stage], loop: str, lane_axis: int) -> None:
    """Compute each of `stages`, which are read at several places, once, in registers. They are
    computed within `loop`, whose body is one vector along the axis with the number `lane_axis`. The
    last stage is placed first, since later stages read earlier ones."""
    for stage in reversed(list(stages)):
        schedule.compute_at(stage.buffer.name, loop)
        schedule.set_scope(stage.buffer.name, MemoryScope.REGISTER)
        loops = [f"{stage.buffer.name}_{axis.name}" for axis in stage.axes]
        lane = loops.pop(lane_axis)
        if loops:
            schedule.reorder(*loops, lane)
        schedule.vectorize(lane)
