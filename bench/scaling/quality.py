"""How good the schedules of a run are after each trial, on one scale for all runs.

The service's own estimate (`best_ms`) replaces a prediction by the first measurement of a task and
may rise there, so a run that has measured little may look better than one that has measured all.
Here each task begins at the time that its default schedule takes, as any of the runs measured it,
and only falls.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from farrier.sdk.models import Task, Trial

Curve = Sequence[tuple[float, float]]  # seconds, and milliseconds of the model from then on


def defaults_us(tasks: Sequence[Task], trials: Sequence[Trial]) -> dict[str, float]:
    """Microseconds of the default schedule of each task, as the trials of a run have it; of a task
    whose default was not measured, those of its first candidate that ran."""
    default = {one.task: dict(one.default) for one in tasks}
    first: dict[str, float] = {}
    found: dict[str, float] = {}
    for trial in trials:
        if trial.us is None or trial.context != "alone":
            continue
        first.setdefault(trial.task, trial.us)
        if dict(trial.decisions) == default.get(trial.task):
            found.setdefault(trial.task, trial.us)
    return first | found


def curve(
    tasks: Sequence[Task], trials: Sequence[Trial], start_us: Mapping[str, float], begin: float
) -> Curve:
    """The latency of the model over seconds since `begin`, which is in Unix seconds: the sum over
    all tasks of `start_us` of the best time until then. It falls from point to point."""
    calls = {one.task: one.calls for one in tasks}
    best = dict(start_us)
    total_us = sum(calls.get(task, 0) * us for task, us in best.items())
    points = [(0.0, total_us / 1e3)]
    for trial in sorted(trials, key=lambda one: one.created):
        if trial.context != "alone" or trial.us is None or trial.us >= best.get(trial.task, 0.0):
            continue
        total_us -= calls.get(trial.task, 0) * (best[trial.task] - trial.us)
        best[trial.task] = trial.us
        points.append((max(0.0, trial.created - begin), total_us / 1e3))
    return points


def at(points: Curve, seconds: float) -> float:
    """Milliseconds of the model at a time."""
    place = bisect.bisect_right([when for when, _ in points], seconds)
    return points[max(0, place - 1)][1]


def reached_s(points: Curve, ms: float) -> float | None:
    """When a curve comes down to a latency; None where it does not."""
    return next((when for when, found in points if found <= ms), None)
