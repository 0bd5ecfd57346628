"""Routes for jobs. A job is one compilation, from the request to the artifact or the error."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from farrier.errors import ForbiddenError, NoDeviceError, UsageError
from farrier.options import MAX_CORES, MAX_LAYER_ERROR, MAX_THREADS, TYPICAL_ALONE, CompileOptions
from farrier.options.shapes import MAX_EXTENT
from farrier.sdk.job import JobStatus, JobVersion
from farrier_farm.access.users import NAME
from farrier_farm.farm import Farm
from farrier_farm.jobs import jobs
from farrier_farm.jobs.admission import Admitted
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.jobs.priorities import Priority
from farrier_farm.jobs.search import JobOrder, JobQuery
from farrier_farm.leases.states import State
from farrier_server.access import AccessDep, JobDep, JobId, ViewerDep
from farrier_server.bounds import MOST
from farrier_server.context import FarmDep
from farrier_server.finite import finite
from farrier_server.gate import OwnerDep
from farrier_server.problems import Problem, documented, from_stored
from farrier_server.viewer import Viewer, is_private
from farrier_server.views import view_of

_SHA256 = r"^[0-9a-f]{64}$"
# Printable text of one line: names are shown, never used as paths.
_LINE = r"^[^\x00-\x1f\x7f]*$"
# Characters; a machine's description lists all its instruction set extensions.
_LONGEST_TARGET = 10_000

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Extent = Annotated[int, Field(ge=0, le=MAX_EXTENT, strict=True)]
Open = Annotated[str, Field(max_length=100, pattern=_LINE)]
Dims = Annotated[list[Extent | Open], Field(max_length=32)]
Sizes = Annotated[dict[Annotated[str, Field(max_length=1000)], Extent], Field(max_length=1000)]


class Options(BaseModel):
    """The compile options of a job: the fields of `farrier.options.CompileOptions`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    target: str = Field(
        default="host",
        max_length=_LONGEST_TARGET,
        pattern=_LINE,
        description="The machine to compile for: a name that `farrier targets` lists, a "
        "description as JSON on one line, or `class:ID` or `device:NAME` of GET "
        "/v1/classes and /v1/devices. `host` is the only connected class.",
    )
    shapes: dict[Annotated[str, Field(max_length=1000)], Dims] = Field(
        default_factory=dict,
        max_length=1000,
        description="The dimensions of inputs whose shape the model leaves open: numbers, or "
        "dimensions that are known only when the model runs, as a name, a name "
        "with a range (batch:1..8), or `?`.",
    )
    hot: list[Sizes] = Field(
        default_factory=lambda: [dict(sizes) for sizes in TYPICAL_ALONE],
        max_length=100,
        description="Sizes of open dimensions, by name, for which specialized code is "
        "generated. A dimension that is left out has its typical size.",
    )
    typical: Sizes = Field(
        default_factory=dict, description="The usual sizes of open dimensions, by name."
    )
    trials: Annotated[int, Field(ge=0, le=10_000_000, strict=True)] | None = Field(
        default=None,
        description="The maximum number of candidates to measure; null for no such limit.",
    )
    budget_s: Annotated[float, Field(ge=0, le=30 * 86400)] | None = Field(
        default=None,
        description="The maximum number of seconds for tuning; null for no such limit.",
    )
    threads: int = Field(
        default=0,
        ge=0,
        le=MAX_THREADS,
        strict=True,
        description="The number of threads of the compiled model; 0 for one per core of the "
        "target.",
    )
    seed: int = Field(
        default=0, ge=0, lt=1 << 32, strict=True, description="The seed of the search."
    )
    max_layer_error: float = Field(
        default=MAX_LAYER_ERROR,
        ge=0,
        le=1,
        description="The maximum rounding error of the algorithm for a layer, as max |error| "
        "over max |result|.",
    )
    verify: bool = Field(
        default=True,
        strict=True,
        description="True to compare the outputs with those of the reference.",
    )
    precision: Literal["f32", "bf16", "f16"] = Field(
        default="f32",
        description="The type in which contractions multiply. Sums are in f32; in f16, sums of "
        "up to 32 products are in f16.",
    )
    cores: int = Field(
        default=0,
        ge=0,
        le=MAX_CORES,
        strict=True,
        description="The number of cores of the worker's machine that compile; 0 for the "
        "number that the worker allows.",
    )

    states: dict[Annotated[str, Field(max_length=1000)], Open] = Field(
        default_factory=dict,
        max_length=1000,
        description="Inputs that a session keeps between calls, with the outputs that replace "
        "them: {past: 'present:capacity=1024'}. A `*` in both names stands for the "
        "same text.",
    )

    def compile_options(self) -> CompileOptions:
        fields = self.model_dump()
        shapes = {name: tuple(dims) for name, dims in fields.pop("shapes").items()}
        return CompileOptions(shapes=shapes, hot=tuple(fields.pop("hot")), **fields)


class JobRequest(BaseModel):
    """A request to compile a model."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "model": "9f86d081884c7d65" * 4,
                    "name": "resnet18",
                    "options": {"target": "host", "trials": 1000},
                }
            ]
        },
    )

    model: str = Field(
        pattern=_SHA256,
        description="The SHA-256 of an uploaded file, or an id from POST /v1/models.",
    )
    name: str = Field(
        default="",
        max_length=200,
        pattern=_LINE,
        description="The name of the job for people; several jobs may have the same name.",
    )
    options: Options = Options()
    against: list[Literal["onnxruntime", "openvino"]] = Field(
        default_factory=list,
        max_length=10,
        description="Other inference engines with which the verified model is compared, on a "
        "device of its class that has them installed. If no device has an engine, "
        "the job continues with a warning.",
    )
    wait_for_device: bool = Field(
        default=False,
        description="True to queue a job that tunes or verifies although no device of the "
        "target's kind is connected. The job then waits in the queue for a device, "
        "also if it loses its device later.",
    )
    now: bool = Field(
        default=False,
        description="True if the artifact is to be available as soon as the untuned model is "
        "verified. The job continues to tune, and each better artifact becomes the "
        "next version. Requires trials or a budget.",
    )
    private: bool = Field(
        default=False,
        description="True if the job's measurements and results are to belong to its user "
        "alone. Other users see only the job's state, their jobs do not find its "
        "records, and no cost model is trained on them.",
    )
    priority: Priority = Field(
        default=Priority.NORMAL,
        description="The priority among the jobs of the same user; it does not affect the "
        "order of users. `high` is reserved for operators, unless "
        "FARRIER_HIGH_PRIORITY allows it to all users.",
    )


class VersionView(view_of(JobVersion)):  # type: ignore[misc]
    """A version of a job's artifact. Times are in ms, as measured when the version was compared
    with the previous one, or else by the verification; null if not measured."""


class JobView(
    view_of(  # type: ignore[misc]
        JobStatus,
        state=State,
        kind=JobKind,
        priority=Priority,
        versions=list[VersionView],
        error=Problem | None,
    )
):
    """The present state of a job. Times are Unix seconds; a value that is not available yet is
    null."""

    may_read: bool = Field(description="True if the caller may read the job's results.")
    may_cancel: bool = Field(description="True if the caller may cancel the job.")
    may_change: bool = Field(
        description="True if the caller may delete the job, and select the version of its artifact."
    )

    @classmethod
    def seen_by(cls, viewer: Viewer, job: jobs.Job, whole: jobs.Job | None = None) -> JobView:
        """Return the view of a job for `viewer`: the state of the job, and its results if the
        viewer may read them. If the job is a listing of a compiled model's kernels, the owner of
        `whole`, the job that compiled the model, decides (`Access.whole`)."""
        whole = whole or job
        view: JobView = cls._of(job, whole, viewer)
        if view.may_read:
            return view
        results: dict[str, Any] = dict.fromkeys(("version", "artifact", "report", "best_ms"))
        # The names of inputs and open dimensions come from the model, so they are results.
        options = {**view.options, "shapes": {}, "hot": [], "typical": {}}
        results |= {"model": "", "versions": [], "options": options}
        error = None if is_private(whole) else view.error
        reduced: JobView = view.model_copy(update={**results, "error": error})
        return reduced

    @classmethod
    def _of(cls, job: jobs.Job, whole: jobs.Job, viewer: Viewer) -> JobView:
        status = {field.name: getattr(job, field.name) for field in dataclasses.fields(JobStatus)}
        status["versions"] = [dataclasses.asdict(version) for version in job.versions]
        status["error"] = None if job.error is None else from_stored(job.error)
        return cls(
            **finite(status),
            may_read=viewer.reads(whole),
            may_cancel=viewer.stops(whole),
            may_change=viewer.changes(whole),
        )


class JobPage(BaseModel):
    """A page of jobs, the newest first."""

    jobs: list[JobView]
    next: str = Field(description="The value of `after` for the next page; empty on the last page.")
    complete: bool = Field(
        description="True if all jobs that could belong on this page were examined. If false, "
        "there are older jobs; the next page examines them if the order is "
        "`created`, otherwise no page does."
    )


@router.post("", status_code=201, responses=documented(400, 404, 409, 429, 503))
def submit_job(
    body: JobRequest,
    farm: FarmDep,
    owner: OwnerDep,
    access: AccessDep,
    viewer: ViewerDep,
    idempotency_key: Annotated[
        str,
        Header(
            max_length=200,
            pattern=_LINE,
            description="A key that identifies the request. A repeated request of the same "
            "user with the same key returns the same job; another request with "
            "that key is answered with 409.",
        ),
    ] = "",
) -> JobView:
    """Queue a compilation. The job is stored durably before the answer. A repeated request with the
    same idempotency key returns the existing job, even if the model, the devices or the queue have
    changed. 429 if too many jobs of the user, or of all users, are queued; `Retry-After` states
    when to try again."""
    options = body.options.compile_options()
    against = tuple(dict.fromkeys(body.against))
    if against and not options.verify:
        raise UsageError(
            "only a verified model can be compared with other engines",
            hint="do not disable `verify`",
        )
    request: dict[str, Any] = {
        "name": body.name,
        "owner": owner,
        "idempotency_key": idempotency_key,
        "against": against,
        "now": body.now,
        "private": body.private,
        "priority": body.priority,
    }
    _check_priority(body.priority, viewer, farm)
    if body.now:
        options.require_tuning()
    job = farm.jobs.find_submitted(body.model, options, **request)
    if job is None:
        waits = body.wait_for_device
        admitted = _admitted(farm, options, wait_for_device=waits)
        if options.needs_device:
            farm.quotas.check_device_time(owner)
        request["lent"] = access.hold_model(viewer, body.model)
        job = farm.jobs.submit(
            body.model, options, wait_for_device=waits, admitted=admitted, **request
        )
    return JobView.seen_by(viewer, job)


@router.get("", response_model=JobPage, responses=documented(400, 503))
def list_jobs(
    farm: FarmDep,
    access: AccessDep,
    viewer: ViewerDep,
    state: Annotated[State | None, Query(description="Return only jobs in this state.")] = None,
    owner: Annotated[
        str, Query(pattern=rf"^({NAME})?$", description="Return only jobs of this user.")
    ] = "",
    kind: Annotated[
        JobKind,
        Query(
            description="The kind of jobs to return: compilations, or the jobs that prepare "
            "inspections or listings for viewing."
        ),
    ] = (JobKind.COMPILE),
    q: Annotated[
        str,
        Query(
            max_length=200,
            description="Return only jobs whose name, id or target contains this text.",
        ),
    ] = "",
    target: Annotated[
        str,
        Query(
            max_length=200,
            description="Return only jobs whose target, device class or device contains this text.",
        ),
    ] = "",
    sort: Annotated[
        JobOrder,
        Query(
            description="The order of the jobs. `best` sorts by `best_ms`; jobs without it come "
            "last."
        ),
    ] = JobOrder.CREATED,
    descending: Annotated[
        bool,
        Query(description="True to return the newest, slowest or alphabetically last job first."),
    ] = True,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    after: Annotated[
        str, Query(max_length=3000, description="The `next` of the previous page.")
    ] = "",
) -> Response:
    """Return a page of the jobs that the caller may see, of all users or of `owner`, the newest
    first. With `q`, with `target`, or in any order but `created`, only the newest 2,000 jobs of the
    requested state and owner are searched."""
    query = JobQuery(q, target, state, owner, sort, descending, viewer.shown(kind))
    page = farm.jobs.search(query, limit=limit, after=after, kind=kind)
    both = zip(page.jobs, access.wholes(page.jobs), strict=True)
    views = [JobView.seen_by(viewer, job, whole) for job, whole in both if viewer.sees(whole)]
    text = JobPage(jobs=views, next=page.next, complete=page.complete).model_dump_json()
    # The page was validated when it was built; a second validation would slow a frequent request.
    return Response(text, media_type="application/json")


@router.get("/{job_id}", responses=documented(404, 503))
def get_job(job: JobDep, access: AccessDep, viewer: ViewerDep) -> JobView:
    """Return the present state of the job, without its results if the caller may not read them."""
    return JobView.seen_by(viewer, job, access.whole(job))


@router.post("/{job_id}/cancel", responses=documented(404, 409, 503))
def cancel_job(job_id: JobId, farm: FarmDep, access: AccessDep, viewer: ViewerDep) -> JobView:
    """Cancel the job. Cancelling a cancelled job changes nothing; 409 for a job that has succeeded
    or failed."""
    job = farm.cancel(job_id)
    return JobView.seen_by(viewer, job, access.whole(job))


class RollbackRequest(BaseModel):
    """A request to use another version of a job's artifact."""

    model_config = ConfigDict(extra="forbid")

    to: int = Field(ge=1, le=MOST, strict=True, description="The number of the version.")


@router.post("/{job_id}/rollback", responses=documented(400, 404, 503))
def roll_back_job(
    job_id: JobId, body: RollbackRequest, farm: FarmDep, viewer: ViewerDep
) -> JobView:
    """Make one of the job's versions, older or newer, its artifact, and keep it: versions that are
    added later are listed but do not replace it. 404 for an unknown version."""
    return JobView.seen_by(viewer, farm.jobs.roll_back(job_id, body.to))


@router.delete("/{job_id}", status_code=204, responses=documented(404, 503))
def delete_job(job_id: JobId, farm: FarmDep) -> None:
    """Delete the job with its events, its artifact and its idempotency key; cancel it first if it
    has not ended. The stored artifact and model stay if another job refers to them. Later requests
    for the job are answered with 404."""
    farm.delete(job_id)


def _check_priority(priority: Priority, viewer: Viewer, farm: Farm) -> None:
    """Check that the user may request `priority` for a job. Raises ForbiddenError."""
    is_open = viewer.is_operator or farm.settings.high_priority
    if priority is Priority.HIGH and not is_open:
        raise ForbiddenError(
            f"the role of {viewer.name} is {viewer.role}, and high priority is for operators",
            hint="the highest priority for others is normal, unless the farm has "
            "FARRIER_HIGH_PRIORITY=1",
        )


def _admitted(farm: Farm, options: CompileOptions, *, wait_for_device: bool) -> Admitted:
    """Return the resolved target of a job with these options. If the options need a device and
    `wait_for_device` is false, raises NoDeviceError unless a suitable device is connected. Also
    raises the errors of `Admission.admit`."""
    admitted = farm.admission.admit(options.target, measured=options.needs_device)
    if wait_for_device or not options.needs_device:
        return admitted
    try:
        farm.admission.require(admitted.place)
    except NoDeviceError as error:
        hint = f"{error.hint}; with wait_for_device (--wait-for-device) the job waits in the queue"
        raise NoDeviceError(error.message, hint=hint) from error
    return admitted
