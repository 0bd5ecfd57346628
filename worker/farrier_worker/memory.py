"""How much memory a job may hold, and how much its processes do.

What counts is resident memory that no file holds. The pages of a file that is mapped for reading,
as models are, do not count: the kernel takes them back where it needs room. A page that several
processes share counts once."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from farrier.errors import StorageError

# Bytes that a process asked for, touched or not, fail at once beyond this multiple of the limit:
# one allocation may be larger than what a watch that looks now and then would notice in time.
_ASKED = 1.5
_RESIDENT = re.compile(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB$", re.MULTILINE)
# Each page divided by how many processes have it. The kernel walks all pages to find these.
_SHARE = re.compile(r"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB$", re.MULTILINE)


def limit_this_process(memory_bytes: int) -> None:
    """Bound what this process, and each that it starts, may ask for; it gets a MemoryError. 0: no
    bound."""
    if memory_bytes:
        most = int(_ASKED * memory_bytes)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def held_bytes(group: int, enough: int = 0) -> int:
    """What the processes of a group hold together, the part that is swapped out included. Up to
    `enough`, shared pages count in each process, which is cheaper to find out. 0 where the system
    has no /proc; raises OSError where it cannot be read."""
    members = list(_members(group))
    most = sum(map(_resident, members))
    return most if most <= enough else sum(map(_share, members))


def out_of_memory(memory_bytes: int) -> StorageError:
    """Why a job ends that needs more than it may have."""
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
    """The bytes that a process holds, alone or with others."""
    return _sum(_RESIDENT, _read(pid, "status"))


def _share(pid: int) -> int:
    """The same, but of those with others its share; all of them where an old kernel says none."""
    text = _read(pid, "smaps_rollup")
    return _sum(_SHARE, text) if "Pss_Anon:" in text else _resident(pid)


def _read(pid: int, name: str) -> str:
    """One of the kernel's files on a process; "" where there is none, as of one that has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _sum(pattern: re.Pattern[str], text: str) -> int:
    return 1024 * sum(int(kilobytes) for kilobytes in pattern.findall(text))
