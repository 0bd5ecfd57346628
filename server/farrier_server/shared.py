"""A cache for answers that many viewers request at the same time: each answer is computed once for
all of them."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Hashable

FRESH_S = 0.5
_KEPT = 50  # The most answers kept; beyond it, stale ones are dropped.


@dataclasses.dataclass(slots=True)
class _Answer:
    making: asyncio.Task[bytes]
    since: float = float("inf")  # The monotonic time at which the answer was computed.

    @property
    def is_fresh(self) -> bool:
        if not self.making.done():
            return True
        failed = self.making.cancelled() or self.making.exception() is not None
        return not failed and time.monotonic() - self.since < FRESH_S


class Shared:
    """The cached answers, for the tasks of one event loop."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, _Answer] = {}

    async def get(self, name: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the answer `name`: the cached one if it is younger than `FRESH_S`, else the result
        of `make`, which is called in a thread. Only one call runs at a time; an exception of the
        call is raised to all tasks that wait for it."""
        answer = self._answers.get(name)
        if answer is None or not answer.is_fresh:
            if len(self._answers) >= _KEPT:
                self._answers = {key: kept for key, kept in self._answers.items() if kept.is_fresh}
            answer = _Answer(asyncio.create_task(asyncio.to_thread(make)))
            self._answers[name] = answer
            answer.making.add_done_callback(lambda _: _note(answer))
        return await asyncio.shield(answer.making)


def _note(answer: _Answer) -> None:
    answer.since = time.monotonic()
