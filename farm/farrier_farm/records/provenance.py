"""The records of one job: each says which devices it is from, and none is of an emulated one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from farrier.records import MemoryRecords, RecordStore, TuningRecord
from farrier_farm.devices.classes import MeasurementTarget
from farrier_farm.measurements.runner import FarmRunner


class JobRecords:
    """Implements `RecordStore` on the farm's `records`, for a job that is measured at `place`.

    A record names the devices that it is from, as the job's process says; where that is no device
    that measured for this attempt, it is from all that did. What an emulated device measures
    decides within its job, and is forgotten with it: it says nothing of the hardware.
    """

    def __init__(self, records: RecordStore, place: MeasurementTarget, runner: FarmRunner) -> None:
        self._records = MemoryRecords() if place.emulated else records
        self._place = place
        self._runner = runner

    def add(self, record: TuningRecord) -> None:
        measured, reported = self._runner.measured_by, record.measured_by
        devices = reported if reported and reported <= measured else measured
        self._records.add(
            dataclasses.replace(
                record,
                device_class=self._place.device_class,
                device=",".join(sorted(devices)),
            )
        )

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        return self._records.find(task, fingerprint)

    def __iter__(self) -> Iterator[TuningRecord]:
        return iter(self._records)
