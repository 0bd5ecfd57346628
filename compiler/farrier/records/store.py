"""The interface of a record store, and the store in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from farrier.records.record import Context, Pairs, RuleId, TuningRecord


class RecordStore(Protocol):
    """An append-only set of records.

    Adding is idempotent: a record that is already stored, field for field, is not stored twice and
    keeps its position, so a report that is delivered twice counts once. Once `add` has returned,
    `find` and iteration return the record, in the order of addition, as durably as the store
    promises. Names may be any text. Only one thread may use a store at a time.

    A persistent store returns the same records in the same order to the next object that opens it.
    It skips lines that it cannot parse, such as lines of another version or lines cut short by a
    crash.
    """

    def add(self, record: TuningRecord) -> None:
        """Add a record. Raises StorageError if the disk is full, ServiceError if the store cannot
        be reached. After such an error it is safe to add the record again, whether or not it was
        stored."""
        ...

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        """Return all records of a task on a target, of every status, rule, rule version and thread
        count. The caller may modify the list."""
        ...

    def __iter__(self) -> Iterator[TuningRecord]:
        """Yield every record that is stored when the iteration starts, and possibly records added
        later."""
        ...


class MemoryRecords:
    """A store in memory, which lasts as long as the object."""

    def __init__(self, records: Iterable[TuningRecord] = ()) -> None:
        self._records: dict[TuningRecord, None] = {}
        self._index: dict[tuple[str, str], list[TuningRecord]] = {}
        for record in records:
            self.add(record)

    def add(self, record: TuningRecord) -> None:
        if record not in self._records:
            self._records[record] = None
            self._index.setdefault((record.task, record.fingerprint), []).append(record)

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        return list(self._index.get((task, fingerprint), ()))

    def __iter__(self) -> Iterator[TuningRecord]:
        return iter(list(self._records))

    def __contains__(self, record: object) -> bool:
        return record in self._records

    def __len__(self) -> int:
        return len(self._records)


def usable(
    store: RecordStore, task: str, fingerprint: str, threads: int, *rules: RuleId
) -> list[TuningRecord]:
    """Return the records of a task that a build can use: they were measured with this target and
    number of threads, for one of these rules in its current version."""
    return [
        record
        for record in store.find(task, fingerprint)
        if record.made_by in rules
        and record.fingerprint == fingerprint
        and record.threads == threads
    ]


def best(
    store: RecordStore, task: str, fingerprint: str, threads: int, *rules: RuleId
) -> TuningRecord | None:
    """Return the fastest usable record of a candidate that ran with correct results.

    Records measured in a model take precedence over other records. Of the records of one schedule,
    only the latest counts. Records of screening (brief measurements) are ignored, because the
    fastest of many short runs is mostly luck.
    """
    records = usable(store, task, fingerprint, threads, *rules)
    ran = [r for r in records if r.samples_ns and r.context is not Context.SCREENED]
    in_model = [r for r in ran if r.context is Context.MODEL]
    return min(latest(in_model or ran).values(), key=lambda r: r.seconds, default=None)


def latest(records: Iterable[TuningRecord]) -> dict[Pairs, TuningRecord]:
    """Return the last record of each schedule, by its decisions, in the order of creation; it
    supersedes the earlier records of the schedule."""
    newest: dict[Pairs, TuningRecord] = {}
    for record in sorted(records, key=lambda r: r.created):
        newest.pop(record.decisions, None)
        newest[record.decisions] = record
    return newest
