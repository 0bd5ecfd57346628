"""What is forgotten in time: jobs that ended long ago, artifacts beyond a size, models of no job.

One look of a worker forgets `MOST` jobs and looks at as many models, each at the cost of that one
alone: they are found by when they ended, or were named last, and nothing else is gone through."""

from __future__ import annotations

import contextlib
import time

from farrier.errors import NotFoundError
from farrier_farm.jobs.builds import Builds
from farrier_farm.jobs.jobs import Jobs
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.measurements.measurements import Measurements
from farrier_farm.settings import Settings
from farrier_farm.storage.blobs import BlobStore
from farrier_farm.storage.models import Models
from farrier_farm.storage.references import References

MOST = 10_000
_AT_ONCE = 100
_IN_FLIGHT_S = 3600.0  # a younger blob may have been stored for a job that is about to name it


class Retention:
    """Every method raises ServiceError where Redis is out of reach."""

    def __init__(
        self,
        settings: Settings,
        jobs: Jobs,
        measurements: Measurements,
        builds: Builds,
        models: Models,
        references: References,
        blobs: BlobStore,
    ) -> None:
        self._settings = settings
        self._jobs = jobs
        self._measurements = measurements
        self._builds = builds
        self._models = models
        self._references = references
        self._blobs = blobs

    def forget(self, job_id: str) -> None:
        """Remove a job with all that is its own: events, idempotency key, batches, builds, the
        listing of its kernels. One that has not ended is cancelled. Its artifact, in all versions,
        goes at once where no other job has the same, unless it is young: then a sweep removes it,
        as it does the model. Raises NotFoundError."""
        job = self._jobs.get(job_id)
        self._jobs.leases_of(job_id).forget(job_id)
        self._measurements.drop(job_id)
        self._builds.drop(job_id)
        listing = self._jobs.prepared(JobKind.LIST, job_id)
        if listing is not None:
            with contextlib.suppress(NotFoundError):  # another one was quicker
                self.forget(listing.id)
        age_s = min(_IN_FLIGHT_S, self._settings.blob_age_s)
        for artifact in {job.artifact, *(version.artifact for version in job.versions)}:
            if artifact is not None:
                self._blobs.discard(artifact, self._references.are_there, age_s)

    def apply(self) -> int:
        """Forget what the settings keep no longer; return how many jobs."""
        forgotten = 0
        for _ in range(MOST // _AT_ONCE):
            found = self._outlived()
            for job_id in found:
                try:
                    self.forget(job_id)
                except NotFoundError:  # another worker was quicker
                    continue
                forgotten += 1
            if len(found) < _AT_ONCE:
                break
        self._models.forget_unused(self._references.are_there, self._settings.blob_age_s, MOST)
        return forgotten

    def _outlived(self) -> list[str]:
        age_s = self._settings.job_age_s
        before = time.time() - age_s if age_s else 0.0
        return self._jobs.expired(before, self._settings.artifact_bytes, _AT_ONCE)
