"""The memory limit of a job, and the measured memory use of its processes.

Memory use is the resident memory without file-backed pages. Pages of files that are mapped for
reading, such as models, do not count, because the kernel can drop them. A page that several
processes share counts once.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from farrier.errors import StorageError

# Allocations beyond this multiple of the limit, touched or not, fail at once: a single allocation
# may be larger than a watch that looks from time to time would notice in time.
_ASKED = 1.5
_RESIDENT = re.compile(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB$", re.MULTILINE)
# These are sizes divided by the number of processes that share the page. The kernel walks all pages
# to compute them.
_SHARE = re.compile(r"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB$", re.MULTILINE)


def limit_this_process(memory_bytes: int) -> None:
    """Limit the memory that this process, and each process that it starts, may allocate; an
    allocation beyond the limit raises MemoryError. 0 means no limit."""
    if memory_bytes:
        most = int(_ASKED * memory_bytes)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def held_bytes(group: int, enough: int = 0) -> int:
    """Return the memory use in bytes, including swapped memory, of all processes in the process
    group `group`. Shared pages are first counted in each process, which is cheap; if that sum
    exceeds `enough` bytes, each shared page is counted once. Returns 0 if the system has no /proc;
    raises OSError if /proc cannot be read."""
    members = list(_members(group))
    most = sum(map(_resident, members))
    return most if most <= enough else sum(map(_share, members))


def out_of_memory(memory_bytes: int) -> StorageError:
    """Return the error for a job that needs more memory than its limit."""
    return StorageError(
        f"the compilation needs more than {memory_bytes} bytes of memory",
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


def _resident(pid: int) -> int:
    """Return the memory use of a process in bytes, with shared pages counted in full."""
    return _sum(_RESIDENT, _read(pid, "status"))


def _share(pid: int) -> int:
    """Return the memory use of a process in bytes, in which a page that k processes share counts
    1/k. If the kernel is too old to report this, shared pages count in full."""
    text = _read(pid, "smaps_rollup")
    return _sum(_SHARE, text) if "Pss_Anon:" in text else _resident(pid)


def _read(pid: int, name: str) -> str:
    """Return the content of the file `name` in /proc for a process; "" if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _sum(pattern: re.Pattern[str], text: str) -> int:
    return 1024 * sum(int(kilobytes) for kilobytes in pattern.findall(text))
