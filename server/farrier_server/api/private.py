"""Private jobs: what they do, and what they measured, is their owner's alone."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from farrier.errors import PrivateError
from farrier_farm.jobs import Job
from farrier_farm.records import Records
from farrier_server.api.jobs import JobId
from farrier_server.context import FarmDep
from farrier_server.gate import OwnerDep


def _readable(job_id: JobId, farm: FarmDep, owner: OwnerDep) -> Job:
    job = farm.jobs.get(job_id)
    if job.private and job.owner != owner:
        raise PrivateError(
            f"job {job_id} is private to {job.owner}",
            hint="ask with a token of theirs; others see how it stands, and no more",
        )
    return job


def _records(
    farm: FarmDep,
    owner: OwnerDep,
    private: Annotated[
        bool, Query(description="the records of the user's private jobs, not those of all users")
    ] = False,
) -> Records:
    return farm.private_records(owner) if private else farm.records


READABLE = Depends(_readable)
"""Of a route about one job: raises PrivateError for another user's private one, NotFoundError."""
JobDep = Annotated[Job, READABLE]
"""The job of such a route, which is read once a request."""
RecordsDep = Annotated[Records, Depends(_records)]
"""The records that all users share or, where the request says so, those private to its user."""
