"""Jobs: one compilation each, from the request to the artifact or the reason why there is none."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from farrier import progress
from farrier.errors import ConflictError, FarrierError
from farrier.options import CompileOptions
from farrier_farm.connection import Client
from farrier_farm.devices import Devices
from farrier_farm.errors import DeviceAwayError
from farrier_farm.leases import Lease, LeasePolicy, Leases, new_id
from farrier_farm.settings import Settings
from farrier_farm.states import State

_QUEUE = "compile"
REFERS = ("model", "artifact")  # fields that name what a job keeps
_WAITING = "device:"  # and a target: the queue of jobs that wait for a device of its kind


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
    """A snapshot. Times are Unix seconds; `model` is the id of a model (`models.Manifest.id`) and
    `artifact` the sha256 of a blob; `options` are the fields of `CompileOptions`, perhaps of a
    newer version; `error` is a problem: `{"code", "message", "hint"}`."""

    id: str
    state: State
    name: str
    model: str
    options: dict[str, Any]
    created: float
    started: float | None
    finished: float | None
    wait_for_device: bool  # it is leased only while there is a device for its target
    attempts: int
    crashes: int
    worker: str | None
    progress: Progress
    artifact: str | None
    report: dict[str, Any] | None
    error: dict[str, str] | None

    @property
    def compile_options(self) -> CompileOptions:
        """Raises UsageError for options that this version does not know."""
        return CompileOptions.from_dict(self.options)


class Jobs:
    """Every method raises ServiceError where Redis is out of reach."""

    def __init__(self, client: Client, settings: Settings, devices: Devices) -> None:
        policy = LeasePolicy(
            lease_s=settings.lease_s,
            crashes=settings.job_crashes,
            hint="compile the model alone with `farrier compile` to see the crash",
            events=settings.events_kept,
            refers=REFERS,
        )
        self.leases = Leases(client, "job", policy)
        self._devices = devices

    def submit(
        self,
        model: str,
        options: CompileOptions,
        *,
        name: str = "",
        idempotency_key: str = "",
        wait_for_device: bool = False,
    ) -> Job:
        """Queues a job; durable when this returns. With a key seen before, returns the job of that
        key, or raises ConflictError where model, options or name differ from that job's.

        A job that is to wait for a device, and needs one, stays in the queue while there is none.
        """
        fields = _request(model, options, name)
        queue, reason = _QUEUE, ""
        if wait_for_device and options.needs_device:
            queue = f"{_WAITING}{options.target}"
            try:
                self._devices.require(options.target)
            except DeviceAwayError as error:
                reason = error.message
        job_id = self.leases.put(
            new_id(), queue, fields, once=idempotency_key, digest=_digest(fields), reason=reason
        )
        return self.get(job_id)

    def submitted(
        self, model: str, options: CompileOptions, *, name: str = "", idempotency_key: str = ""
    ) -> Job | None:
        """The job that `submit` would find rather than queue. Raises ConflictError as that."""
        job_id = self.leases.find(idempotency_key, _digest(_request(model, options, name)))
        return None if job_id is None else self.get(job_id)

    def get(self, job_id: str) -> Job:
        """Raises NotFoundError."""
        return _job(job_id, self.leases.fields(job_id))

    def list(
        self, *, limit: int = 50, after: str = "", state: State | None = None
    ) -> tuple[list[Job], str]:
        """Newest first; the second value is the `after` of the next page, "" on the last one."""
        ids = self.leases.members(state=state, after=after, limit=limit + 1)
        page, more = ids[:limit], len(ids) > limit
        return [self.get(job_id) for job_id in page], page[-1] if more else ""

    def cancel(self, job_id: str) -> Job:
        """Cancelled when this returns (a running attempt is fenced out and killed soon after).
        Cancelling twice is no error; ConflictError for a job that ended otherwise,
        NotFoundError."""
        state = self.leases.cancel(job_id)
        if state is not State.CANCELLED:
            raise ConflictError(f"job {job_id} has {state} already", hint="its state is final")
        return self.get(job_id)

    def lease(self, worker: str, timeout_s: float) -> Lease | None:
        """The oldest queued job, waiting up to `timeout_s` for one; of those that wait for a device
        only where there is one as this begins."""
        waiting = [queue for queue in self.leases.queues() if queue.startswith(_WAITING)]
        targets = [q.removeprefix(_WAITING) for q in waiting if self.leases.length(q)]
        ready = [f"{_WAITING}{t}" for t in self._devices.served(targets)] if targets else []
        away = [f"{_WAITING}{target}" for target in targets if f"{_WAITING}{target}" not in ready]
        if away:
            self.leases.reap(away)  # a worker may be lost together with the device
        return self.leases.take(worker, [_QUEUE, *ready], timeout_s)

    def renew(self, lease: Lease) -> None:
        """Raises StaleLeaseError."""
        self.leases.renew(lease)

    def say(self, lease: Lease, number: int, event: progress.Event) -> None:
        """Stores an event of the running attempt, numbered from 1. Raises StaleLeaseError."""
        raw = {name: _finite(value) for name, value in progress.to_dict(event).items()}
        news = _news(event)
        fields = {name: _to_json(_finite(value)) for name, value in news.items()}
        self.leases.write(lease, number, _to_json(raw), fields)

    def succeed(self, lease: Lease, artifact: str, report: dict[str, Any]) -> None:
        """Ends the job with the digest of its artifact. Raises StaleLeaseError."""
        fields = {"artifact": artifact, "report": _to_json(report)}
        self.leases.finish(lease, State.SUCCEEDED, fields)

    def fail(self, lease: Lease, error: FarrierError) -> None:
        """Ends the job with a problem that no further attempt would solve. Raises
        StaleLeaseError."""
        problem = {"code": error.code, "message": error.message, "hint": error.hint}
        self.leases.finish(lease, State.FAILED, {"error": _to_json(problem)})

    def give_back(self, lease: Lease, *, crashed: bool, reason: str) -> State:
        """Ends the attempt but not the job, unless it crashed too often. Raises StaleLeaseError."""
        return self.leases.give_back(lease, crashed=crashed, reason=reason)

    def reap(self) -> int:
        """Requeues jobs whose worker is gone, where no worker asks for one; returns how many."""
        return self.leases.reap(self.leases.queues())


def _request(model: str, options: CompileOptions, name: str) -> dict[str, str]:
    """The fields of a job that its submitter decides."""
    return {"model": model, "options": _to_json(options.to_dict()), "name": name}


def _digest(request: Mapping[str, str]) -> str:
    return hashlib.sha256(_to_json(request).encode()).hexdigest()


def _news(event: progress.Event) -> dict[str, Any]:
    """The fields of `Progress` that an event changes."""
    match event:
        case progress.StageStarted(stage=stage):
            return {"stage": stage}
        case progress.TasksFound(tasks=tasks):
            return {"tasks": tasks}
        case progress.TrialsMeasured():
            names = ("trials", "planned", "best_ms", "seconds_left")
            return {name: getattr(event, name) for name in names}
        case _:
            return {}


def _finite(value: Any) -> Any:
    """JSON knows no infinity: a time that is not known yet is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _to_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _job(job_id: str, fields: dict[str, str]) -> Job:
    names = [field.name for field in dataclasses.fields(Progress)]
    known = {name: json.loads(fields[name]) for name in names if name in fields}
    return Job(
        id=job_id,
        state=State(fields["state"]),
        name=fields["name"],
        model=fields["model"],
        options=json.loads(fields["options"]),
        created=int(fields["created"]) / 1000,
        started=_seconds(fields.get("started")),
        finished=_seconds(fields.get("finished")),
        wait_for_device=fields["queue"].startswith(_WAITING),
        attempts=int(fields["attempts"]),
        crashes=int(fields["crashes"]),
        worker=fields.get("owner"),
        progress=Progress(**known),
        artifact=fields.get("artifact"),
        report=json.loads(fields["report"]) if "report" in fields else None,
        error=json.loads(fields["error"]) if "error" in fields else None,
    )


def _seconds(milliseconds: str | None) -> float | None:
    return None if milliseconds is None else int(milliseconds) / 1000
