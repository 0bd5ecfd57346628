"""The farm as one object: what every role opens first."""

from __future__ import annotations

import dataclasses
import logging

from farrier import progress
from farrier.errors import ServiceError
from farrier_farm import embedded
from farrier_farm.blobs import BlobStore
from farrier_farm.connection import Client, connect
from farrier_farm.devices import Devices
from farrier_farm.events import Events
from farrier_farm.jobs import REFERS, Job, Jobs
from farrier_farm.leases import Lease
from farrier_farm.measurements import Measurements
from farrier_farm.models import Models
from farrier_farm.patience import PATIENT, PROBE, Patience
from farrier_farm.records import ARCHIVES, Records
from farrier_farm.references import References
from farrier_farm.runner import FarmRunner
from farrier_farm.settings import Settings

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Farm:
    """Safe to share between threads."""

    settings: Settings
    client: Client
    jobs: Jobs
    events: Events
    devices: Devices
    measurements: Measurements
    records: Records
    blobs: BlobStore
    references: References
    models: Models

    @classmethod
    def open(cls, settings: Settings, patience: Patience = PATIENT) -> Farm:
        """Connects to `settings.redis_url`, or to the embedded Valkey of `settings.home` that
        `embedded.start` has started. Raises ServiceError, StorageError."""
        path = embedded.socket_path(settings.home)
        if settings.redis_url is None and not path.exists():
            raise ServiceError(
                f"no farm runs in {settings.home}",
                hint="start `farrier serve` there, or set REDIS_URL to the Redis of the farm",
            )
        blobs = BlobStore(settings)
        client = connect(settings.redis_url or f"unix://{path}", patience)
        for shortcoming in client.shortcomings():
            _log.warning("Redis at %s may lose jobs: %s", client.address, shortcoming)
        devices = Devices(client, settings)
        jobs = Jobs(client, settings, devices)
        return cls(
            settings=settings,
            client=client,
            jobs=jobs,
            events=Events(jobs),
            devices=devices,
            measurements=Measurements(client, settings, jobs, devices),
            records=Records(client, blobs),
            blobs=blobs,
            references=References(client),
            models=Models(client, blobs),
        )

    def cancel(self, job_id: str) -> Job:
        """Cancels a job and drops its measurement batches; see `Jobs.cancel`."""
        job = self.jobs.cancel(job_id)
        self.measurements.drop(job_id)
        return job

    def runner(
        self, target: str, job: Lease | None = None, listener: progress.Listener = progress.ignore
    ) -> FarmRunner:
        """What measures for one attempt of a job; `listener` hears that it waits for a device."""
        return FarmRunner(
            self.settings,
            self.measurements,
            self.devices,
            self.blobs,
            self.references,
            target,
            job,
            listener,
        )

    def check(self) -> None:
        """Raises ServiceError where Redis takes no connection or does not answer soon, StorageError
        where the disk does not: readiness."""
        connect(self.client.url, PROBE).close()
        self.blobs.check_room(0)

    def collect_garbage(self) -> int:
        """Removes blobs that nothing refers to and that are `blob_age_s` old, with abandoned
        uploads; returns bytes."""
        if self.references.adopting(self.settings.blob_age_s):
            self._adopt()
        return self.blobs.sweep(self.references.are_there, self.settings.blob_age_s)

    def _adopt(self) -> None:
        """Adds the references of what versions wrote that had none: of jobs and of archives, for a
        batch ends long before its blobs are old."""
        self.references.adopt_archives(ARCHIVES, self.records.archives())
        after = ""
        while True:
            ids = self.jobs.leases.members(after=after, limit=500)
            for job_id in ids:
                self.references.adopt(self.jobs.leases.key(job_id), REFERS)
            if not ids:
                return self.references.adopted()
            after = ids[-1]

    def close(self) -> None:
        self.client.close()
