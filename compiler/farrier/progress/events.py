"""The events of a compilation: plain data, which the CLI prints and the farm stores.

The pipeline passes each event to one function, and clients receive the same JSON as server-sent
events, so an event contains only JSON types.
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
    """A stage of the pipeline starts; the names of stages are those in `farrier.pipeline`."""

    stage: str


@dataclasses.dataclass(frozen=True, slots=True)
class StageFinished:
    stage: str
    seconds: float
    summary: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class SizesSettled:
    """The model was imported, and some of its sizes are symbolic: `dims` are their names, ranges
    and typical sizes, and `preconditions` the assumptions about them that the model itself does not
    declare."""

    dims: list[str]
    preconditions: list[str]


@dataclasses.dataclass(frozen=True, slots=True)
class TasksFound:
    """The model was partitioned into `tasks` distinct kernels to tune, and `kernels` calls of
    them."""

    tasks: int
    kernels: int


@dataclasses.dataclass(frozen=True, slots=True)
class TaskSchedule:
    """A task and its current schedule: first the default, then the schedule in use.

    `task` is the task's key, `name` a readable name, `space` the number of schedules that its rule
    offers before the constraint. `calls` is the number of calls in a run of the model, `share` the
    task's fraction of the time of all kernels. Times are microseconds of one call: `default_us` and
    `predicted_us` by the analytic model, `measured_us` if the schedule was measured.
    """

    task: str
    name: str
    calls: int
    share: float
    rule: str
    version: int  # The version of the rule.
    space: int
    default: dict[str, int]
    default_us: float
    decisions: dict[str, int]
    source: str  # One of default, transferred, tuned.
    predicted_us: float
    measured_us: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TasksScheduled:
    """Tasks of the model got schedules; the event is sent again when schedules change. `sizes` are
    the hot sizes for which the tasks are compiled, by symbol; {} stands for all sizes."""

    tasks: list[TaskSchedule]
    sizes: dict[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class TuningStarted:
    """Tuning starts, with the cost model of this name."""

    cost_model: str


@dataclasses.dataclass(frozen=True, slots=True)
class TrialsMeasured:
    """A batch of candidates was measured. `best_ms` is the model's estimated latency: the sum over
    kernels of the best time, measured or predicted; it is infinite before any time exists, and on
    an emulated device."""

    trials: int
    planned: int | None  # The number of candidates to measure; None under a time budget.
    best_ms: _Unbounded
    seconds_left: float | None
    task: str  # The task's printable name.
    failed: int = 0  # The candidates of this batch that were wrong, crashed or timed out.


@dataclasses.dataclass(frozen=True, slots=True)
class VariantsCompared:
    """Variants of the complete model were measured against each other. `changed` is the number of
    kernels (or of layer shapes, if `what` is algorithms) that differ from the unmeasured choice."""

    what: str  # Either algorithms or schedules.
    variants: int
    changed: int


@dataclasses.dataclass(frozen=True, slots=True)
class TimeSpent:
    """Tuning and the race with the defaults are over: their seconds by phase, and by kind of work
    over all phases."""

    budget_s: float | None
    phases: dict[str, float]
    works: dict[str, float]


@dataclasses.dataclass(frozen=True, slots=True)
class Verified:
    """The complete model ran on the device: its outputs were compared with the reference, then it
    was timed.

    `untuned_ms` is the time with default schedules, if the model was compared with them. Times of
    an `emulated` device are the emulator's. If outputs differ from those of the engine
    `differs_from` by more than rounding explains, `max_error` is the difference. On a farm,
    `confirmed_by` names another device that verified the model as well; `untrusted` is set if only
    one device did, and that device is not trusted. `reference` names the engine that computed the
    expected outputs.
    """

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
    """The verified model and another engine were timed in alternation on a device, with equal
    numbers of threads.

    `ms` (of the engine) and `ours_ms` hold the median, p10 and p90 of the time of a call. `ratio`
    is the median over rounds of our time divided by the engine's: below 1, ours is faster.
    `max_error` is the error of the engine's outputs, as a fraction of their range. An engine that
    was not timed has no times, and `note` explains why.
    """

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
    """A new version of a job's artifact, numbered from 1, is ready to be downloaded. The times are
    milliseconds of a run, and of a run of the untuned model in the same race, if they were
    measured."""

    version: int
    median_ms: float | None
    untuned_ms: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class RolledBack:
    """A user put an earlier version of a job's artifact into use; later versions no longer replace
    it."""

    version: int


@dataclasses.dataclass(frozen=True, slots=True)
class Warned:
    """A warning for the user, for example of a slow path or a throttled device. `topic` is the
    subject, if programs may need it: VERIFICATION or SIZES."""

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
    """Return the event as a flat JSON object, in which `kind` is the name of its class."""
    return {"kind": _NAMES[type(event)], **codec.encode(event)}


def from_dict(raw: Mapping[str, Any]) -> Event:
    """Return the event of a JSON object, the inverse of `to_dict`; null, which a farm sends for
    infinity, is accepted. Raises ValueError for anything else, such as a kind of event of a newer
    Farrier."""
    event: Event = codec.decode(_ANY, raw, name="event")
    return event


def ignore(event: Event) -> None:
    """Ignore an event: the default listener."""
