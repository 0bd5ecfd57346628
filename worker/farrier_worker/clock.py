"""What a job has used of its time, over all attempts, as its supervisor's clock says."""

from __future__ import annotations

import threading
import time

from farrier import progress
from farrier_farm.jobs.jobs import TimeUsed

_TUNING = ("schedule", "compare")  # the stages of the compiler that a budget is for


class JobClock:
    """Runs from when the attempt begins. Safe to share between threads."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._before: TimeUsed | None = None
        self._tuned_s = 0.0
        self._tunes_since: float | None = None
        self._lock = threading.Lock()

    def begin_from(self, before: TimeUsed) -> None:
        """Earlier attempts have used so much."""
        with self._lock:
            self._before = before

    def hear(self, event: progress.Event) -> None:
        """Take note of the stage that the attempt is in."""
        if isinstance(event, progress.StageStarted):
            with self._lock:
                now = time.monotonic()
                self._tuned_s += self._tuning_s(now)
                self._tunes_since = now if event.stage in _TUNING else None

    @property
    def used(self) -> TimeUsed | None:
        """By all attempts up to now; None while that of earlier ones is not known."""
        with self._lock:
            if self._before is None:
                return None
            now = time.monotonic()
            return TimeUsed(
                self._before.worked_s + now - self._begin,
                self._before.tuned_s + self._tuned_s + self._tuning_s(now),
            )

    def _tuning_s(self, now: float) -> float:
        return 0.0 if self._tunes_since is None else now - self._tunes_since
