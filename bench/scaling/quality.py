"""The quality of the schedules of a run after each trial, on one scale for all runs.

The service's own estimate (`best_ms`) replaces a prediction by the first measurement of a task and
may rise there, so a run with few measurements may look better than one with all. Here each task
begins at the time of its default schedule, as any of the runs measured it, and only falls.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from farrier.sdk.models import Task, Trial

# Pairs of seconds, and the model's milliseconds from then on.
Curve = Sequence[tuple[float, float]]


def defaults_us(tasks: Sequence[Task], trials: Sequence[Trial]) -> dict[str, float]:
    """Microseconds of the default schedule of each task, as the trials of a run have it; of a task
    whose default was not measured, those of its first candidate that ran."""
    default = {task.task: dict(task.default) for task in tasks}
    first: dict[str, float] = {}
    times: dict[str, float] = {}
    for trial in trials:
        if trial.us is None or trial.context != "alone":
            continue
        first.setdefault(trial.task, trial.us)
        if dict(trial.decisions) == default.get(trial.task):
            times.setdefault(trial.task, trial.us)
    return first | times


def curve(
    tasks: Sequence[Task], trials: Sequence[Trial], start_us: Mapping[str, float], begin: float
) -> Curve:
    """The latency of the model over seconds since `begin`, which is in Unix seconds: the sum over
    all tasks of `start_us` of the best time until then. It falls from point to point."""
    calls = {entry.task: entry.calls for entry in tasks}
    best = dict(start_us)
    total_us = sum(calls.get(task, 0) * us for task, us in best.items())
    points = [(0.0, total_us / 1e3)]
    for trial in sorted(trials, key=lambda entry: entry.created):
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
    """Return when a curve reaches a latency, or None."""
    return next((when for when, level in points if level <= ms), None)
