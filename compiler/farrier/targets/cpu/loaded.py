"""A model's shared library loaded into this process, with a pool of threads that stay alive between
calls."""

from __future__ import annotations

import ctypes
import os

from farrier.artifact.code import ModelCode
from farrier.errors import ArtifactError
from farrier.targets.cpu.part import WORKSPACE_BYTES, CpuPart
from farrier_device import native


class LoadedLibrary:
    """The implementation of `Loaded` for CPUs: `library` is the bound shared library, and `pool`
    owns the threads."""

    def __init__(self, code: ModelCode, threads: int) -> None:
        part = CpuPart.of_json(code.backend)
        if len(code.objects) != 1:
            paths = ", ".join(library.path for library in code.objects)
            raise ArtifactError(
                f"a CPU loads one library, and the artifact has {paths}",
                hint="compile the model again, or run it with the Farrier that made it",
            )
        [library] = code.objects
        self.most_workspace = part.workspace
        try:
            self.library = native.Library.from_bytes(library.content)
            self.entry = self.library.entry(part.entry)
            self.pool = native.Pool(self.library, threads, _cpu_a_thread(threads))
        except native.NativeError as error:
            raise ArtifactError(
                f"{library.path} of the artifact cannot be loaded: {error}",
                hint="fetch it again, or compile the model again",
            ) from error
        self.context = self.pool.address
        self._workspace_bytes = part.workspace_bytes

    def workspace_bytes(self, sizes: int) -> int:
        try:
            needed = self.library.function(WORKSPACE_BYTES, ctypes.c_int64, ctypes.c_void_p)
        except native.NativeError:
            # A library without open sizes has no function that computes the workspace.
            return self._workspace_bytes
        return int(needed(sizes))

    def close(self) -> None:
        self.pool.close()
        self.library.close()


def _cpu_a_thread(threads: int) -> tuple[int, ...]:
    """Return a CPU for each of `threads` threads, to which the thread shall be bound. If this
    process may not use exactly `threads` CPUs, return (), and the threads are not bound.

    On a busy machine, an unbound helper thread may stay on the CPU of the calling thread that wakes
    it, and then runs only after the calling thread has stopped spinning.
    """
    if threads == 1 or not hasattr(os, "sched_getaffinity"):
        return ()
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    return cpus if len(cpus) == threads else ()
