"""The effect of each knob of a kernel's schedule, a decision such as a tile size: the trials of a
task, grouped by the values of the knobs."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from farrier.records import Context, TuningRecord
from farrier_farm.jobs.trials import TrialFilter, TrialOrder, Trials
from farrier_farm.records.records import Records

LOOKED_AT = 1000  # the fastest trials


@dataclasses.dataclass(frozen=True, slots=True)
class ValueBrought:
    """The trials whose schedule has a given value of a knob. The times are taken from the
    successful trials only."""

    value: int
    trials: int
    best_us: float | None
    median_us: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """The trials for each value of each knob, with the values in order; `trials` is the number of
    trials examined."""

    trials: int
    best_us: float | None
    knobs: Mapping[str, Sequence[ValueBrought]]


def choices(trials: Trials, records: Records, job_id: str, task: str) -> Choices:
    """Return the trials of a task grouped by knob: the trials that were measured on the kernel
    alone or, if there are none, the trials in the whole model, since the times of both kinds are
    not comparable. Raises ServiceError if Redis is out of reach."""
    wanted = TrialFilter(task)
    listed, _ = trials.list(
        job_id, after="", limit=LOOKED_AT, wanted=wanted, order=TrialOrder.FASTEST
    )
    if not listed:  # An older version added the trials, and did not sort them.
        listed, _ = trials.list(
            job_id, after="", limit=LOOKED_AT, wanted=wanted, order=TrialOrder.NEWEST
        )
    parsed = []
    for line in records.lines([trial.record for trial in listed]):
        with contextlib.suppress(ValueError):  # The record is a newer version's.
            parsed += [] if line is None else [TuningRecord.from_line(line)]
    for context in (Context.ALONE, Context.MODEL):
        compared = [record for record in parsed if record.context is context]
        if compared:
            return _choices(compared)
    return Choices(0, None, {})


def _choices(records: Sequence[TuningRecord]) -> Choices:
    by_knob: dict[str, dict[int, list[float | None]]] = defaultdict(lambda: defaultdict(list))
    times = [record.seconds * 1e6 if record.samples_ns else None for record in records]
    for record, us in zip(records, times, strict=True):
        for knob, value in record.decisions:
            by_knob[knob][value].append(us)
    return Choices(
        trials=len(records),
        best_us=min((us for us in times if us is not None), default=None),
        knobs={
            knob: [_brought(value, times_us) for value, times_us in sorted(by_value.items())]
            for knob, by_value in sorted(by_knob.items())
        },
    )


def _brought(value: int, times: Sequence[float | None]) -> ValueBrought:
    ran = [us for us in times if us is not None]
    best, median = (min(ran), statistics.median(ran)) if ran else (None, None)
    return ValueBrought(value, len(times), best, median)
