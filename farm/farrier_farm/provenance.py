"""The records of one job: each says which device it is from, and none is of an emulated one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from farrier.records import MemoryRecords, RecordStore, TuningRecord
from farrier_farm.classes import Place
from farrier_farm.runner import FarmRunner


class JobRecords:
    """Implements `RecordStore` on the farm's `records`, for a job that is measured at `place`.

    The device of a record is that which measured last. What an emulated device measures decides
    within its job, and is forgotten with it: it says nothing of the hardware.
    """

    def __init__(self, records: RecordStore, place: Place, runner: FarmRunner) -> None:
        self._records = MemoryRecords() if place.emulated else records
        self._place = place
        self._runner = runner

    def add(self, record: TuningRecord) -> None:
        self._records.add(
            dataclasses.replace(
                record, device_class=self._place.device_class, device=self._runner.device
            )
        )

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        return self._records.find(task, fingerprint)

    def __iter__(self) -> Iterator[TuningRecord]:
        return iter(self._records)
