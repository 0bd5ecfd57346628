"""The time that graphs may be run for in numpy: a model says how long a loop goes on."""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Iterator


class OutOfTimeError(Exception):
    """A run did not come to its end in its time."""


_ends: contextvars.ContextVar[float | None] = contextvars.ContextVar("ends", default=None)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """A context in which a graph that runs for longer raises OutOfTimeError between two nodes."""
    token = _ends.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends.reset(token)


def check_time() -> None:
    """Raises OutOfTimeError past the limit, where there is one."""
    ends = _ends.get()
    if ends is not None and time.monotonic() > ends:
        raise OutOfTimeError
