"""The removal of old jobs and explorations, of artifacts beyond a total size, and of models that no
job uses.

A call removes at most `MOST` jobs and `MOST` explorations, and examines at most that number of
models. Indexes by time of end, of last change or of last use select the candidates, so the cost
does not depend on the number of jobs and models that stay.
"""

from __future__ import annotations

import contextlib
import time

from farrier.errors import NotFoundError
from farrier_farm.jobs.builds import Builds
from farrier_farm.jobs.explorations import Explorations
from farrier_farm.jobs.jobs import Jobs
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.measurements.measurements import Measurements
from farrier_farm.settings import Settings
from farrier_farm.storage.blobs import BlobStore
from farrier_farm.storage.models import Models
from farrier_farm.storage.references import References

MOST = 10_000
_AT_ONCE = 100
# A younger blob may belong to a job that does not refer to it yet.
_IN_FLIGHT_S = 3600.0


class Retention:
    """The removal of old jobs, artifacts and models. Every method raises ServiceError if Redis is
    out of reach."""

    def __init__(
        self,
        settings: Settings,
        jobs: Jobs,
        explorations: Explorations,
        measurements: Measurements,
        builds: Builds,
        models: Models,
        references: References,
        blobs: BlobStore,
    ) -> None:
        self._settings = settings
        self._jobs = jobs
        self._explorations = explorations
        self._measurements = measurements
        self._builds = builds
        self._models = models
        self._references = references
        self._blobs = blobs

    def forget(self, job_id: str) -> None:
        """Remove a job with its events, idempotency key, batches, builds, and the listing of its
        kernels. A job that has not ended is cancelled first. An artifact of the job is removed at
        once if no other job has the same artifact and it was not written recently; otherwise a
        later sweep removes the artifact, and the model. Raises NotFoundError."""
        job = self._jobs.get(job_id)
        self._jobs.leases_of(job_id).forget(job_id)
        self._measurements.drop(job_id)
        self._builds.drop(job_id)
        listing = self._jobs.prepared(JobKind.LIST, job_id)
        if listing is not None:
            with contextlib.suppress(NotFoundError):  # Another worker has removed it meanwhile.
                self.forget(listing.id)
        age_s = min(_IN_FLIGHT_S, self._settings.blob_age_s)
        for artifact in {job.artifact, *(version.artifact for version in job.versions)}:
            if artifact is not None:
                self._blobs.discard(artifact, self._references.are_there, age_s)

    def apply(self) -> int:
        """Remove all jobs, explorations, artifacts and models that the retention settings no longer
        keep; return the number of jobs removed."""
        forgotten = 0
        for _ in range(MOST // _AT_ONCE):
            expired = self._outlived()
            for job_id in expired:
                try:
                    self.forget(job_id)
                except NotFoundError:  # Another worker has removed it meanwhile.
                    continue
                forgotten += 1
            if len(expired) < _AT_ONCE:
                break
        self._forget_explorations()
        self._models.forget_unused(self._references.are_there, self._settings.blob_age_s, MOST)
        return forgotten

    def _forget_explorations(self) -> None:
        """Remove explorations without a new result for as long as jobs are kept."""
        for exploration_id in self._explorations.expired(self._oldest_kept(), MOST):
            with contextlib.suppress(NotFoundError):  # Another worker has removed it meanwhile.
                self._explorations.remove(exploration_id)

    def _oldest_kept(self) -> float:
        """Return the Unix time before which ended jobs are removed; 0 if all are kept."""
        age_s = self._settings.job_age_s
        return time.time() - age_s if age_s else 0.0

    def _outlived(self) -> list[str]:
        return self._jobs.expired(self._oldest_kept(), self._settings.artifact_bytes, _AT_ONCE)
