"""The description of a job in the REST API, declared once.

The farm's `Job` (`farrier_farm.jobs.jobs`) and the client's `Job` extend `JobStatus`, and the
server's view of a job is derived from it, including the description of each field
(`farrier_server.views`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from farrier.errors import CancelledError, error_from_problem

FINAL_STATES = frozenset({"succeeded", "failed", "cancelled", "dead"})
DESCRIPTION = "description"  # JSON Schema has the same key as a field's metadata.


def _about(description: str) -> dict[str, str]:
    """Return the metadata of a dataclass field with this description. A field with a default may be
    missing in the answer of an older server."""
    return {DESCRIPTION: description}


@dataclasses.dataclass(frozen=True, slots=True)
class JobVersion:
    """A version of a job's artifact. Times are medians in ms, from the race that put the version
    into use, or from its verification; None: not measured."""

    number: int = field(metadata=_about("1 is the untuned one"))
    artifact: str = field(metadata=_about("its sha256"))
    bytes: int
    created: float = field(metadata=_about("Unix seconds"))
    median_ms: float | None = field(metadata=_about("of a run"))
    untuned_ms: float | None = field(metadata=_about("of a run of the untuned model beside it"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The state of a job. Times are Unix seconds; unknown values are None."""

    id: str
    kind: str = field(
        default="compile", metadata=_about("what it does: GET /v1/jobs shows compilations alone")
    )
    owner: str = field(default="default", metadata=_about("name of the user who submitted it"))
    name: str
    state: str  # It is queued, running, succeeded, failed, cancelled or dead.
    model: str = field(
        metadata=_about(
            "id of the model: of one file, its sha256; empty, as are all results, for who "
            "sees how the job stands and no more"
        )
    )
    target: str = field(default="", metadata=_about("as it was named"))
    device_class: str | None = field(default=None, metadata=_about("whose devices measure the job"))
    device: str | None = field(default=None, metadata=_about("that alone measures it"))
    options: Mapping[str, Any] = field(metadata=_about("its target is what that came to"))
    against: tuple[str, ...] = field(
        default=(), metadata=_about("engines that it is raced with, once it is verified")
    )
    created: float
    started: float | None
    finished: float | None
    wait_for_device: bool = field(
        default=False, metadata=_about("it runs only while there is a device for it")
    )
    attempts: int = field(metadata=_about("how often a worker began it"))
    stage: str | None = field(metadata=_about("step of the compiler that runs"))
    tasks: int | None = field(default=None, metadata=_about("distinct kernels of the model"))
    cost_model: str | None = field(default=None, metadata=_about("that tuning began with"))
    trials: int | None = field(metadata=_about("candidates measured so far"))
    planned: int | None = field(metadata=_about("candidates to measure; null under a time budget"))
    best_ms: float | None = field(
        metadata=_about("estimated latency of the best code so far, in ms")
    )
    seconds_left: float | None = field(metadata=_about("estimate"))
    now: bool = field(
        default=False, metadata=_about("its artifact is there before it is tuned, and has versions")
    )
    private: bool = field(
        default=False, metadata=_about("what it measures and makes is its owner's alone")
    )
    priority: str = field(default="normal", metadata=_about("among the jobs of its owner"))
    versions: tuple[JobVersion, ...] = field(
        default=(), metadata=_about("of the artifact, the oldest first")
    )
    version: int | None = field(
        default=None, metadata=_about("the one in use, which is the artifact")
    )
    version_is_kept: bool = field(
        default=False, metadata=_about("by a rollback, whatever versions are added")
    )
    artifact: str | None = field(metadata=_about("sha256 of the artifact"))
    report: Mapping[str, Any] | None = field(
        metadata=_about(
            "verification and timing; `against` has how other engines did: engine, version, "
            "device, threads, ms and ours_ms (median, p10, p90), ratio (ours over theirs), "
            "max_error, note (why there are no times)"
        )
    )
    error: Mapping[str, Any] | None = field(metadata=_about("why the job failed"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job(JobStatus):
    """The state of a job on the farm when the server was last asked. Its `error` is
    problem+json."""

    @property
    def final(self) -> bool:
        """Check whether the job has ended, so that its state will not change again."""
        return self.state in FINAL_STATES

    def raise_for_state(self) -> None:
        """Raise the error of a failed job, CancelledError for a cancelled job."""
        if self.state == "cancelled":
            raise CancelledError(f"job {self.id} was cancelled")
        if self.error is not None:
            raise error_from_problem(self.error)
