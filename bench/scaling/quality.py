"""The quality of a run's schedules after each trial, comparable between runs.

The service's own estimate (`best_ms`) replaces a prediction by the first measurement of a task, at
which it may rise, so a run with few measurements may look better than a complete one. Here each
task starts with the time of its default schedule, measured in any of the runs, and only falls.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from farrier.sdk.models import Task, Trial

# Pairs of seconds, and the model's milliseconds from then on.
Curve = Sequence[tuple[float, float]]


def defaults_us(tasks: Sequence[Task], trials: Sequence[Trial]) -> dict[str, float]:
    """Return the microseconds of each task's default schedule, as measured in a run. If a task's
    default was not measured, its first successful candidate is used."""
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
    """Return the latency of the model over time: points (seconds since `begin`, ms). The latency is
    the sum over all tasks of `start_us` of the best time so far, so it never rises. `begin` is in
    Unix seconds."""
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
    """Return the latency of the model in ms after a number of seconds."""
    place = bisect.bisect_right([when for when, _ in points], seconds)
    return points[max(0, place - 1)][1]


def reached_s(points: Curve, ms: float) -> float | None:
    """Return the seconds after which a curve reaches a latency, or None if it never does."""
    return next((when for when, level in points if level <= ms), None)
