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

    number: int = field(metadata=_about("The number of the version; 1 is the untuned one."))
    artifact: str = field(metadata=_about("The SHA-256 of the artifact."))
    bytes: int
    created: float = field(metadata=_about("The creation time in Unix seconds."))
    median_ms: float | None = field(metadata=_about("The median time of a run in ms."))
    untuned_ms: float | None = field(
        metadata=_about(
            "The median time of a run of the untuned model in ms, measured together with "
            "this version."
        )
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The state of a job. Times are Unix seconds; unknown values are None."""

    id: str
    kind: str = field(
        default="compile",
        metadata=_about("The kind of the job. GET /v1/jobs lists only compilations by default."),
    )
    owner: str = field(
        default="default", metadata=_about("The name of the user who submitted the job.")
    )
    name: str
    state: str  # It is queued, running, succeeded, failed, cancelled or dead.
    model: str = field(
        metadata=_about(
            "The id of the model; for a model of one file, its SHA-256. Empty, as "
            "are all results, for a user who may see only the state of the job."
        )
    )
    target: str = field(default="", metadata=_about("The target as it was requested."))
    device_class: str | None = field(
        default=None, metadata=_about("The id of the class whose devices measure for the job.")
    )
    device: str | None = field(
        default=None,
        metadata=_about("The only device that measures for the job, if the target names one."),
    )
    options: Mapping[str, Any] = field(
        metadata=_about("The compile options, in which the target is resolved to a description.")
    )
    against: tuple[str, ...] = field(
        default=(),
        metadata=_about("The other inference engines with which the verified model is compared."),
    )
    created: float
    started: float | None
    finished: float | None
    wait_for_device: bool = field(
        default=False,
        metadata=_about("True if the job waits in the queue until a device for it is connected."),
    )
    attempts: int = field(metadata=_about("The number of attempts at the job."))
    stage: str | None = field(metadata=_about("The present stage of the compilation."))
    tasks: int | None = field(
        default=None, metadata=_about("The number of distinct kernels of the model.")
    )
    cost_model: str | None = field(
        default=None, metadata=_about("The name of the cost model with which tuning started.")
    )
    trials: int | None = field(metadata=_about("The number of candidates measured so far."))
    planned: int | None = field(
        metadata=_about("The number of candidates to measure; null under a time budget.")
    )
    best_ms: float | None = field(
        metadata=_about("The estimated latency of the best code so far, in ms.")
    )
    seconds_left: float | None = field(
        metadata=_about("An estimate of the remaining time of tuning, in seconds.")
    )
    now: bool = field(
        default=False,
        metadata=_about("True if the artifact is available before it is tuned, and has versions."),
    )
    private: bool = field(
        default=False,
        metadata=_about("True if the job's measurements and results belong to its owner alone."),
    )
    priority: str = field(
        default="normal", metadata=_about("The priority among the jobs of the same owner.")
    )
    versions: tuple[JobVersion, ...] = field(
        default=(), metadata=_about("The versions of the artifact, the oldest first.")
    )
    version: int | None = field(
        default=None, metadata=_about("The number of the version in use, which is the artifact.")
    )
    version_is_kept: bool = field(
        default=False,
        metadata=_about(
            "True if a rollback has selected the version permanently, so that later "
            "versions do not replace it."
        ),
    )
    artifact: str | None = field(metadata=_about("The SHA-256 of the artifact."))
    report: Mapping[str, Any] | None = field(
        metadata=_about(
            "The results of verification and timing. `against` has the results of "
            "other engines: engine, version, device, threads, ms and ours_ms "
            "(median, p10, p90), ratio (our time over the engine's), max_error, "
            "and note (the reason if there are no times)."
        )
    )
    error: Mapping[str, Any] | None = field(metadata=_about("The reason why the job failed."))


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
