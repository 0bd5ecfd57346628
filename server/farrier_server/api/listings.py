"""Routes for the list of the kernels of a compiled model. A worker prepares the list from the model
and the artifact.

    POST /v1/jobs/{id}/listing               → queues a listing, unless there is one
    GET  /v1/jobs/{id}/listing               → its progress, and the kernels
    GET  /v1/jobs/{id}/listing/kernels/{k}   → the texts of a kernel

The worker that writes the document parses an untrusted model, so the server does not trust the
document either: its size is bounded, and the type and limits of every field are checked.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from farrier.errors import ArtifactError, NotFoundError
from farrier.listing import archive
from farrier_farm.farm import Farm
from farrier_farm.jobs.jobs import Job
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.leases.states import State
from farrier_server.access import JobDep
from farrier_server.api.prepared import checked, malformed, path_of
from farrier_server.context import FarmDep
from farrier_server.problems import Problem, documented, from_stored

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
_MOST = 10_000  # The most kernels and nodes of a document.
_Text = Annotated[str, Field(max_length=1100)]
_Count = Annotated[int, Field(ge=0, le=1 << 63)]
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_NodeId = Annotated[int, Field(ge=0, lt=2 * _MOST)]
_Edge = Annotated[list[_NodeId], Field(min_length=2, max_length=2)]
_Code = Annotated[str, Field(max_length=archive.LONGEST_TEXT + 100)]


class _Part(BaseModel):
    """The base class of the schemas in this document. Unknown fields, which a newer worker may
    write, are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)


class RooflineView(_Part):
    """The position of a kernel in the roofline model of the target machine: its operations per
    byte, and its rate."""

    peak_gflops: _Number
    bandwidth_gbs: _Number = Field(description="The bandwidth of the memory in GB/s.")
    intensity: _Number = Field(
        description="The number of operations per byte that has to be moved at least."
    )
    achieved_gflops: _Number


class KernelView(_Part):
    """A kernel of the model. Times are the microseconds of one call of the kernel."""

    id: _Count
    task: _Text = Field(description="The key of the task, as in GET /v1/jobs/{id}/tasks.")
    name: _Text
    symbol: _Text = Field(description="The name of the kernel's function in the library.")
    rule: _Text
    source: _Text = Field(description="The origin of the schedule: tuned, transferred or default.")
    decisions: Annotated[dict[_Text, int], Field(max_length=100)]
    origin: _Text = Field(
        description="The nodes of the model that the first call of the kernel computes."
    )
    calls: _Count = Field(
        description="The number of calls in a run with the sizes that are shown; 0 if such a run "
        "does not call it."
    )
    share: _Number = Field(description="The kernel's fraction of the time of all kernels.")
    slow: _Text = Field(
        "",
        description="The reason why the kernel runs without a fast schedule; empty if it has one.",
    )
    us: _Number = Field(
        description="The measured time or, if the kernel was not measured, the predicted time."
    )
    predicted_us: _Number
    measured_us: _Number | None
    flops: _Count = Field(description="The number of arithmetic operations of one call.")
    bytes: _Count = Field(description="The number of bytes that one call has to move at least.")
    roofline: RooflineView


class CallView(_Part):
    """A call of a kernel, or an input or output of the model."""

    id: _NodeId
    kernel: _Count | None = Field(
        description="The id of the kernel; null for an input or output of the model."
    )
    op: _Text
    name: _Text
    dtype: _Text
    shape: Annotated[list[int | _Text], Field(max_length=100)] = Field(
        description="The shape of the first result."
    )


class CallGraphView(_Part):
    """The calls of kernels in program order. An edge leads from the call that writes a value to a
    call that reads the value."""

    nodes: Annotated[list[CallView], Field(max_length=2 * _MOST)]
    edges: Annotated[list[_Edge], Field(max_length=40_000)] = Field(
        description="The edges, each as [from, to]."
    )
    left_out: _Count = Field(description="The number of calls that are not shown.")


class ListingDocument(_Part):
    """The kernels of a compiled model, and the calls between them."""

    is_same: bool = Field(
        description="True if the kernels, compiled again for this listing, equal those of the "
        "artifact byte by byte."
    )
    target: _Text
    sizes: Annotated[dict[_Text, _Count], Field(max_length=1000)] = Field(
        description="The sizes of the open dimensions for which the model is shown."
    )
    kernels: Annotated[list[KernelView], Field(max_length=_MOST)]
    graph: CallGraphView


class ListingView(BaseModel):
    """The progress of a listing, and its document."""

    state: State | None = Field(
        description="The state of the listing; null if nobody has requested one. A POST requests "
        "it."
    )
    job: str | None = Field(
        description="The id of the job that prepares the listing, for GET /v1/jobs/{id}, its "
        "events and its cancellation."
    )
    error: Problem | None = Field(
        description="The reason why the listing failed. A POST starts it again."
    )
    listing: ListingDocument | None = Field(
        description="The document, once the listing has succeeded."
    )

    @classmethod
    def of(cls, job: Job | None, document: ListingDocument | None) -> ListingView:
        if job is None:
            return cls(state=None, job=None, error=None, listing=None)
        error = None if job.error is None else from_stored(job.error)
        return cls(state=job.state, job=job.id, error=error, listing=document)


class KernelTexts(_Part):
    """The source and assembly texts of a kernel. A text that the backend does not produce is
    empty."""

    schedule: _Code = ""
    loops: _Code = ""
    llvm: _Code = ""
    assembly: _Code = ""
    timeline: _Code = Field(
        default="",
        description="The timeline of an accelerator as JSON: `events` in the format of "
        "Chrome's traces, each in one of the `lanes`, at a clock of `mhz`.",
    )


@router.post("/{job_id}/listing", status_code=201, responses=documented(403, 404, 409, 429, 503))
def list_kernels(job: JobDep, farm: FarmDep, response: Response) -> ListingView:
    """Queue the listing of a compiled model's kernels: 201. If a listing is in progress or has
    succeeded, return that listing: 200. A failed or cancelled listing is queued again. 409 for a
    job without an artifact."""
    listing, is_new = farm.jobs.list_kernels(job, owner=job.owner)
    response.status_code = 201 if is_new else 200
    return ListingView.of(listing, None)


@router.get("/{job_id}/listing", responses=documented(403, 404, 503))
def get_listing(job: JobDep, farm: FarmDep) -> ListingView:
    """Return the progress and document of the listing of a job's kernels; all fields are null if
    nobody has requested a listing."""
    listing = _prepared(farm, job)
    if listing is None or listing.artifact is None:
        return ListingView.of(listing, None)
    document = _read(farm, listing, archive.read_listing)
    return ListingView.of(listing, checked(ListingDocument, document, listing))


@router.get("/{job_id}/listing/kernels/{kernel}", responses=documented(403, 404, 503))
def get_kernel(
    job: JobDep,
    kernel: Annotated[
        int, Path(ge=0, le=_MOST, description="The `id` of the kernel in the listing.")
    ],
    farm: FarmDep,
) -> KernelTexts:
    """Return the schedule, loops, LLVM text and assembly of a kernel. A text longer than 2 Mi
    characters is truncated. 404 if the listing was too large to include the texts of this
    kernel."""
    listing = _prepared(farm, job)
    unknown = NotFoundError(
        f"the listing of job {job.id} does not contain the kernel {kernel}",
        hint=f"GET /v1/jobs/{job.id}/listing shows its contents",
    )
    if listing is None or listing.artifact is None:
        raise unknown
    try:
        texts = _read(farm, listing, lambda path: archive.read_texts(path, kernel))
    except LookupError:
        raise unknown from None
    if texts is None:
        raise unknown
    return checked(KernelTexts, texts, listing)


def _prepared(farm: Farm, job: Job) -> Job | None:
    """Return the job that lists the kernels of `job`, or None if nobody has requested a listing of
    its present artifact."""
    listing = farm.jobs.prepared(JobKind.LIST, job.id)
    return None if listing is None or listing.compiled != job.artifact else listing


def _read(farm: Farm, job: Job, read: Any) -> Any:
    path = path_of(farm, job)
    try:
        return read(path)
    except ArtifactError as error:
        raise malformed(job, error.message) from None
