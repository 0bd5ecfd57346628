"""Routes for artifacts: download of the compiled model of a job, completely or by byte range."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import FileResponse

from farrier.errors import UsageError
from farrier_farm.jobs.jobs import Job
from farrier_farm.jobs.kinds import JobKind
from farrier_server.access import JobDep
from farrier_server.bounds import MOST
from farrier_server.context import FarmDep
from farrier_server.problems import NotReadyError, RangeError, documented

Version = Annotated[
    int | None,
    Query(
        ge=1,
        le=MOST,
        description="The number of a version of the artifact, for a job with versions. By default, "
        "the version in use.",
    ),
]
router = APIRouter(prefix="/v1/jobs", tags=["artifacts"])
_RANGE = re.compile(r"bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))")
_SUFFIXES = {JobKind.COMPILE: ".farrier", JobKind.INSPECT: ".json", JobKind.LIST: ".listing"}


class ArtifactFile(FileResponse):
    """A file response that has its own media type in the OpenAPI document."""

    media_type = "application/vnd.farrier"


_RESPONSES = {206: {"description": "Partial Content"}, **documented(400, 403, 404, 409, 416, 503)}


@router.head("/{job_id}/artifact", response_class=ArtifactFile, responses=_RESPONSES)
def head_artifact(job: JobDep, farm: FarmDep, version: Version = None) -> ArtifactFile:
    """Return the size and sha256 of the artifact, as Content-Length and ETag."""
    return get_artifact(job, farm, version)


@router.get("/{job_id}/artifact", response_class=ArtifactFile, responses=_RESPONSES)
def get_artifact(
    job: JobDep,
    farm: FarmDep,
    version: Version = None,
    range_: Annotated[
        str,
        Header(
            alias="Range", max_length=100, description="A single byte range, such as `bytes=1000-`."
        ),
    ] = "",
) -> ArtifactFile:
    """Return the artifact's bytes; the ETag is the SHA-256 of the artifact. A `Range` header
    resumes a download. To resume the download of a job that still tunes, pass the `version` of the
    artifact whose download was interrupted."""
    artifact = job.artifact if version is None else job.find_version(version).artifact
    if artifact is None:
        raise _not_ready(job)
    path = farm.blobs.path(artifact)
    if range_:
        _check_range(range_, farm.blobs.size(artifact))
    # The file name is built from the id, because a job's name may contain any text.
    name = f"{job.id}{_SUFFIXES[job.kind]}"
    return ArtifactFile(path, filename=name, headers={"ETag": f'"{artifact}"'})


def _not_ready(job: Job) -> NotReadyError:
    hint = (
        f"GET /v1/jobs/{job.id} shows the reason" if job.state.final else f"farrier watch {job.id}"
    )
    return NotReadyError(f"job {job.id} is {job.state}: it has no artifact", hint=hint)


def _check_range(text: str, size: int) -> None:
    """Check a Range header against a file of `size` bytes. Raises UsageError unless the header has
    exactly one range, RangeError if the range is outside the file."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"cannot read the range {text!r}", hint="Range: bytes=1000-")
    first, last, suffix = match.groups()
    if first is None:
        outside = int(suffix) == 0
    else:
        outside = int(first) >= size or (bool(last) and int(last) < int(first))
    if outside:
        raise RangeError(f"the range {text!r} is outside the artifact", size=size)
