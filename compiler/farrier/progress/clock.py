"""What a tuning may take of the clock on the wall, and what it takes it for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

_ALL = "all"


class Clock:
    """Runs from when it is made. The time is spent in phases, and in these on kinds of work.

    Several threads may work at once: then kinds of work add up to more than their phase."""

    def __init__(self, budget_s: float | None = None) -> None:
        """Without a budget there is always time left."""
        self.budget_s = budget_s
        self._begin = time.monotonic()
        self._phase = ""
        self._adding = threading.Lock()
        self._ended: dict[str, str] = {}
        self._spent: dict[str, dict[str, float]] = {}

    @property
    def left(self) -> float:
        """Seconds, below 0 once the budget is spent."""
        if self.budget_s is None:
            return float("inf")
        return self._begin + self.budget_s - time.monotonic()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What is done within counts as this phase."""
        outer, self._phase = self._phase, name
        try:
            with self.work(_ALL):
                yield
        finally:
            self._phase = outer

    @contextlib.contextmanager
    def work(self, name: str) -> Iterator[None]:
        """What is done within counts as this kind of work, in the phase it is done in."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.took(name, time.monotonic() - begin)

    def took(self, name: str, seconds: float) -> None:
        """So long was spent on this kind of work, in the phase that runs."""
        with self._adding:
            kinds = self._spent.setdefault(self._phase, {})
            kinds[name] = kinds.get(name, 0.0) + seconds

    def ended(self, reason: str) -> None:
        """Why the phase that runs ends."""
        self._ended[self._phase] = reason

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of each phase."""
        return {phase: kinds[_ALL] for phase, kinds in self._spent.items() if _ALL in kinds}

    @property
    def works(self) -> dict[str, float]:
        """Seconds of each kind of work, over all phases."""
        found: dict[str, float] = {}
        for kinds in self._spent.values():
            for kind, seconds in kinds.items():
                if kind != _ALL:
                    found[kind] = found.get(kind, 0.0) + seconds
        return found

    def report(self) -> dict[str, Any]:
        """Seconds by phase, and in it by kind of work, `all` included, and why phases ended that
        might have gone on, as JSON types."""
        return {"budget_s": self.budget_s, "seconds": self._spent, "ended": self._ended}
