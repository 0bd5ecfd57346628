"""Where records live: the contract of a store, and the one that lives in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from farrier.records.record import Context, Pairs, RuleId, TuningRecord


class RecordStore(Protocol):
    """An append-only set of records.

    Adding is idempotent: a record that is there already, field for field, is not stored twice and
    keeps its place, so a report that is delivered twice counts once. What `add` returned from is
    found by `find` and by iteration, in the order of addition, and survives whatever the store
    promises to survive. Names may be any text. One thread uses a store at a time.

    A store that outlives its object gives another object the same records in the same order. It
    passes over lines that it cannot read: another version wrote them, or a crash cut them short.
    """

    def add(self, record: TuningRecord) -> None:
        """Raises StorageError where there is no room for the record, ServiceError where the store
        is out of reach. To add it again is right then, whether or not it was kept."""
        ...

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        """All records of a task on a target: every status, every version of every
        rule, any thread count. The list is the caller's."""
        ...

    def __iter__(self) -> Iterator[TuningRecord]:
        """Every record that was there when the iteration began; those that are added meanwhile may
        follow."""
        ...


class MemoryRecords:
    """A store that lasts as long as its object."""

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
    """The records that say something about this build: of this target and thread count, and of
    one of these rules in this version."""
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
    """The fastest usable record that ran and was right, of those measured in a model if there are
    any, and of each schedule the latest. What was screened decides nothing: the fastest of many
    short runs is the luckiest."""
    known = usable(store, task, fingerprint, threads, *rules)
    ran = [r for r in known if r.samples_ns and r.context is not Context.SCREENED]
    in_model = [r for r in ran if r.context is Context.MODEL]
    return min(latest(in_model or ran).values(), key=lambda r: r.seconds, default=None)


def latest(records: Iterable[TuningRecord]) -> dict[Pairs, TuningRecord]:
    """The last record of each schedule, by its decisions, in the order in which they were made:
    the earlier ones of a schedule have no say in anything."""
    found: dict[Pairs, TuningRecord] = {}
    for record in sorted(records, key=lambda r: r.created):
        found.pop(record.decisions, None)
        found[record.decisions] = record
    return found
