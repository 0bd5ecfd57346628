"""The retries of writes to a full disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from farrier import progress
from farrier.errors import StorageError

T = TypeVar("T")

_PAUSE_S = 1.0  # Pause between two tries.


def once_there_is_room(
    store: Callable[[], T],
    wait_s: float,
    listener: progress.Listener,
    over: threading.Event | None = None,
) -> T:
    """Call `store` until it no longer fails for lack of disk space, and return its result. The
    `listener` gets one warning, after the first failure. Once `wait_s` seconds have passed or
    `over` is set, the StorageError of `store` is raised."""
    over = over or threading.Event()
    deadline = time.monotonic() + wait_s
    warned = False
    while True:
        try:
            return store()
        except StorageError as error:
            if time.monotonic() >= deadline:
                raise
            if not warned:
                waits = f"the job waits up to {wait_s:.0f} s for free space"
                listener(progress.Warned(f"{error.message}; {waits}"))
                warned = True
            if over.wait(_PAUSE_S):
                raise
