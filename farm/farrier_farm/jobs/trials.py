"""The trials of a job, and the present schedules of its tasks, in pages for viewers of the job.

farrier:job:trials:<id>  stream: an entry for each measured candidate, with the digest of its tuning
                         `record`, its `task`, `context`, `status` and nanoseconds; about the
                         newest `trials_kept`
farrier:job:fastest:<id> sorted set: for each trial `<task> <ns> <id>` and ` <ns> <id>`, so that the
                         trials of a task, or all, are in the order of their times; failed trials
                         come last
farrier:job:found:<id>   hash: `<task> <what>` → a number: `trials`, `failed`, the nanoseconds of
                         the best trial `alone` and in the `model`, and of the first successful one
                         (`first alone`, `first model`)
farrier:job:measured:<id> hash: a digest of a candidate and its context → `<fence> <n> <most>`: the
                         last attempt at the job that added a record of the candidate, the number of
                         its records, and the largest number of an attempt
farrier:job:rows:<id>    list of the rows of tasks, in the order of their kernels in the model
farrier:job:tasks:<id>   hash: row → its task and the present schedule of the task, as JSON

The script that adds a tuning record for a job also adds the trial (`records.py`). A page costs the
same for any number of trials. All data expires with the job's events. Nothing is added for a job
that is not running.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.errors import UsageError
from farrier.progress import TasksScheduled
from farrier.records import TuningRecord
from farrier_farm.redis.connection import Client

_PREFIX = "farrier:job:"
_OF_A_TRIAL = ("item", "trials", "found", "curves", "fastest", "measured")
_OF_A_TASK = ("trials", "failed", "first alone", "first model", "alone", "model")
_LOOKED_AT = 1000  # The entries that a page of one task's trials examines.

_NOTE = """
if redis.call('HGET', KEYS[1], 'state') ~= 'running' then return 0 end
for i = 1, #ARGV, 2 do
  if redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('RPUSH', KEYS[3], ARGV[i])
  end
end
return 1
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """A measured candidate. `id` grows with time ("<ms>-<n>"); `record` is the digest of the
    trial's tuning record."""

    id: str
    record: str
    task: str


class TrialOrder(enum.StrEnum):
    """The order in which trials are listed."""

    OLDEST = "oldest"
    NEWEST = "newest"
    FASTEST = "fastest"  # Trials that this version added; failed ones come last.


@dataclasses.dataclass(frozen=True, slots=True)
class TrialFilter:
    """A filter for trials; "" matches all. The entries of trials of an older version lack status
    and context, so such entries pass, and the filter is applied to their records."""

    task: str = ""
    status: str = ""
    context: str = ""

    @property
    def looks_within_task(self) -> bool:
        return bool(self.status or self.context)

    def admits(self, fields: Mapping[str, str]) -> bool:
        """Return whether a trial matches the filter, according to the fields of its entry or of its
        record."""
        wanted = {"task": self.task, "status": self.status, "context": self.context}
        return all(fields.get(name, text) == text for name, text in wanted.items() if text)


ALL = TrialFilter()


@dataclasses.dataclass(frozen=True, slots=True)
class JobTask:
    """A task of a job. `schedule` has the fields of `farrier.progress.TaskSchedule`, perhaps with
    fields of newer versions; `sizes` are the values of dynamic dimensions, by symbol, for which the
    task is specialized. The times, in seconds, are the times of the first and of the best
    successful trial of the task in this job, measured on the kernel alone and in the model; the
    times of the first trial are None for a job of an older version."""

    schedule: dict[str, Any]
    trials: int
    failed: int
    first_alone_s: float | None
    first_in_model_s: float | None
    best_alone_s: float | None
    best_in_model_s: float | None


class Trials:
    """The trials of all jobs. Every method raises ServiceError if Redis is out of reach. For an
    unknown job, lists of tasks and trials are empty."""

    def __init__(self, client: Client, kept: int) -> None:
        self._kept = kept
        self._client = client
        self._note = client.script(_NOTE)

    def trial(
        self, job_id: str, record: TuningRecord, fence: int | None
    ) -> tuple[list[str], list[str | int]]:
        """Return the keys and arguments with which the script of `records.py` adds a record as a
        trial of a job. The arguments are the context, the nanoseconds of an undisturbed call (""
        for a failed trial), the number of trials to keep, the status, the fence (number) of the
        lease of the attempt that measured the trial ("" for any attempt), and the digest of the
        candidate."""
        keys = [f"{_PREFIX}{name}:{job_id}" for name in _OF_A_TRIAL]
        ns = repr(record.seconds * 1e9) if record.samples_ns else ""
        words: list[str | int] = [record.context, ns, self._kept, record.status]
        return keys, [*words, "" if fence is None else fence, _candidate(record)]

    def schedule(self, job_id: str, event: TasksScheduled) -> None:
        """Store the present schedules of tasks of a running job."""
        mark = ",".join(f"{symbol}={size}" for symbol, size in sorted(event.sizes.items()))
        words: list[str] = []
        for task in event.tasks:
            row = f"{task.task}@{mark}" if mark else task.task
            fields = {**dataclasses.asdict(task), "sizes": event.sizes}
            words += [row, json.dumps(fields, separators=(",", ":"))]
        keys = [f"{_PREFIX}{name}:{job_id}" for name in ("item", "tasks", "rows")]
        self._note(keys, words)

    def tasks(self, job_id: str, first: int, limit: int) -> tuple[list[JobTask], int | None]:
        """Return at most `limit` tasks, starting with task number `first`, and the number of the
        first task of the next page; None on the last page."""
        last = first + limit
        rows = self._client.command("LRANGE", f"{_PREFIX}rows:{job_id}", first, last)
        page = rows[:limit]
        schedules = [json.loads(text) for text in self._read("tasks", job_id, page) if text]
        names = [f"{schedule['task']} {word}" for schedule in schedules for word in _OF_A_TASK]
        numbers = iter(self._read("found", job_id, names))
        tasks = [
            _task(schedule, dict(zip(_OF_A_TASK, numbers, strict=False))) for schedule in schedules
        ]
        return tasks, last if len(rows) > limit else None

    def list(
        self,
        job_id: str,
        *,
        after: str,
        limit: int,
        wanted: TrialFilter = ALL,
        order: TrialOrder = TrialOrder.OLDEST,
    ) -> tuple[list[Trial], str]:
        """Return trials after the id `after`, and the `after` of the next page, "" on the last
        page. With a filter, a limited number of trials is examined, so a page before the last may
        have fewer than `limit` trials, or none. Raises UsageError if the order is by time and the
        trial `after` has been dropped."""
        count = limit
        if order is TrialOrder.FASTEST:
            if wanted.looks_within_task:
                # Each trial has two entries in the index, of which one matches.
                count = max(limit, _LOOKED_AT // 2)
            entries = self._fastest(job_id, after, count + 1, wanted.task)
        else:
            if wanted != ALL:
                count = max(limit, _LOOKED_AT)
            newest = order is TrialOrder.NEWEST
            bounds = ["+", "-"] if newest else ["-", "+"]
            bounds[0] = f"({after}" if after else bounds[0]
            words = ("XREVRANGE" if newest else "XRANGE", f"{_PREFIX}trials:{job_id}", *bounds)
            entries = self._client.command(*words, "COUNT", count + 1)
        page: list[Trial] = []
        for entry, fields in entries[:count]:
            trial = Trial(entry, fields["record"], fields["task"])
            if wanted.admits(fields):
                page.append(trial)
            if len(page) == limit:
                return page, "" if entry == entries[-1][0] else entry
        return page, entries[count - 1][0] if len(entries) > count else ""

    def _fastest(self, job_id: str, after: str, count: int, task: str) -> Sequence[Any]:
        """Return the stream entries of at most `count` trials of `task` (of all tasks for ""),
        sorted by time and following the trial `after`. Raises UsageError if the trial `after` was
        dropped."""
        stream, first = f"{_PREFIX}trials:{job_id}", f"[{task} "
        if after:
            last_entries = self._client.command("XRANGE", stream, after, after)
            if not last_entries or "ns" not in last_entries[0][1]:
                raise UsageError(
                    f"the trial {after!r} is no longer kept", hint="begin with the first page"
                )
            first = f"({task} {float(last_entries[0][1]['ns'] or 1e18):022.1f} {after}"
        places = self._client.command(
            *("ZRANGE", f"{_PREFIX}fastest:{job_id}", first, f"({task}!", "BYLEX"),
            *("LIMIT", 0, count),
        )
        ids = [place.rpartition(" ")[2] for place in places]
        if not ids:
            return []
        rows = self._client.commands(("XRANGE", stream, trial_id, trial_id) for trial_id in ids)
        return [entries[0] for entries in rows if entries]

    def _read(self, name: str, job_id: str, fields: Sequence[str]) -> Sequence[str | None]:
        if not fields:
            return []
        values: Sequence[str | None] = self._client.command(
            "HMGET", f"{_PREFIX}{name}:{job_id}", *fields
        )
        return values


def _candidate(record: TuningRecord) -> str:
    """Return a digest of the candidate in a record, without the result of its measurement."""
    schedule = record.rule, record.version, record.decisions
    parts = record.task, record.fingerprint, record.threads, *schedule, record.context
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _task(schedule: Mapping[str, Any], numbers: Mapping[str, str | None]) -> JobTask:
    """Return the task with this schedule. `numbers` are the values that the hash `found` stores for
    the task, by name."""

    def seconds(name: str) -> float | None:
        ns = numbers[name]
        return None if ns is None else float(ns) * 1e-9

    return JobTask(
        schedule=dict(schedule),
        trials=int(numbers["trials"] or 0),
        failed=int(numbers["failed"] or 0),
        first_alone_s=seconds("first alone"),
        first_in_model_s=seconds("first model"),
        best_alone_s=seconds("alone"),
        best_in_model_s=seconds("model"),
    )
