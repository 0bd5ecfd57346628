"""Limit the time for which calls of the SDK wait for a server that cannot be reached."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from farrier.errors import FarrierError


class Patience:
    """The time for which failing calls are repeated: `seconds`, counted from the first of
    consecutive failures. If no call has succeeded yet (`renew`), a failure is raised at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = 0.0
        self._failures = 0

    def renew(self) -> None:
        """Record that a call has succeeded: the next failure starts the time anew."""
        self._until = float("inf")
        self._failures = 0

    def sleep_or_raise(
        self,
        error: FarrierError,
        at_least_s: float = 0.0,
        about_to_sleep: Callable[[], None] = lambda: None,
    ) -> None:
        """Sleep before the next attempt, longer after each consecutive failure: 0.1 s to 3 s, plus
        `at_least_s`, the time that the server requests. Raise `error` if the time is over, or would
        be after the sleep. `about_to_sleep` is called before a sleep."""
        now = time.monotonic()
        self._until = min(self._until, now + self._seconds)
        if now + at_least_s >= self._until:
            raise error
        about_to_sleep()
        time.sleep(at_least_s + min(0.1 * 2**self._failures, 3.0) * random.uniform(0.5, 1.0))
        self._failures += 1
