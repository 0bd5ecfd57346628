"""Times at which no cycles of garbage are looked for.

IR is made of trees, which counted references free, and of so many that to look through them takes
a tenth of a compilation, up to a sixth of the time of kernels.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator


class _NoCollection:
    """Threads may be within it at once; it ends with the last one."""

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
