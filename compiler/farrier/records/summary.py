"""Summaries of records: counts for each rule, and the fastest schedules."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping

from farrier.records.record import Context, TuningRecord
from farrier.records.store import latest


@dataclasses.dataclass(frozen=True, slots=True)
class RuleSummary:
    """The number of records of one rule on one device class ("" for records without one). `tasks`
    is the number of distinct tasks; `oldest` and `newest` are creation times in Unix seconds."""

    device_class: str
    rule: str
    records: int
    tasks: int
    failed: int
    oldest: float
    newest: float


@dataclasses.dataclass(frozen=True, slots=True)
class KnownSchedule:
    """A schedule of a task, by its latest record: `us` is the time of an undisturbed call in
    microseconds, `created` in Unix seconds. Times of different contexts are not comparable."""

    device_class: str
    fingerprint: str
    threads: int
    rule: str
    version: int
    context: str
    decisions: Mapping[str, int]
    us: float
    created: float

    @classmethod
    def of(cls, record: TuningRecord) -> KnownSchedule:
        return cls(
            device_class=record.device_class,
            fingerprint=record.fingerprint,
            threads=record.threads,
            rule=record.rule,
            version=record.version,
            context=record.context.value,
            decisions=record.knobs,
            us=record.seconds * 1e6,
            created=record.created,
        )


def summarize(records: Iterable[TuningRecord]) -> list[RuleSummary]:
    """Summarize records by device class and rule. Only the names of tasks are held in memory, not
    the records."""
    tasks: dict[tuple[str, str], set[str]] = defaultdict(set)
    counts: dict[tuple[str, str], tuple[int, int, float, float]] = {}
    for record in records:
        key = record.device_class, record.rule
        tasks[key].add(record.task)
        number, failed, oldest, newest = counts.get(key, (0, 0, record.created, record.created))
        counts[key] = (
            number + 1,
            failed + (not record.samples_ns),
            min(oldest, record.created),
            max(newest, record.created),
        )
    return [
        RuleSummary(*key, number, len(tasks[key]), failed, oldest, newest)
        for key, (number, failed, oldest, newest) in sorted(counts.items())
    ]


def fastest(records: Iterable[TuningRecord], limit: int) -> list[KnownSchedule]:
    """Return the `limit` fastest schedules of a task for each device class, target, thread count
    and context; schedules measured in a model come first. Records of screening are ignored."""
    groups: dict[tuple[str, str, int, str], list[TuningRecord]] = defaultdict(list)
    for record in records:
        if record.samples_ns and record.context is not Context.SCREENED:
            place = record.device_class, record.fingerprint, record.threads
            groups[*place, "" if record.context is Context.MODEL else "alone"].append(record)
    schedules: list[KnownSchedule] = []
    for _, group in sorted(groups.items()):
        rules: dict[tuple[str, int], list[TuningRecord]] = defaultdict(list)
        for record in group:
            rules[record.rule, record.version].append(record)
        newest = [record for each in rules.values() for record in latest(each).values()]
        newest.sort(key=lambda record: record.seconds)
        schedules += map(KnownSchedule.of, newest[:limit])
    return schedules
