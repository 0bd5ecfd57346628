"""Documents that jobs have prepared: data of a process that may have been taken over."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from farrier.errors import ServiceError
from farrier_farm.farm import Farm
from farrier_farm.jobs import Job

Document = TypeVar("Document", bound=BaseModel)


def document(kind: type[Document], farm: Farm, job: Job) -> Document:
    """The document that is a job's artifact. Raises ServiceError for what is none, NotFoundError
    where the job was deleted meanwhile."""
    assert job.artifact is not None
    path = farm.blobs.path(job.artifact)
    if farm.blobs.size(job.artifact) > job.kind.most_bytes:
        raise _malformed(job, "is too large")
    return read_as(kind, path.read_bytes(), job)


def read_as(kind: type[Document], text: bytes, job: Job) -> Document:
    """A document as JSON, held to its schema. Raises ServiceError."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise _malformed(job, f"is none: {place}: {first['msg']}"[:300]) from None


def _malformed(job: Job, what: str) -> ServiceError:
    return ServiceError(
        f"the document of job {job.id} {what}",
        hint=f"DELETE /v1/jobs/{job.id}, and ask for it anew",
    )
