"""The processes with which a runner measures: fork servers, what stands before them, children."""

from __future__ import annotations

from pathlib import Path

from farrier_device.processes import children_of


def measuring_processes(pid: int) -> list[int]:
    """Return the processes that a runner in process `pid` has started, and their descendants: the
    fork server, the process before it, and its children."""
    own = [child for child in children_of(pid) if b"farrier_device.fork_server" in _command(child)]
    return sorted({*own, *(each for child in own for each in _descendants(child))})


def fork_servers_of(pid: int) -> list[int]:
    """Return the first process of each fork server that a runner in process `pid` has started."""
    return [child for child in children_of(pid) if b"farrier_device.fork_server" in _command(child)]


def threads_of(pid: int) -> int:
    """Return the number of threads of a process."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def _descendants(pid: int) -> list[int]:
    return [each for child in children_of(pid) for each in (child, *_descendants(child))]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # It has ended meanwhile.
        return b""
