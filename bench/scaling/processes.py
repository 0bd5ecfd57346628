"""Read the processor time of a farm's processes from /proc."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_JOB = b"farrier_worker.job"


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """A process. Its processor seconds include its own threads and those of its ended children that
    it has waited for."""

    pid: int
    parent: int
    own_s: float
    ended_children_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerTime:
    """The core-seconds of a worker: of its supervisor, of the processes of its jobs, and of the
    processes started by these, which compile and link kernels."""

    supervisor_s: float
    jobs_s: float
    builders_s: float

    def __sub__(self, other: WorkerTime) -> WorkerTime:
        return WorkerTime(
            self.supervisor_s - other.supervisor_s,
            self.jobs_s - other.jobs_s,
            self.builders_s - other.builders_s,
        )


def processes() -> dict[int, Process]:
    """Return all processes of this machine, by pid; a process that ends in the meantime may be
    missing."""
    read = (_read(int(entry.name)) for entry in Path("/proc").glob("[0-9]*"))
    return {process.pid: process for process in read if process is not None}


def worker_time(worker: int) -> WorkerTime:
    """Return the core-seconds that a worker, given by its pid, has used so far."""
    every = processes()
    supervisor = every[worker]
    jobs_s = builders_s = 0.0
    for child in (process for process in every.values() if process.parent == worker):
        if _JOB in _command(child.pid):
            jobs_s += child.own_s
            builders_s += child.ended_children_s
            builders_s += sum(
                process.own_s + process.ended_children_s for process in _below(child.pid, every)
            )
    return WorkerTime(supervisor.own_s, jobs_s, builders_s)


def tree_s(root: int) -> float:
    """Return the core-seconds of a process and all of its descendants."""
    every = processes()
    family = [every[root], *_below(root, every)]
    return sum(process.own_s + process.ended_children_s for process in family)


def machine_s() -> float:
    """Return the core-seconds during which this machine's cores were busy, or were used by other
    virtual machines (steal time)."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / _TICKS


def _below(root: int, every: dict[int, Process]) -> Iterator[Process]:
    for process in every.values():
        if process.parent == root:
            yield process
            yield from _below(process.pid, every)


def _read(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # From the state on, because a name may have spaces.
    user, system, user_of_children, system_of_children = map(int, fields[11:15])
    return Process(
        pid,
        int(fields[1]),
        (user + system) / _TICKS,
        (user_of_children + system_of_children) / _TICKS,
    )


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
