"""The answers of the REST API as plain data: jobs, devices, events, and errors from
problem+json.
"""

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
    """A machine that measures. `description` is the report of its agent: `arch`, `cpu`, …"""

    id: str
    # One of idle, busy, draining, drained, paused, quarantined, unfit, offline, revoked.
    state: str
    description: Mapping[str, Any]
    seen: float  # Unix seconds of its last heartbeat
    measured: int  # batches
    faults: int
    device_class: str = ""
    unfit: str = ""  # The reason why its agent gets no work.
    # Temperature, clock, and so on.
    health: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    engines: Mapping[str, str] = dataclasses.field(default_factory=dict)  # Versions by name.
    trusted: bool = False  # An operator vouches for its measurements.
    enrolled: float | None = None  # In Unix seconds; None if it has no secret of its own.
    standing: str = ""  # One of paused, drained or revoked, if an operator set it.
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceInvitation:
    """A token with which a device can enrol once, before `expires` (Unix seconds)."""

    name: str
    token: str
    expires: float


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceStanding:
    """The standing of a device, which operators set: "" (in service), paused, drained or
    revoked."""

    id: str
    standing: str
    tags: tuple[str, ...] = ()
    enrolled: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceEvent:
    """An event of a device: it connected, was lost or came back, leased a batch or measured it,
    failed, was quarantined or released."""

    id: str  # Ids grow with time.
    at: float  # Unix seconds
    what: str
    batch: str | None
    job: str | None
    seconds: float | None  # From the lease of a batch to its result.
    reason: str | None  # The reason of a fault.


# The name of versions before this one.
Happening = DeviceEvent


@dataclasses.dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change to the farm, or an attempt at one."""

    id: str  # Ids grow with time.
    at: float  # Unix seconds
    user: str
    role: str
    action: str  # jobs.cancel, tokens.add, …
    object: str
    address: str
    outcome: str  # Either ok, or the code of the problem that was the answer.


@dataclasses.dataclass(frozen=True, slots=True)
class Webhook:
    """A URL to which the farm posts events. `secret` is set only in the answer to its creation."""

    id: str
    url: str
    events: tuple[str, ...]
    created: float  # Unix seconds
    delivered: int
    failed: int  # The events that were given up.
    last_error: str
    secret: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class StateChanged:
    """A change of a job's state; `error` is the problem of a failed job, `reason` the reason why a
    job is back in the queue, or does not run yet."""

    state: str
    error: Mapping[str, Any] | None = None
    reason: str | None = None

    @property
    def final(self) -> bool:
        return self.state in FINAL_STATES


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One kernel of a job's model, and the progress of its tuning. Times are microseconds of one
    call."""

    task: str  # The key of the task.
    name: str
    sizes: Mapping[str, int]  # The hot sizes of its variant; {} for the general one.
    calls: int  # The calls in a run of the model; 0 if it was replaced.
    share: float  # As a share of the time of all kernels.
    rule: str
    space: int  # The number of schedules that the rule offers.
    default: Mapping[str, int]  # The decisions of the analytic model.
    default_us: float | None  # The prediction for those decisions.
    decisions: Mapping[str, int]  # The decisions of its present schedule.
    source: str  # One of default, transferred or tuned.
    predicted_us: float | None
    measured_us: float | None
    trials: int  # The trials of this job.
    failed: int
    best_us: float | None  # Measured alone.
    best_in_model_us: float | None
    first_us: float | None = None  # The time of the first trial alone; None from an older server.
    first_in_model_us: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """One candidate schedule that a job measured, and the result."""

    id: str  # Ids grow with time.
    task: str
    rule: str
    decisions: Mapping[str, int]
    status: str  # One of ok, wrong, crashed, timeout or rejected.
    context: str  # Either alone, or model.
    us: float | None  # The time of an undisturbed call; None if it failed.
    device: str | None
    created: float  # Unix seconds


@dataclasses.dataclass(frozen=True, slots=True)
class ModelPoint:
    """The best time of the model from this trial on; `seconds` are since the start of the job."""

    trial: int
    seconds: float
    ms: float


@dataclasses.dataclass(frozen=True, slots=True)
class TaskPoint:
    """A step of the curve of a kernel: at trial `trial` its best time fell to `us`, where it stays
    until the next point. Trials are counted for each kernel separately."""

    trial: int
    seconds: float
    us: float


@dataclasses.dataclass(frozen=True, slots=True)
class TaskCurve:
    """The best time of one kernel as a function of its trials."""

    task: str
    name: str
    calls: int
    share: float
    points: tuple[TaskPoint, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """The best time of the model, and of each kernel that was measured, as functions of the trials.
    Events up to the one with the id `event` are included."""

    event: str
    trials: int
    points: tuple[ModelPoint, ...]
    tasks: tuple[TaskCurve, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class LogLine:
    """An event of a job as an English sentence; `id` increases with time."""

    id: str
    time: float  # Unix seconds
    kind: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """One value of a knob, and the results of the trials that used it; the times are None if all
    failed."""

    value: int
    trials: int
    best_us: float | None
    median_us: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Knob:
    """One decision in a kernel's schedule, and the effect of its values."""

    knob: str
    values: tuple[Value, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """The effect of each decision in a kernel's schedule, according to `trials` trials."""

    trials: int
    best_us: float | None
    knobs: tuple[Knob, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Minute:
    """The farm's work in the minute that started at `time`, in Unix seconds."""

    time: float
    trials: int
    batches: int
    finished: int  # jobs


@dataclasses.dataclass(frozen=True, slots=True)
class Overview:
    """An overview of the farm: jobs by state, devices by state, the last hour by minute, the newest
    running jobs, and the jobs that ended last."""

    time: float
    jobs: Mapping[str, int]
    devices: Mapping[str, int]
    throughput: tuple[Minute, ...]
    running: tuple[Job, ...]
    finished: tuple[Job, ...]
    records: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class FarmEvent:
    """An event of the farm. `data` is the event's JSON object; `kind` is job, device or warning."""

    id: str  # grows with time
    kind: str
    data: Mapping[str, Any]


Update: TypeAlias = progress.Event | StateChanged
"""What `Client.watch` yields."""


def from_json(kind: type[Any], raw: Mapping[str, Any]) -> Any:
    """Build a `Job`, `Device` or other answer from its JSON object. Fields that a newer server adds
    are ignored. Raises ServiceError if a field is missing or malformed."""
    try:
        return codec.decode(kind, raw)
    except ValueError as error:
        raise ServiceError(f"the server's answer cannot be read: {error}") from None
