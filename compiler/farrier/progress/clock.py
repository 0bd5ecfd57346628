"""The time budget of a tuning, and the time spent on its phases and kinds of work."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

_ALL = "all"


class Clock:
    """A clock that starts when it is created. Time is charged to phases, and within these to kinds
    of work.

    If several threads work at once, the kinds of work add up to more than their phase.
    """

    def __init__(self, budget_s: float | None = None) -> None:
        """Start the clock. Without a budget the remaining time is infinite."""
        self.budget_s = budget_s
        self._begin = time.monotonic()
        self._phase = ""
        self._adding = threading.Lock()
        self._ended: dict[str, str] = {}
        self._spent: dict[str, dict[str, float]] = {}

    @property
    def left(self) -> float:
        """Return the seconds that remain, below 0 once the budget is spent."""
        if self.budget_s is None:
            return float("inf")
        return self._begin + self.budget_s - time.monotonic()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the time of the `with` block to this phase."""
        outer, self._phase = self._phase, name
        try:
            with self.work(_ALL):
                yield
        finally:
            self._phase = outer

    @contextlib.contextmanager
    def work(self, name: str) -> Iterator[None]:
        """Charge the time of the `with` block to this kind of work, within the current phase."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.took(name, time.monotonic() - begin)

    def took(self, name: str, seconds: float) -> None:
        """Charge some seconds to this kind of work, within the current phase."""
        with self._adding:
            kinds = self._spent.setdefault(self._phase, {})
            kinds[name] = kinds.get(name, 0.0) + seconds

    def ended(self, reason: str) -> None:
        """Record the reason why the current phase ends early."""
        self._ended[self._phase] = reason

    @property
    def phases(self) -> dict[str, float]:
        """Return the seconds of each phase."""
        return {phase: kinds[_ALL] for phase, kinds in self._spent.items() if _ALL in kinds}

    @property
    def works(self) -> dict[str, float]:
        """Return the seconds of each kind of work, over all phases."""
        seconds_of: dict[str, float] = {}
        for kinds in self._spent.values():
            for kind, seconds in kinds.items():
                if kind != _ALL:
                    seconds_of[kind] = seconds_of.get(kind, 0.0) + seconds
        return seconds_of

    def report(self) -> dict[str, Any]:
        """Return, as JSON types, the seconds by phase and, within each, by kind of work, with the
        total as `all`, and the reasons why phases ended early."""
        return {"budget_s": self.budget_s, "seconds": self._spent, "ended": self._ended}
