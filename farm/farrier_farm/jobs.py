"""Jobs: one compilation each, from the request to the artifact or the reason why there is none."""

from __future__ import annotations

import dataclasses
from typing import Any

from farrier.options import CompileOptions
from farrier_farm.leases import Lease
from farrier_farm.states import State


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """The newest that a running job said; every field may be unknown."""

    stage: str | None = None
    tasks: int | None = None
    trials: int | None = None
    planned: int | None = None
    best_ms: float | None = None
    seconds_left: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A snapshot. Times are Unix seconds; `model` and `artifact` are sha256 hex digests of blobs;
    `error` is a problem: `{"code", "message", "hint"}`."""

    id: str
    state: State
    name: str
    model: str
    options: CompileOptions
    created: float
    started: float | None
    finished: float | None
    attempts: int
    crashes: int
    worker: str | None
    progress: Progress
    artifact: str | None
    report: dict[str, Any] | None
    error: dict[str, str] | None


class Jobs:
    def submit(
        self, model: str, options: CompileOptions, *, name: str = "", idempotency_key: str = ""
    ) -> Job:
        """Queues a job; durable when this returns. With a key seen before, returns the job of that
        key, or raises ConflictError where model, options or name differ from that job's."""
        raise NotImplementedError

    def get(self, job_id: str) -> Job:
        """Raises NotFoundError."""
        raise NotImplementedError

    def list(
        self, *, limit: int = 50, after: str = "", state: State | None = None
    ) -> tuple[list[Job], str]:
        """Newest first; the second value is the `after` of the next page, "" on the last one."""
        raise NotImplementedError

    def cancel(self, job_id: str) -> Job:
        """Cancelled when this returns (a running attempt is fenced out and killed soon after).
        Cancelling twice is no error; ConflictError for a job that ended otherwise."""
        raise NotImplementedError

    def counts(self) -> dict[State, int]:
        """How many jobs are in each state."""
        raise NotImplementedError

    def lease(self, worker: str, timeout_s: float) -> Lease | None:
        raise NotImplementedError

    def renew(self, lease: Lease) -> None:
        """Raises StaleLeaseError."""
        raise NotImplementedError
