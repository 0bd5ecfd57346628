"""Answers that many viewers ask for at once, and that cost what one asks for."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Hashable

FRESH_S = 0.5
_KEPT = 50  # answers; of more, stale ones are dropped


@dataclasses.dataclass(slots=True)
class _Answer:
    making: asyncio.Task[bytes]
    since: float = float("inf")  # it was made; monotonic

    @property
    def is_fresh(self) -> bool:
        if not self.making.done():
            return True
        failed = self.making.cancelled() or self.making.exception() is not None
        return not failed and time.monotonic() - self.since < FRESH_S


class Shared:
    """The answers that requests share, for the tasks of one event loop."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, _Answer] = {}

    async def get(self, name: Hashable, make: Callable[[], bytes]) -> bytes:
        """What `make` returned less than `FRESH_S` ago, or returns now, in a thread; one call of it
        at a time. Raises what it does, to all who wait."""
        answer = self._answers.get(name)
        if answer is None or not answer.is_fresh:
            if len(self._answers) >= _KEPT:
                self._answers = {key: one for key, one in self._answers.items() if one.is_fresh}
            answer = _Answer(asyncio.create_task(asyncio.to_thread(make)))
            self._answers[name] = answer
            answer.making.add_done_callback(lambda _: _note(answer))
        return await asyncio.shield(answer.making)


def _note(answer: _Answer) -> None:
    answer.since = time.monotonic()
