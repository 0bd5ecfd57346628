"""What a compilation says while it runs: plain events, printed by the CLI, stored by the farm.

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
    """The model was read, and sizes of it stay open: `dims` are their names, ranges and typical
    sizes, and `preconditions` what was taken for granted of them beyond what the model declares."""

    dims: list[str]
    preconditions: list[str]


@dataclasses.dataclass(frozen=True, slots=True)
class TasksFound:
    """The model was partitioned: `tasks` distinct kernels to tune, `kernels` calls of them."""

    tasks: int
    kernels: int


@dataclasses.dataclass(frozen=True, slots=True)
class TaskSchedule:
    """A task, and the schedule that it has by now: the default at first, then what is shipped.

    `task` is the task's key, `name` its printable name, `space` the number of schedules that its
    rule offers, before its constraint. `calls` is how often the model runs the kernel, `share` its
    part of the time of all kernels. Microseconds are of one call: the default's and the schedule's
    as the analytic model has them, and what was measured of the schedule, if anything was."""

    task: str
    name: str
    calls: int
    share: float
    rule: str
    version: int  # of the rule
    space: int
    default: dict[str, int]
    default_us: float
    decisions: dict[str, int]
    source: str  # default, transferred or tuned
    predicted_us: float
    measured_us: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TasksScheduled:
    """Some of the model's tasks have schedules; it is said again where they have others. `sizes`
    are the hot sizes that the tasks are for, by symbol, and {} for those of all sizes."""

    tasks: list[TaskSchedule]
    sizes: dict[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class TuningStarted:
    """Tuning begins, with a cost model that reports call so."""

    cost_model: str


@dataclasses.dataclass(frozen=True, slots=True)
class TrialsMeasured:
    """A batch of candidates came back. `best_ms` is the model's estimated latency: the sum over
    kernels of the best time known, measured or predicted; infinite while none is, and where the
    device is emulated."""

    trials: int
    planned: int | None  # None under a time budget
    best_ms: _Unbounded
    seconds_left: float | None
    task: str  # the task's printable name
    failed: int = 0  # candidates of this batch that were wrong, crashed or timed out


@dataclasses.dataclass(frozen=True, slots=True)
class VariantsCompared:
    """Variants of the whole model ran in turns. `changed` kernels (or, where `what` is algorithms,
    shapes of layers) are no longer what they were without measuring."""

    what: str  # algorithms or schedules
    variants: int
    changed: int


@dataclasses.dataclass(frozen=True, slots=True)
class TimeSpent:
    """Tuning is over, the race with the defaults included: its seconds by phase, and over all
    phases by kind of work."""

    budget_s: float | None
    phases: dict[str, float]
    works: dict[str, float]


@dataclasses.dataclass(frozen=True, slots=True)
class Verified:
    """The whole model ran on the device: outputs compared with the reference, then timed.
    `untuned_ms` is what the defaults took, where the model was compared with them. Times of an
    `emulated` device are the emulator's. Where outputs differ from those of the engine
    `differs_from` by more than rounding explains, `max_error` is how far they do. On a farm,
    `confirmed_by` names another device that verified it as well; it is `untrusted` where a single
    device did, for which nobody vouches. `reference` names who computed the outputs."""

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
    `ours_ms` have median, p10 and p90 of what a call took. `ratio` is our median over the engine's,
    round by round, then their median: below 1, ours is faster. `max_error` is of the engine's
    outputs, as share of their range. An engine that was not timed has no times; `note` says why."""

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
    """The artifact of a job has another version, numbered from 1, and can be had. Milliseconds of a
    run, and of a run of the untuned model beside it, where they were measured."""

    version: int
    median_ms: float | None
    untuned_ms: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class RolledBack:
    """A user has gone back to a version of the artifact of a job, which stays in use."""

    version: int


@dataclasses.dataclass(frozen=True, slots=True)
class Warned:
    """Something the user should know: a slow path taken, a device that throttles. `topic` says
    what it is about, where a program may ask: VERIFICATION or SIZES."""

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
    """The event as a flat JSON object; `kind` names its class."""
    return {"kind": _NAMES[type(event)], **codec.encode(event)}


def from_dict(raw: Mapping[str, Any]) -> Event:
    """Return the inverse of `to_dict`, also of what a farm says, whose JSON has null for infinity.
    Raises ValueError on anything else, as a kind of event that only a newer Farrier knows."""
    event: Event = codec.decode(_ANY, raw, name="event")
    return event


def ignore(event: Event) -> None:
    """The listener of those who do not listen."""
