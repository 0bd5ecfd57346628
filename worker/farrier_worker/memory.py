"""How much memory a job may hold, and how much its processes do.

What counts is resident memory that no file holds. The pages of a file that is mapped for reading,
as models are, do not count: the kernel takes them back where it needs room."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from farrier.errors import StorageError
from farrier_farm.settings import Settings

# Bytes that a process asked for, touched or not, fail at once beyond this multiple of the limit:
# one allocation may be larger than what a watch that looks now and then would notice in time.
_ASKED = 1.5
_HELD = re.compile(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB$", re.MULTILINE)


def limit_this_process(settings: Settings) -> None:
    """Bounds what this process, and each that it starts, may ask for; it gets a MemoryError."""
    if settings.job_memory_bytes:
        most = int(_ASKED * settings.job_memory_bytes)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def held_bytes(group: int) -> int:
    """What the processes of a group hold together, the part that is swapped out included. 0 where
    the system has no /proc."""
    return sum(map(_held, _members(group)))


def out_of_memory(settings: Settings) -> StorageError:
    """Why a job ends that needs more than it may have."""
    return StorageError(
        f"the compilation needs more than {settings.job_memory_bytes} bytes of memory",
        hint="raise FARRIER_JOB_MEMORY_BYTES, or fix the model's dynamic shapes at smaller sizes",
    )


def _members(group: int) -> Iterator[int]:
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        return
    for pid in (int(name) for name in names if name.isdigit()):
        try:
            if os.getpgid(pid) == group:
                yield pid
        except ProcessLookupError:
            continue


def _held(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return 0
    return 1024 * sum(int(kilobytes) for kilobytes in _HELD.findall(status))
