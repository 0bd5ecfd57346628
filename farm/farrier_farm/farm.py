"""The farm as one object: what every role opens first."""

from __future__ import annotations

import dataclasses

from farrier_farm.blobs import BlobStore
from farrier_farm.devices import Devices
from farrier_farm.events import Events
from farrier_farm.jobs import Job, Jobs
from farrier_farm.measurements import Measurements
from farrier_farm.records import Records
from farrier_farm.settings import Settings


@dataclasses.dataclass(frozen=True, slots=True)
class Farm:
    settings: Settings
    jobs: Jobs
    events: Events
    devices: Devices
    measurements: Measurements
    records: Records
    blobs: BlobStore

    @classmethod
    def open(cls, settings: Settings) -> Farm:
        """Connects to `settings.redis_url`, or to the embedded Valkey of `settings.home` that
        `embedded.start` has started. Raises ServiceError."""
        raise NotImplementedError

    def cancel(self, job_id: str) -> Job:
        """Cancels a job and drops its measurement batches; see `Jobs.cancel`."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises ServiceError or StorageError where Redis or the disk does not answer: readiness."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
