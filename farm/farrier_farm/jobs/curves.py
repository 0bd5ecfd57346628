"""The tuning curves of a job: the best times of the model and of each task, over trials and over
seconds.

farrier:job:curve:<id>   list of points of the model: `<trial> <seconds> <ms>`
farrier:job:curves:<id>  hash: task → its points, `<trial> <seconds> <ns>`, with `;` between them

The scripts that add an event (`leases.lua`) and a trial (`records.py`) also add a point to the
curve (`curves.lua`). A curve stays short for any number of trials, and keeps its beginning. The
model's curve is the compiler's estimate: it may rise when the first measurement of a task replaces
a prediction. The curve of a task contains trials of the kernel alone, and never rises. All curves
expire with the job's events.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from farrier_farm.leases.leases import unknown
from farrier_farm.redis.connection import Client

_PREFIX = "farrier:job:"


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """A step of a curve: from this trial on, the best time was `time`, in milliseconds for a model,
    in nanoseconds for a task. Seconds count from the start of the job."""

    trial: int
    seconds: float
    time: float


@dataclasses.dataclass(frozen=True, slots=True)
class TaskCurve:
    """The curve of a task. Trials count from the first trial of the task. `name`, `calls` and
    `share` are the fields of `farrier.progress.TaskSchedule`."""

    task: str
    name: str
    calls: int
    share: float
    points: Sequence[Point]


@dataclasses.dataclass(frozen=True, slots=True)
class JobCurve:
    """The curves of a job. They include all events up to the one with the id `event`. `trials` is
    the trial up to which the model's curve extends."""

    event: str
    trials: int
    points: Sequence[Point]
    tasks: Sequence[TaskCurve]


class Curves:
    """The curves of all jobs. Every method raises ServiceError if Redis is out of reach."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self, job_id: str, most: int, most_of_task: int) -> JobCurve:
        """Return the curves of a job, with at most `most` points for the model and `most_of_task`
        points for each task; both limits must be at least 3. Raises NotFoundError.

        For a job that an older version ran, the model's curve is computed from the stored events,
        and the curve of a task has only its best time.
        """
        key = {name: f"{_PREFIX}{name}:{job_id}" for name in ("item", "curve", "curves", "tasks")}
        item = ("state", "started", "trials", "trials_past")
        newest, (state, started, trials, past), points, of_tasks, rows = self._client.commands(
            [
                ("XREVRANGE", f"{_PREFIX}events:{job_id}", "+", "-", "COUNT", 1),
                ("HMGET", key["item"], *item),
                ("LRANGE", key["curve"], 0, -1),
                ("HGETALL", key["curves"]),
                ("HVALS", key["tasks"]),
            ]
        )
        if state is None:
            raise unknown("job", job_id)
        schedules: dict[str, Mapping[str, Any]] = {}
        for schedule in map(json.loads, rows):
            schedules.setdefault(schedule["task"], schedule)
        began = int(started or 0) / 1000
        curve = _read(points) or self._from_events(job_id, began)
        tasks = {task: _read(text.split(";")) for task, text in of_tasks.items()}
        tasks = tasks or self._from_best(job_id, schedules)
        return JobCurve(
            event=newest[0][0] if newest else "",
            trials=int(past or 0) + _number(trials),
            points=thinned(curve, most),
            tasks=[
                _of_task(task, schedules.get(task, {}), thinned(of_task, most_of_task))
                for task, of_task in tasks.items()
            ],
        )

    def _from_events(self, job_id: str, began: float) -> list[Point]:
        points: list[Point] = []
        past = before = 0
        for entry, fields in self._client.command("XRANGE", f"{_PREFIX}events:{job_id}", "-", "+"):
            event = json.loads(fields["data"])
            if event["kind"] != "trials-measured":
                continue
            past += before if event["trials"] < before else 0
            before = event["trials"]
            time = event["best_ms"]
            if time is not None and not (points and points[-1].time == time):
                seconds = max(0.0, int(entry.partition("-")[0]) / 1000 - began)
                points.append(Point(past + before, round(seconds, 3), time))
        return points

    def _from_best(self, job_id: str, tasks: Iterable[str]) -> dict[str, list[Point]]:
        names = list(tasks)
        words = [f"{task} {word}" for task in names for word in ("trials", "alone")]
        fields = self._client.command("HMGET", f"{_PREFIX}found:{job_id}", *words) if words else []
        numbers = zip(names, fields[::2], fields[1::2], strict=True)
        return {
            task: [Point(int(trials), 0.0, float(ns))]
            for task, trials, ns in numbers
            if trials and ns
        }


def thinned(points: Sequence[Point], most: int) -> Sequence[Point]:
    """Return at most `most` of the points, which must be at least 3. The first, the last and the
    lowest point are always kept; of the others, the points whose removal changes the curve most.

    The algorithm is the same as in `curves.lua`: each pass removes at most one of each pair of
    neighbouring points.
    """
    if most < 3:
        raise ValueError(f"a curve needs at least 3 points, not {most}")
    kept = list(points)
    while len(kept) > most:
        lowest = min(range(len(kept)), key=lambda n: kept[n].time)
        going = []
        for n in range(1, len(kept) - 1, 2):
            pair = [m for m in (n, n + 1) if m < len(kept) - 1 and m != lowest]
            if pair:
                going.append(min((_step(kept, m), m) for m in pair))
        gone = {n for _, n in sorted(going)[: len(kept) - most]}
        kept = [point for n, point in enumerate(kept) if n not in gone]
    return kept


def _step(points: Sequence[Point], n: int) -> float:
    """Return the area between the curve and the same curve without point `n`: the error that the
    removal of the point would cause."""
    before, here, after = points[n - 1 : n + 2]
    return abs(here.time - before.time) * (after.trial - here.trial)


def _read(texts: Iterable[str]) -> list[Point]:
    words = [text.split() for text in texts]
    return [Point(int(trial), float(seconds), float(time)) for trial, seconds, time in words]


def _of_task(task: str, schedule: Mapping[str, Any], points: Sequence[Point]) -> TaskCurve:
    """Return the curve of a task. The task's name comes from its `schedule`; before a schedule was
    reported, the name is the key `task`."""
    return TaskCurve(
        task=task,
        name=str(schedule.get("name", task)),
        calls=int(schedule.get("calls", 0)),
        share=float(schedule.get("share", 0.0)),
        points=points,
    )


def _number(text: str | None) -> int:
    """Return the number in a JSON text; 0 for null or an empty text."""
    return 0 if text in (None, "null") else int(text)
