"""The time limits of the steps of a job. The supervisor enforces them from outside, because a stuck
process may have to be killed.

The time in which the farm serves a request of the process (a batch that waits for a device, a
build, an answer) does not count, so a limit applies to the process's own work. Tuning is limited
only by the limits of the whole job.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator

from farrier import progress
from farrier.errors import TimeLimitError
from farrier.packaging.limits import MOST_TIMES
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.settings import Settings

# A model adds a second to the limit for each of these bytes, which allows for a slow core and disk.
_BYTES_A_SECOND = 1 << 20
_TUNING = ("schedule", "compare")
_JUDGING = ("reference", "verify")
_START = "start"


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """The time limit of a step, and the name of the setting that raises the limit."""

    seconds: float
    variable: str


def limit_of(step: str, kind: JobKind, settings: Settings, nbytes: int) -> Limit | None:
    """Return the time limit of the step `step` of a job of this kind, for a model of `nbytes`.
    Return None if only the limit of the whole job applies to the step."""
    if kind is JobKind.INSPECT:
        return Limit(settings.inspect_s, "FARRIER_INSPECT_S")
    if kind is JobKind.LIST:
        return Limit(settings.list_s, "FARRIER_LIST_S")
    if step in _TUNING:
        return None
    seconds = settings.step_s + nbytes / _BYTES_A_SECOND
    if step in _JUDGING:
        return Limit(seconds + MOST_TIMES * settings.reference_s, "FARRIER_STEP_S")
    if step.startswith("after "):  # It may wait for room on the disk.
        seconds += settings.room_wait_s
    return Limit(seconds, "FARRIER_STEP_S")


class StepClock:
    """The present step of a job's process, and the time that the process has worked on the step.
    Safe to share between threads."""

    def __init__(self) -> None:
        self.step = _START
        self._lock = threading.Lock()
        self._worked_s = 0.0
        self._since = time.monotonic()
        self._served = 0  # The number of requests in progress.

    def hear(self, event: progress.Event) -> None:
        """Update the present step from an event of the process. A repeated report of the same step
        does not restart its time."""
        if isinstance(event, progress.StageStarted):
            if event.stage != self.step:
                self._begin(event.stage)
        elif isinstance(event, progress.StageFinished):
            self._begin(f"after {event.stage}")

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        """Return a context during which the clock stands still, because a request of the process is
        being served."""
        with self._lock:
            if not self._served:
                self._worked_s += time.monotonic() - self._since
            self._served += 1
        try:
            yield
        finally:
            with self._lock:
                self._served -= 1
                self._since = time.monotonic()

    @property
    def worked_s(self) -> float:
        """Return the seconds that the process has worked on the present step."""
        with self._lock:
            return self._worked_s + (0.0 if self._served else time.monotonic() - self._since)

    def _begin(self, step: str) -> None:
        with self._lock:
            self.step, self._worked_s, self._since = step, 0.0, time.monotonic()


def past_limit(step: str, kind: JobKind, limit: Limit) -> TimeLimitError:
    """Return the error for a job whose step exceeded its limit."""
    if kind.is_prepared:
        return TimeLimitError(
            f"the {kind.items} has run for {limit.seconds:g} s, and may not run for longer",
            hint="the model can still be compiled; only the time of such views is limited, "
            f"by {limit.variable}",
        )
    way = "it only compares results, so --no-verify skips it; " if step in _JUDGING else ""
    return TimeLimitError(
        f"the step {step!r} has run for {round(limit.seconds, 1):g} s, and may not run for longer",
        hint=f"{way}{limit.variable} raises its limit; compile the model alone with "
        "`farrier compile -v` to find the cause",
    )
