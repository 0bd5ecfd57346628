"""Report each task of a variant, with its schedule and share of time, to a listener."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from farrier.compile_pool.choose import ScheduledTask
from farrier.model_tuning.compare import total
from farrier.model_tuning.variant import Variant
from farrier.progress import TaskSchedule, TasksScheduled

_AT_ONCE = 100  # The most tasks in one event.


def schedule_events(
    variant: Variant, sizes: Mapping[str, int], before: Variant | None = None
) -> Iterator[TasksScheduled]:
    """Yield an event for each task of a variant, in the order of the model; the variant is for
    these hot sizes. Tasks that only the variant `before` had are reported with 0 calls."""
    choices = {choice.task.key: choice for choice in variant.choices.values()}
    if before is not None:
        for choice in before.choices.values():
            choices.setdefault(choice.task.key, dataclasses.replace(choice, calls=0))
    whole = sum(map(total, choices.values())) or 1.0
    rows = [_row(choice, total(choice) / whole) for choice in choices.values()]
    for first in range(0, len(rows), _AT_ONCE):
        yield TasksScheduled(rows[first : first + _AT_ONCE], dict(sizes))


def _row(choice: ScheduledTask, share: float) -> TaskSchedule:
    space, default = choice.space, choice.space.default()
    rule = space.rule_of(choice.decisions)
    return TaskSchedule(
        task=choice.task.key,
        name=choice.task.name,
        calls=choice.calls,
        share=share,
        rule=rule.name,
        version=rule.version,
        space=space.derived_size,
        default=default,
        default_us=space.seconds(default) * 1e6,
        decisions=dict(choice.decisions),
        source=choice.source,
        predicted_us=space.seconds(choice.decisions) * 1e6,
        measured_us=None if choice.measured_s is None else choice.measured_s * 1e6,
    )
