"""A time limit for running graphs in numpy, because a model can contain a loop of any length."""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Iterator


class OutOfTimeError(Exception):
    """A run exceeded its time limit."""


_ends: contextvars.ContextVar[float | None] = contextvars.ContextVar("ends", default=None)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """A context in which the execution of a graph for more than `seconds` raises OutOfTimeError,
    between two nodes."""
    token = _ends.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends.reset(token)


def check_time() -> None:
    """Raise OutOfTimeError if the time limit of the current context, if any, has passed."""
    ends = _ends.get()
    if ends is not None and time.monotonic() > ends:
        raise OutOfTimeError
