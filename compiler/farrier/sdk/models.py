"""What the REST API answers, as plain data: jobs, devices, events, and errors from problem+json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

from farrier import progress
from farrier.errors import ServiceError
from farrier.sdk.job import FINAL_STATES, Job, JobVersion
from farrier_device import codec

__all__ = ["FINAL_STATES", "Job", "JobVersion"]


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A machine that measures. `description` is what its agent says of it: `arch`, `cpu`, …"""

    id: str
    state: str  # idle, busy, draining, drained, paused, quarantined, unfit, offline, revoked
    description: Mapping[str, Any]
    seen: float  # Unix seconds of its last heartbeat
    measured: int  # batches
    faults: int
    device_class: str = ""
    unfit: str = ""  # why its agent gets no work
    health: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # temperature, clock, …
    engines: Mapping[str, str] = dataclasses.field(default_factory=dict)  # version by name
    trusted: bool = False  # an operator vouches for what it measures
    enrolled: float | None = None  # Unix seconds; None where it has no secret of its own
    standing: str = ""  # paused, drained or revoked by an operator
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceInvitation:
    """A token with which a device enrols, once, until `expires` (Unix seconds)."""

    name: str
    token: str
    expires: float


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceStanding:
    """The standing of a device, as operators set it: paused, drained, revoked or empty."""

    id: str
    standing: str
    tags: tuple[str, ...] = ()
    enrolled: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceEvent:
    """Something that happened to a device: it connected, was lost or is back, leased a batch or
    measured it, faulted, was put in quarantine or released."""

    id: str  # grows with time
    at: float  # Unix seconds
    what: str
    batch: str | None
    job: str | None
    seconds: float | None  # from the lease of a batch to its result
    reason: str | None  # of a fault


# The name of versions before this one.
Happening = DeviceEvent


@dataclasses.dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change of the farm, or the attempt at one."""

    id: str  # grows with time
    at: float  # Unix seconds
    user: str
    role: str
    action: str  # jobs.cancel, tokens.add, …
    object: str
    address: str
    outcome: str  # ok, or the code of the problem that was the answer


@dataclasses.dataclass(frozen=True, slots=True)
class Webhook:
    """A URL to which the farm posts what happens. Only the reply to its creation has `secret`."""

    id: str
    url: str
    events: tuple[str, ...]
    created: float  # Unix seconds
    delivered: int
    failed: int  # events that were given up
    last_error: str
    secret: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class StateChanged:
    """The job went to another state; `error` is the problem of a job that failed, `reason` why one
    is back in the queue, or is not run yet."""

    state: str
    error: Mapping[str, Any] | None = None
    reason: str | None = None

    @property
    def final(self) -> bool:
        return self.state in FINAL_STATES


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One kernel of a job's model, and how far it is. Times are microseconds of one call."""

    task: str  # its key
    name: str
    sizes: Mapping[str, int]  # the hot sizes that it is for; {} for those of all
    calls: int  # of a run of the model; 0: it was replaced
    share: float  # of the time of all kernels
    rule: str
    space: int  # schedules that the rule offers
    default: Mapping[str, int]  # decisions of the analytic model
    default_us: float | None  # predicted of those
    decisions: Mapping[str, int]  # of the schedule that it has by now
    source: str  # default, transferred or tuned
    predicted_us: float | None
    measured_us: float | None
    trials: int  # of this job
    failed: int
    best_us: float | None  # alone
    best_in_model_us: float | None
    first_us: float | None = None  # of the first trial alone; None from an older server
    first_in_model_us: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """One candidate that a job measured."""

    id: str  # grows with time
    task: str
    rule: str
    decisions: Mapping[str, int]
    status: str  # ok, wrong, crashed, timeout or rejected
    context: str  # alone, or model
    us: float | None  # of an undisturbed call; None where it failed
    device: str | None
    created: float  # Unix seconds


@dataclasses.dataclass(frozen=True, slots=True)
class ModelPoint:
    """From this trial on the best time of the model was this; seconds are since the job began."""

    trial: int
    seconds: float
    ms: float


@dataclasses.dataclass(frozen=True, slots=True)
class TaskPoint:
    """The same of one kernel, whose trials are counted from its first."""

    trial: int
    seconds: float
    us: float


@dataclasses.dataclass(frozen=True, slots=True)
class TaskCurve:
    """One kernel's best time so far."""

    task: str
    name: str
    calls: int
    share: float
    points: tuple[TaskPoint, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """The model's best time so far, and that of each kernel that was measured. All that was said
    until the event with the id `event` is in it."""

    event: str
    trials: int
    points: tuple[ModelPoint, ...]
    tasks: tuple[TaskCurve, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class LogLine:
    """What happened to a job, as a sentence; `id` grows with time."""

    id: str
    time: float  # Unix seconds
    kind: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """One value of a knob, and the trials that chose it; no times where all failed."""

    value: int
    trials: int
    best_us: float | None
    median_us: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Knob:
    """One decision of a kernel's schedule, and what its values brought."""

    knob: str
    values: tuple[Value, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """What the choices of a kernel's schedule brought, in so many trials."""

    trials: int
    best_us: float | None
    knobs: tuple[Knob, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Minute:
    """What the farm did in the minute that began at `time`, in Unix seconds."""

    time: float
    trials: int
    batches: int
    finished: int  # jobs


@dataclasses.dataclass(frozen=True, slots=True)
class Overview:
    """The farm at a glance: jobs by state, devices by how they stand, the last hour by minute, the
    newest jobs that run, and those that ended last."""

    time: float
    jobs: Mapping[str, int]
    devices: Mapping[str, int]
    throughput: tuple[Minute, ...]
    running: tuple[Job, ...]
    finished: tuple[Job, ...]
    records: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class FarmEvent:
    """Something that happened on the farm. `data` is the event's JSON object, `kind` job, device or
    warning."""

    id: str  # grows with time
    kind: str
    data: Mapping[str, Any]


Update: TypeAlias = progress.Event | StateChanged
"""What `Client.watch` yields."""


def from_json(kind: type[Any], raw: Mapping[str, Any]) -> Any:
    """A `Job` or `Device` from its JSON object. Fields that a newer server adds are left out.

    Raises ServiceError when a field is missing or malformed.
    """
    try:
        return codec.decode(kind, raw)
    except ValueError as error:
        raise ServiceError(f"the server's answer cannot be read: {error}") from None
