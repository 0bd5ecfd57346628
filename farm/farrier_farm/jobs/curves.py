"""How a job's best time fell: of its model and of each task, over trials and over seconds.

farrier:job:curve:<id>   list of points of the model: `<trial> <seconds> <ms>`
farrier:job:curves:<id>  hash: task → its points, `<trial> <seconds> <ns>`, with `;` between them

The scripts that say an event (`leases.lua`) and add a trial (`records.py`) draw them, at the cost
of one point (`curves.lua`), so no number of trials makes a curve long, and none pushes its
beginning out. That of the model is of the estimate that the compiler tells: it may rise, where the
first measurement of a task replaces a prediction. Those of tasks are of trials of the kernel alone,
and fall. All of it is forgotten with the job's events."""

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
    """From here on the best time was `time`: of the model in milliseconds, of a task in
    nanoseconds. Seconds are since the job began."""

    trial: int
    seconds: float
    time: float


@dataclasses.dataclass(frozen=True, slots=True)
class TaskCurve:
    """The curve of one task. Its trials are counted from its first one. `name`, `calls` and `share`
    are as in `farrier.progress.TaskSchedule`."""

    task: str
    name: str
    calls: int
    share: float
    points: Sequence[Point]


@dataclasses.dataclass(frozen=True, slots=True)
class JobCurve:
    """`event` is the id of an event of the job; all that was said until then is in the curve.
    `trials` is how many the model's curve has gone on for."""

    event: str
    trials: int
    points: Sequence[Point]
    tasks: Sequence[TaskCurve]


class Curves:
    """Raises ServiceError where Redis is out of reach."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self, job_id: str, most: int, most_of_task: int) -> JobCurve:
        """The curves of a job, of at most so many points each: 3 or more. Raises NotFoundError.

        Of a job that an older version ran, it is what its events tell that are kept, and of each
        task the best time alone."""
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
                _of_task(task, schedules.get(task, {}), thinned(found, most_of_task))
                for task, found in tasks.items()
            ],
        )

    def _from_events(self, job_id: str, began: float) -> list[Point]:
        found: list[Point] = []
        past = before = 0
        for entry, fields in self._client.command("XRANGE", f"{_PREFIX}events:{job_id}", "-", "+"):
            event = json.loads(fields["data"])
            if event["kind"] != "trials-measured":
                continue
            past += before if event["trials"] < before else 0
            before = event["trials"]
            time = event["best_ms"]
            if time is not None and not (found and found[-1].time == time):
                seconds = max(0.0, int(entry.partition("-")[0]) / 1000 - began)
                found.append(Point(past + before, round(seconds, 3), time))
        return found

    def _from_best(self, job_id: str, tasks: Iterable[str]) -> dict[str, list[Point]]:
        names = list(tasks)
        words = [f"{task} {word}" for task in names for word in ("trials", "alone")]
        found = self._client.command("HMGET", f"{_PREFIX}found:{job_id}", *words) if words else []
        numbers = zip(names, found[::2], found[1::2], strict=True)
        return {
            task: [Point(int(trials), 0.0, float(ns))]
            for task, trials, ns in numbers
            if trials and ns
        }


def thinned(points: Sequence[Point], most: int) -> Sequence[Point]:
    """At most so many of the points, 3 or more: the first, the last and the lowest, and of the
    others those whose step is seen best. As in `curves.lua`, of three neighbours one stays at least
    before all are looked at anew."""
    if most < 3:
        raise ValueError(f"a curve of {most} points shows nothing")
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
    """What is not seen where point `n` is left out."""
    before, here, after = points[n - 1 : n + 2]
    return abs(here.time - before.time) * (after.trial - here.trial)


def _read(texts: Iterable[str]) -> list[Point]:
    words = [text.split() for text in texts]
    return [Point(int(trial), float(seconds), float(time)) for trial, seconds, time in words]


def _of_task(task: str, schedule: Mapping[str, Any], points: Sequence[Point]) -> TaskCurve:
    """A task whose schedule nobody has told yet has its key for a name."""
    return TaskCurve(
        task=task,
        name=str(schedule.get("name", task)),
        calls=int(schedule.get("calls", 0)),
        share=float(schedule.get("share", 0.0)),
        points=points,
    )


def _number(text: str | None) -> int:
    """Of a field that is JSON: a number, null, or missing."""
    return 0 if text in (None, "null") else int(text)
