"""Which records go when somebody prunes, and in which order."""

from __future__ import annotations

import dataclasses
import heapq
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable

from farrier.errors import UsageError
from farrier.records.record import Context, TuningRecord
from farrier.records.selection import ALL, Selection
from farrier.records.store import latest


@dataclasses.dataclass(frozen=True, slots=True)
class Pruning:
    """Forgets the records of a selection. Of each task, rule and device class the `keep` fastest
    schedules stay, those measured alone and those in the model, each by its latest record: what
    `best` finds stays what it was. Raises UsageError where nothing says what is to go."""

    selection: Selection
    keep: int | None = None

    def __post_init__(self) -> None:
        if self.selection == ALL and self.keep is None:
            raise UsageError(
                "nothing says which records are to go",
                hint="choose by device class, age, failure or version, or say how many to keep",
            )
        if self.keep is not None and self.keep < 1:
            raise UsageError(f"{self.keep} schedules cannot be kept", hint="keep 1 or more")

    def records_to_remove(self, records: Collection[TuningRecord]) -> list[TuningRecord]:
        """Of all records of a task on a target, those that go, in an order in which they can be
        removed: stopped anywhere and begun again, it ends with the same.

        An older record of a schedule goes before the latest, and the latest only with all of the
        older ones: else one that it has corrected would count again.
        """
        chosen = [record for record in records if self.selection.admits(record)]
        if self.keep is None:
            return chosen
        newest = _newest(records)
        fastest = set(_fastest(newest.values(), self.keep))
        corrected = {
            _schedule(record)
            for record in records
            if _counts(record)
            and not self.selection.admits(record)
            and newest[_schedule(record)] != record
        }
        before, after = [], []
        for record in chosen:
            if newest.get(_schedule(record)) != record:
                before.append(record)
            elif record not in fastest and _schedule(record) not in corrected:
                after.append(record)
        return before + after


def _counts(record: TuningRecord) -> bool:
    """Whether `best` looks at it."""
    return bool(record.samples_ns) and record.context is not Context.SCREENED


def _kind(record: TuningRecord) -> Hashable:
    """What records are compared with each other."""
    return record.fingerprint, record.threads, record.made_by, record.context


def _schedule(record: TuningRecord) -> Hashable:
    return record.task, _kind(record), record.decisions


def _newest(records: Iterable[TuningRecord]) -> dict[Hashable, TuningRecord]:
    """The last record of each schedule that counts."""
    kinds: dict[Hashable, list[TuningRecord]] = defaultdict(list)
    for record in records:
        if _counts(record):
            kinds[record.task, _kind(record)].append(record)
    return {
        _schedule(record): record for kind in kinds.values() for record in latest(kind).values()
    }


def _fastest(records: Iterable[TuningRecord], number: int) -> Iterable[TuningRecord]:
    """So many of each kind and device class."""
    groups: dict[Hashable, list[TuningRecord]] = defaultdict(list)
    for record in records:
        groups[record.task, _kind(record), record.device_class].append(record)
    for group in groups.values():
        yield from heapq.nsmallest(number, group, key=lambda record: record.seconds)
