"""The agent's wait for its machine to cool before it measures a batch."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from farrier_device.health import Health, look

LONGEST_S = 120.0
_LOOK_S = 1.0
log = logging.getLogger(__name__)


class Cooling:
    """The waits for a machine to cool before batches are measured. `message` is the reason for the
    wait in progress, or "" if there is none; any thread may read it."""

    def __init__(
        self,
        longest_s: float = LONGEST_S,
        look: Callable[[], Health] = look,
        look_s: float = _LOOK_S,
    ) -> None:
        """Create the object without waiting. `look` reads the machine's health, every `look_s`
        seconds during a wait. `longest_s` limits the total time of all waits since the machine was
        last cool."""
        self.message = ""
        self.look = look
        self._longest_s = longest_s
        self._look_s = look_s
        self._before = Health()
        self._waited_s = 0.0  # The time waited since the machine was last cool.

    def wait(self, stop: threading.Event) -> None:
        """Return when the machine is cool, when the time for waits is used up, or when `stop` is
        set."""
        while (hot := self.look().hot) and self._waited_s < self._longest_s and not stop.is_set():
            if not self.message:
                log.info("hot (%s): waiting for up to %.0f s", hot, self._longest_s)
            self.message = f"waits to cool: {hot}"
            begin = time.monotonic()
            stop.wait(self._look_s)
            self._waited_s += time.monotonic() - begin
        if not hot:
            self._waited_s = 0.0
        elif self.message and not stop.is_set():
            log.warning("still hot (%s) after the longest wait: measuring anyway", hot)
        self.message = ""

    def begin(self) -> None:
        """Record the machine's health just before a batch is measured."""
        self._before = self.look()

    def verdict(self) -> str:
        """Return the reason why the batch since `begin` may have run slower than on a cool machine:
        the machine was hot before or after it, or was throttled meanwhile. Return "" if none of
        these holds."""
        before, now = self._before, self.look()
        reasons = [before.hot or now.hot]
        if (now.throttles or 0) > (before.throttles or 0):
            reasons.append("throttled meanwhile")
        return ", ".join(filter(None, reasons))
