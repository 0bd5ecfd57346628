"""The time limit of each step of a job, enforced by its supervisor from outside: the step runs in
the job's own process, which may be stuck where only killing it helps.

What is done for the process does not count (a batch that waits for a device, builders, the farm's
answers), so what is bounded is the process's own work. Tuning has the bounds of the whole job."""

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

_BYTES_A_SECOND = 1 << 20  # of the model, beyond the fixed time: a slow core and a slow disk
_TUNING = ("schedule", "compare")
_JUDGING = ("reference", "verify")
_START = "start"


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """The time limit of a step, and the setting that raises it."""

    seconds: float
    variable: str


def limit_of(step: str, kind: JobKind, settings: Settings, nbytes: int) -> Limit | None:
    """The limit of a step for a model of so many bytes; None of one that has the job's alone."""
    if kind is JobKind.INSPECT:
        return Limit(settings.inspect_s, "FARRIER_INSPECT_S")
    if kind is JobKind.LIST:
        return Limit(settings.list_s, "FARRIER_LIST_S")
    if step in _TUNING:
        return None
    seconds = settings.step_s + nbytes / _BYTES_A_SECOND
    if step in _JUDGING:
        return Limit(seconds + MOST_TIMES * settings.reference_s, "FARRIER_STEP_S")
    if step.startswith("after "):  # it may wait for room
        seconds += settings.room_wait_s
    return Limit(seconds, "FARRIER_STEP_S")


class StepClock:
    """The present step of a job's process, and for how long it has worked on that by itself. Safe
    to share between threads."""

    def __init__(self) -> None:
        self.step = _START
        self._lock = threading.Lock()
        self._worked_s = 0.0
        self._since = time.monotonic()
        self._served = 0  # requests that are being served

    def hear(self, event: progress.Event) -> None:
        """Take note of the step that the process is in. To say again that it begins wins it no
        time."""
        if isinstance(event, progress.StageStarted):
            if event.stage != self.step:
                self._begin(event.stage)
        elif isinstance(event, progress.StageFinished):
            self._begin(f"after {event.stage}")

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        """A context in which something is done for the process, so that its clock stands still."""
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
        """The seconds that the process has worked on the present step."""
        with self._lock:
            return self._worked_s + (0.0 if self._served else time.monotonic() - self._since)

    def _begin(self, step: str) -> None:
        with self._lock:
            self.step, self._worked_s, self._since = step, 0.0, time.monotonic()


def past_limit(step: str, kind: JobKind, limit: Limit) -> TimeLimitError:
    """The error of a job whose step took longer."""
    if kind.is_prepared:
        return TimeLimitError(
            f"the {kind.items} has run for {limit.seconds:g} s, and may not run for longer",
            hint=f"the model can be compiled all the same: what is prepared to be shown is bounded "
            f"by {limit.variable}",
        )
    way = "it compares what is compiled; --no-verify leaves it out, " if step in _JUDGING else ""
    return TimeLimitError(
        f"the step {step!r} has run for {round(limit.seconds, 1):g} s, and may not run for longer",
        hint=f"{way}{limit.variable} raises its limit; compile the model alone with "
        "`farrier compile -v` to see where it stays",
    )
