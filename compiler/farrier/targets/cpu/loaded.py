"""A model's shared library in this process, with threads that stay."""

from __future__ import annotations

import ctypes
import os

from farrier.errors import ArtifactError
from farrier_device import native


class LoadedLibrary:
    """Implements `Loaded`: `library` is bound, and `pool` has the threads."""

    def __init__(self, data: bytes, entry: str, threads: int) -> None:
        try:
            self.library = native.Library.from_bytes(data)
            self.entry = self.library.entry(entry)
            self.pool = native.Pool(self.library, threads, _cpu_a_thread(threads))
        except native.NativeError as error:
            raise ArtifactError(f"the artifact's code cannot be loaded: {error}") from error
        self.context = self.pool.address

    def workspace_bytes(self, sizes: int) -> int:
        needed = self.library.function("farrier_workspace_bytes", ctypes.c_int64, ctypes.c_void_p)
        return int(needed(sizes))

    def close(self) -> None:
        self.pool.close()
        self.library.close()


def _cpu_a_thread(threads: int) -> tuple[int, ...]:
    """The CPUs to bind the threads to: all, where there is one for each, else none.

    Left free, a helper on a busy machine may stay on the CPU of the caller that wakes it, where it
    runs only once the caller has stopped spinning.
    """
    if threads == 1 or not hasattr(os, "sched_getaffinity"):
        return ()
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    return cpus if len(cpus) == threads else ()
