"""The class `Farm`, which every process of a farm opens at its start."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator

from farrier import progress
from farrier.errors import ServiceError
from farrier_farm.access.audit import Audit
from farrier_farm.access.keys import Keys
from farrier_farm.access.logouts import Logouts
from farrier_farm.access.owners import Owners
from farrier_farm.access.quotas import Quotas
from farrier_farm.devices.classes import MeasurementTarget
from farrier_farm.devices.devices import Devices
from farrier_farm.devices.enrolments import Enrolments
from farrier_farm.events.farm_events import Herald, News
from farrier_farm.events.webhooks import Webhooks
from farrier_farm.jobs.admission import Admission
from farrier_farm.jobs.builds import Builds
from farrier_farm.jobs.curves import Curves
from farrier_farm.jobs.events import Events
from farrier_farm.jobs.explorations import Explorations
from farrier_farm.jobs.jobs import Job, Jobs
from farrier_farm.jobs.search import Shown
from farrier_farm.jobs.trials import Trials
from farrier_farm.leases.leases import Lease
from farrier_farm.maintenance.migration import Adoption
from farrier_farm.maintenance.retention import Retention
from farrier_farm.measurements.measurements import Measurements
from farrier_farm.measurements.runner import FarmRunner
from farrier_farm.overview import FarmOverview, overview
from farrier_farm.records.archives import all_archives
from farrier_farm.records.cost_models import CostModels
from farrier_farm.records.definitions import Definitions
from farrier_farm.records.provenance import JobRecords
from farrier_farm.records.pruning import RecordPruning
from farrier_farm.records.records import Records
from farrier_farm.redis import embedded
from farrier_farm.redis.connection import Client, connect
from farrier_farm.redis.retry import PATIENT, PROBE, Patience
from farrier_farm.settings import Settings
from farrier_farm.storage.blobs import BlobStore
from farrier_farm.storage.models import Models
from farrier_farm.storage.references import References

_log = logging.getLogger(__name__)
_RENEWED = 10_000  # The most archives that one garbage collection examines.


@dataclasses.dataclass(frozen=True, slots=True)
class Farm:
    """A connection to a farm with all its stores. Safe to share between threads."""

    settings: Settings
    client: Client
    jobs: Jobs
    events: Events
    news: News
    devices: Devices
    enrolments: Enrolments
    admission: Admission
    measurements: Measurements
    builds: Builds
    records: Records
    record_pruning: RecordPruning
    definitions: Definitions
    cost_models: CostModels
    trials: Trials
    curves: Curves
    explorations: Explorations
    blobs: BlobStore
    references: References
    models: Models
    owners: Owners
    adoption: Adoption
    retention: Retention
    logouts: Logouts
    keys: Keys
    quotas: Quotas
    audit: Audit
    webhooks: Webhooks

    @classmethod
    def open(cls, settings: Settings, patience: Patience = PATIENT) -> Farm:
        """Connect to `settings.redis_url`, or to the embedded Valkey of `settings.home` that
        `embedded.start` has started. Raises ServiceError, StorageError."""
        path = embedded.socket_path(settings.home)
        if settings.redis_url is None and not path.exists():
            raise ServiceError(
                f"no farm is running in {settings.home}",
                hint="start `farrier serve` there, or set REDIS_URL to the Redis of the farm",
            )
        blobs = BlobStore(settings)
        client = connect(settings.redis_url or f"unix://{path}", patience)
        for shortcoming in client.shortcomings():
            _log.warning("Redis at %s may lose jobs: %s", client.address, shortcoming)
        devices = Devices(client, settings)
        admission = Admission(devices)
        jobs = Jobs(client, settings, admission)
        measurements, builds = Measurements(client, settings), Builds(client, settings)
        records, references = Records(client, blobs, jobs.trials), References(client)
        models = Models(client, blobs)
        explorations = Explorations(client, jobs.leases)
        return cls(
            settings=settings,
            client=client,
            jobs=jobs,
            events=Events(client, jobs),
            news=News(client),
            devices=devices,
            enrolments=Enrolments(client, settings, measurements.leases),
            admission=admission,
            measurements=measurements,
            builds=builds,
            records=records,
            record_pruning=RecordPruning(client),
            definitions=Definitions(client),
            cost_models=CostModels(client, blobs, references, settings.cost_models_kept),
            trials=jobs.trials,
            curves=Curves(client),
            explorations=explorations,
            blobs=blobs,
            references=references,
            models=models,
            owners=Owners(client, settings.blob_age_s),
            adoption=Adoption(client, references, jobs, models, blobs),
            retention=Retention(
                settings, jobs, explorations, measurements, builds, models, references, blobs
            ),
            logouts=Logouts(client),
            keys=Keys(settings.home),
            quotas=Quotas(client, settings, blobs),
            audit=Audit(client, settings),
            webhooks=Webhooks(client, settings),
        )

    def overview(self, shown: Shown | None = None) -> FarmOverview:
        """Return the overview of the farm for a user who may see the jobs in `shown`: counts,
        running jobs, recently ended jobs, and warnings."""
        return overview(self.client, self.jobs, self.devices, self.records, self.news, shown)

    def cancel(self, job_id: str) -> Job:
        """Cancel a job and drop its measurement batches and builds; see `Jobs.cancel`."""
        job = self.jobs.cancel(job_id)
        self.measurements.drop(job_id)
        self.builds.drop(job_id)
        return job

    def delete(self, job_id: str) -> None:
        """Cancel a job that has not ended, and remove all data about the job; see
        `Retention.forget`."""
        self.retention.forget(job_id)

    def runner(
        self,
        place: MeasurementTarget,
        job: Lease | None = None,
        listener: progress.Listener = progress.ignore,
        owner: str = "",
    ) -> FarmRunner:
        """Return a runner that measures on the devices of `place` (a device class or a single
        device), for an attempt at a job of `owner`; `job` is the attempt's lease. The runner
        reports to `listener` while it waits for a device."""
        return FarmRunner(
            self.settings,
            self.measurements,
            self.admission,
            self.devices,
            self.blobs,
            self.references,
            place,
            job,
            listener,
            owner,
        )

    def private_records(self, owner: str) -> Records:
        """Return the tuning records of a user's private jobs, which other users' jobs do not
        use."""
        return Records(self.client, self.blobs, self.trials, owner)

    def records_of_owner(self, owner: str) -> Records:
        """Return the private tuning records of a user; for "", the shared records."""
        return self.private_records(owner) if owner else self.records

    def records_of(self, job: Job) -> Records:
        """Return the store to which the tuning records of a job are added: the private store of its
        owner for a private job, else the shared store."""
        return self.private_records(job.owner) if job.private else self.records

    def job_records(
        self, records: Records, place: MeasurementTarget, runner: FarmRunner
    ) -> JobRecords:
        """Return the record store of the job for which `runner` measures. New records, which are
        also the job's trials, are added to `records`. Searches read `records` and all shared
        records."""
        beside = None if records is self.records else self.records
        if runner.job is None:
            trials = records.of_job("", beside)
        else:
            trials = records.of_job(runner.job.item, beside, runner.job)
        return JobRecords(trials, place, runner)

    @contextlib.contextmanager
    def announcing(self, role: str) -> Iterator[None]:
        """Return a context in which the warnings in this process's log become events of the
        farm."""
        herald = Herald(self.news, role)
        logging.getLogger().addHandler(herald)
        try:
            yield
        finally:
            logging.getLogger().removeHandler(herald)
            herald.close()

    def check(self) -> None:
        """Check whether the farm can work. Raises ServiceError if Redis refuses a connection or
        does not answer soon, StorageError if the disk cannot be written."""
        connect(self.client.url, PROBE).close()
        self.blobs.check_room(0)

    def collect_garbage(self) -> int:
        """Remove all data whose retention time, set in the settings, has passed; import the records
        that older versions added; remove unreferenced blobs older than `blob_age_s` and abandoned
        uploads; rewrite archives from which records were pruned. Return the number of bytes
        removed."""
        if self.adoption.is_due(self.settings.blob_age_s):
            self.adoption.run()
        self.records.adopt()
        self.retention.apply()
        self.audit.keep()
        removed = self.blobs.sweep(self.references.are_there, self.settings.blob_age_s)
        for archives in all_archives(self.client, self.blobs):
            archives.renew(_RENEWED)
        return removed

    def close(self) -> None:
        self.client.close()
