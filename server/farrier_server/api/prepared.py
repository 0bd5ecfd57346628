"""Reading of documents that a job has prepared. They are untrusted, because the process that writes
them parses models of users."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from farrier.errors import ServiceError
from farrier_farm.farm import Farm
from farrier_farm.jobs.jobs import Job

Document = TypeVar("Document", bound=BaseModel)


def path_of(farm: Farm, job: Job) -> Path:
    """Return the path of the job's artifact, a document. Raises ServiceError if the document is too
    large, NotFoundError if the job was deleted meanwhile."""
    digest = job.artifact or ""
    path = farm.blobs.path(digest)
    if farm.blobs.size(digest) > job.kind.most_bytes:
        raise malformed(job, "is too large")
    return path


def read_json(kind: type[Document], farm: Farm, job: Job) -> Document:
    """Return the JSON document of a job, checked against the schema `kind`. Raises the errors of
    `path_of`, and ServiceError for a document that does not match the schema."""
    try:
        return kind.model_validate_json(path_of(farm, job).read_bytes())
    except ValidationError as error:
        raise _unlike(job, error) from None


def checked(kind: type[Document], document: Any, job: Job) -> Document:
    """Return the parsed JSON `document` as an instance of the schema `kind`. Raises ServiceError if
    the document does not match the schema."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise _unlike(job, error) from None


def malformed(job: Job, what: str) -> ServiceError:
    return ServiceError(
        f"the document of job {job.id} {what}",
        hint=f"remove it with DELETE /v1/jobs/{job.id}, and request it again",
    )


def _unlike(job: Job, error: ValidationError) -> ServiceError:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return malformed(job, f"is malformed: {place}: {first['msg']}"[:300])
