"""The tuning records of a single job. Each record names the devices that measured it; records of
emulated devices are not stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from farrier.records import MemoryRecords, RecordStore, TuningRecord
from farrier_farm.devices.classes import MeasurementTarget
from farrier_farm.measurements.runner import FarmRunner


class JobRecords:
    """A `RecordStore` for a job that is measured at `place`, on top of the farm's `records`.

    A record names its devices as the job's process reports them. If the record names a device that
    did not measure for this attempt, all devices that did are named instead. Measurements of an
    emulated device are used only within their job and are not stored, since they do not describe
    the hardware.
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
