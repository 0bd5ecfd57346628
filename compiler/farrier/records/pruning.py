"""Pruning of records: the selection and the order of the records to remove."""

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
    """A rule for pruning the records of a selection.

    For each task, rule and device class, the `keep` fastest schedules are preserved. Those measured
    alone and those measured in the model are counted separately. The latest record of each such
    schedule stays, so that `best` returns the same record as before. Raises UsageError if no
    criterion is set.
    """

    selection: Selection
    keep: int | None = None

    def __post_init__(self) -> None:
        if self.selection == ALL and self.keep is None:
            raise UsageError(
                "no criterion selects the records to remove",
                hint="choose by device class, age, failure or version, or say how many to keep",
            )
        if self.keep is not None and self.keep < 1:
            raise UsageError(f"{self.keep} schedules cannot be kept", hint="keep 1 or more")

    def records_to_remove(self, records: Collection[TuningRecord]) -> list[TuningRecord]:
        """Return the records to remove out of `records`, all records of a task on a target, in a
        safe order: an interrupted removal that is repeated has the same result.

        An older record of a schedule is removed before the latest one, and the latest only together
        with all older ones: otherwise a record that the latest has corrected would count again.
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
    """Check whether `best` may choose this record."""
    return bool(record.samples_ns) and record.context is not Context.SCREENED


def _kind(record: TuningRecord) -> Hashable:
    """Return a key that is equal for records whose times are comparable."""
    return record.fingerprint, record.threads, record.made_by, record.context


def _schedule(record: TuningRecord) -> Hashable:
    return record.task, _kind(record), record.decisions


def _newest(records: Iterable[TuningRecord]) -> dict[Hashable, TuningRecord]:
    """Return the last record of each schedule, among the records that `best` considers."""
    kinds: dict[Hashable, list[TuningRecord]] = defaultdict(list)
    for record in records:
        if _counts(record):
            kinds[record.task, _kind(record)].append(record)
    return {
        _schedule(record): record for kind in kinds.values() for record in latest(kind).values()
    }


def _fastest(records: Iterable[TuningRecord], number: int) -> Iterable[TuningRecord]:
    """Yield the `number` fastest records of each task, kind and device class."""
    groups: dict[Hashable, list[TuningRecord]] = defaultdict(list)
    for record in records:
        groups[record.task, _kind(record), record.device_class].append(record)
    for group in groups.values():
        yield from heapq.nsmallest(number, group, key=lambda record: record.seconds)
