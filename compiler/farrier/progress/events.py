"""Events of a compilation: plain data, printed by the CLI, stored by the farm.

The pipeline calls one function with each event; the same JSON reaches a watcher over server-sent
events, so an event holds only JSON types.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

from farrier_device import codec

# A farm's JSON has null for infinity.
_Unbounded: TypeAlias = Annotated[float, codec.Null(math.inf)]


@dataclasses.dataclass(frozen=True, slots=True)
class StageStarted:
    """A named step of the pipeline begins; the names are those of `farrier.pipeline`."""

    stage: str


@dataclasses.dataclass(frozen=True, slots=True)
class StageFinished:
    stage: str
    seconds: float
    summary: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class SizesSettled:
    """The model was read, and some of its sizes are open: `dims` are their names, ranges and
    typical sizes, and `preconditions` the assumptions about them beyond the model's
    declarations."""

    dims: list[str]
    preconditions: list[str]


@dataclasses.dataclass(frozen=True, slots=True)
class TasksFound:
    """The model was partitioned: `tasks` distinct kernels to tune, `kernels` calls of them."""

    tasks: int
    kernels: int


@dataclasses.dataclass(frozen=True, slots=True)
class TaskSchedule:
    """A task, and its present schedule: the default at first, then the schedule in use.

    `task` is the task's key, `name` its printable name, `space` the number of schedules that its
    rule offers, before its constraint. `calls` is how often the model runs the kernel, `share` its
    part of the time of all kernels. Microseconds are of one call: `default_us` and `predicted_us`
    by the analytic model, and `measured_us` if the schedule was measured.
    """

    task: str
    name: str
    calls: int
    share: float
    rule: str
    version: int  # The rule's.
    space: int
    default: dict[str, int]
    default_us: float
    decisions: dict[str, int]
    source: str  # One of default, transferred, tuned.
    predicted_us: float
    measured_us: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TasksScheduled:
    """Some of the model's tasks have schedules; sent again when they change. `sizes` are the hot
    sizes that the tasks are for, by symbol, and {} for all sizes."""

    tasks: list[TaskSchedule]
    sizes: dict[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class TuningStarted:
    """Tuning begins, with a cost model of this name."""

    cost_model: str


@dataclasses.dataclass(frozen=True, slots=True)
class TrialsMeasured:
    """A batch of candidates is measured. `best_ms` is the model's estimated latency: the sum over
    kernels of the best time, measured or predicted; infinite before any time exists, and on an
    emulated device."""

    trials: int
    planned: int | None  # None under a time budget.
    best_ms: _Unbounded
    seconds_left: float | None
    task: str  # The task's printable name.
    failed: int = 0  # The candidates of this batch that were wrong, crashed or timed out.


@dataclasses.dataclass(frozen=True, slots=True)
class VariantsCompared:
    """Variants of the whole model ran in turns. `changed` kernels (or, if `what` is algorithms,
    shapes of layers) differ from the unmeasured choice."""

    what: str  # The word algorithms or schedules.
    variants: int
    changed: int


@dataclasses.dataclass(frozen=True, slots=True)
class TimeSpent:
    """Tuning is over, and so is the race with the defaults: its seconds by phase, and over all
    phases by kind of work."""

    budget_s: float | None
    phases: dict[str, float]
    works: dict[str, float]


@dataclasses.dataclass(frozen=True, slots=True)
class Verified:
    """The whole model ran on the device: outputs were compared with the reference, then timed.
    `untuned_ms` is the time of the defaults, if the model was compared with them. Times of an
    `emulated` device are the emulator's. If outputs differ from those of the engine `differs_from`
    by more than rounding explains, `max_error` is the difference. On a farm, `confirmed_by` names
    another device that verified it as well; it is `untrusted` if a single device did, which nobody
    trusts. `reference` names the engine that computed the outputs."""

    max_error: _Unbounded
    latency_ms: float
    untuned_ms: float | None
    device: str
    emulated: bool = False
    differs_from: str = ""
    confirmed_by: str = ""
    untrusted: bool = False
    reference: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Raced:
    """The verified model and another engine ran in turns on a device, with equal threads. `ms` and
    `ours_ms` have median, p10 and p90 of the time of a call. `ratio` is our median over the
    engine's, round by round, then their median: below 1, ours is faster. `max_error` is of the
    engine's outputs, as share of their range. An engine that was not timed has no times; `note`
    says why."""

    engine: str
    version: str
    device: str
    threads: int
    ms: dict[str, float] | None = None
    ours_ms: dict[str, float] | None = None
    ratio: float | None = None
    max_error: float | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class VersionAdded:
    """The artifact of a job has another version, numbered from 1, ready to be fetched. Milliseconds
    of a run, and of a run of the untuned model in the same race, if they were measured."""

    version: int
    median_ms: float | None
    untuned_ms: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class RolledBack:
    """A user has put an earlier version of the artifact of a job into use, which stays in use."""

    version: int


@dataclasses.dataclass(frozen=True, slots=True)
class Warned:
    """A warning for the user: a slow path, a throttled device. `topic` is its subject, if programs
    may need that: VERIFICATION or SIZES."""

    message: str
    topic: str = ""


Event: TypeAlias = (
    StageStarted
    | StageFinished
    | SizesSettled
    | TasksFound
    | TasksScheduled
    | TuningStarted
    | TrialsMeasured
    | VariantsCompared
    | TimeSpent
    | Verified
    | Raced
    | VersionAdded
    | RolledBack
    | Warned
)
Listener: TypeAlias = Callable[[Event], None]

VERIFICATION = "verification"  # The topic of warnings about the reference of a result.
SIZES = "sizes"  # The topic of warnings about sizes that the compiled model does not take.

_KINDS: dict[str, type[Any]] = {
    "stage-started": StageStarted,
    "stage-finished": StageFinished,
    "sizes-settled": SizesSettled,
    "tasks-found": TasksFound,
    "tasks-scheduled": TasksScheduled,
    "tuning-started": TuningStarted,
    "trials-measured": TrialsMeasured,
    "variants-compared": VariantsCompared,
    "time-spent": TimeSpent,
    "verified": Verified,
    "raced": Raced,
    "version-added": VersionAdded,
    "rolled-back": RolledBack,
    "warned": Warned,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_ANY: Any = Annotated[Any, codec.Tagged("kind", _KINDS)]


def to_dict(event: Event) -> dict[str, Any]:
    """Return the event as a flat JSON object; `kind` names its class."""
    return {"kind": _NAMES[type(event)], **codec.encode(event)}


def from_dict(raw: Mapping[str, Any]) -> Event:
    """Return the inverse of `to_dict`, also for a farm's JSON, which has null for infinity. Raises
    ValueError on anything else, such as a kind of event that only a newer Farrier knows."""
    event: Event = codec.decode(_ANY, raw, name="event")
    return event


def ignore(event: Event) -> None:
    """Ignore events: the default listener."""
