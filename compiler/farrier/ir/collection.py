"""Suspend Python's cyclic garbage collector while code builds IR.

IR consists of trees, which reference counting frees. Since there are many nodes, scanning them for
cycles would take a tenth of the time of a compilation, and up to a sixth of the time for generating
kernels.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator


class _NoCollection:
    """A context manager that suspends garbage collection. Several threads may enter it at once;
    collection resumes when the last of them leaves it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._within = 0
        self._was_enabled = False

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._within == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._within += 1
        try:
            yield
        finally:
            with self._lock:
                self._within -= 1
                if self._within == 0 and self._was_enabled:
                    gc.enable()


no_collection = _NoCollection()
