"""The clock of the time that a job has used over all its attempts, kept by the supervisor."""

from __future__ import annotations

import threading
import time

from farrier import progress
from farrier_farm.jobs.jobs import TimeUsed

# The compiler's stages that count as tuning, for which a budget is.
_TUNING = ("schedule", "compare")


class JobClock:
    """The time that a job has used. The clock runs from the start of the attempt. Safe to share
    between threads."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._before: TimeUsed | None = None
        self._tuned_s = 0.0
        self._tunes_since: float | None = None
        self._lock = threading.Lock()

    def begin_from(self, before: TimeUsed) -> None:
        """Add `before`, the time that earlier attempts have used."""
        with self._lock:
            self._before = before

    def hear(self, event: progress.Event) -> None:
        """Update the job's present stage from an event that the attempt reports."""
        if isinstance(event, progress.StageStarted):
            with self._lock:
                now = time.monotonic()
                self._tuned_s += self._tuning_s(now)
                self._tunes_since = now if event.stage in _TUNING else None

    @property
    def used(self) -> TimeUsed | None:
        """Return the time used by all attempts until now. Return None before `begin_from` was
        called, because the time of earlier attempts is then unknown."""
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
