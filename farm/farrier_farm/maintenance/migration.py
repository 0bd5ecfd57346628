"""The migration of data from older versions of Farrier, to which references and indexes are added
that those versions did not have.

farrier:adopted:<version>   the Unix time of the first migration of all data by this version

Processes of older versions may still write while a farm is being updated. Therefore all data is
examined again before each garbage collection, for as long as an unreferenced blob is kept. Data
that was already migrated stays unchanged.
"""

from __future__ import annotations

import time

from farrier.errors import NotFoundError
from farrier_farm.jobs.jobs import REFERS, Jobs
from farrier_farm.redis.connection import Client
from farrier_farm.storage.blobs import BlobStore
from farrier_farm.storage.models import Models
from farrier_farm.storage.references import References

_ADOPTED = "farrier:adopted:2"  # Version 1, `farrier:refs:adopted`, migrated only references.
_PAGE = 500


class Adoption:
    """The migration of a farm's data. Every method raises ServiceError if Redis is out of reach."""

    def __init__(
        self,
        client: Client,
        references: References,
        jobs: Jobs,
        models: Models,
        blobs: BlobStore,
    ) -> None:
        self._client = client
        self._references = references
        self._jobs = jobs
        self._models = models
        self._blobs = blobs

    def is_due(self, age_s: float) -> bool:
        """Return whether data has to be examined again: until `age_s` seconds after the first
        `run`, processes of older versions may still write."""
        since = self._client.command("GET", _ADOPTED)
        return since is None or time.time() < float(since) + age_s

    def run(self) -> None:
        """Migrate all models and jobs. Batches are skipped, because they end long before their
        blobs are old enough to be removed."""
        self._models.adopt()
        leases, after = self._jobs.leases, ""
        while ids := leases.members(after=after, limit=_PAGE):
            for job_id in ids:
                self._references.adopt(leases.key(job_id), REFERS)
                leases.adopt(job_id, self._artifact_bytes(job_id))
            after = ids[-1]
        leases.adopt_keys()
        self._client.command("SET", _ADOPTED, repr(time.time()), "NX")

    def _artifact_bytes(self, job_id: str) -> int:
        artifact = self._client.command("HGET", self._jobs.leases.key(job_id), "artifact")
        try:
            return 0 if artifact is None else self._blobs.size(artifact)
        except NotFoundError:
            return 0
