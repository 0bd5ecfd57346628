"""Processor time of a farm's processes, read from /proc."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_JOB = b"farrier_worker.job"


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """One process. Processor seconds are those of its own threads, and of its ended children that
    were waited for."""

    pid: int
    parent: int
    own_s: float
    ended_children_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerTime:
    """The core-seconds of a worker: of its supervisor, of the processes of its jobs, and of all
    that these started, which compile kernels and link."""

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
    """Return all processes of this machine, by pid; processes that end meanwhile are left out."""
    read = (_read(int(entry.name)) for entry in Path("/proc").glob("[0-9]*"))
    return {process.pid: process for process in read if process is not None}


def worker_time(worker: int) -> WorkerTime:
    """Return the times of a worker until now, by its pid."""
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
    """Core-seconds of a process and of all below it."""
    every = processes()
    family = [every[root], *_below(root, every)]
    return sum(process.own_s + process.ended_children_s for process in family)


def machine_s() -> float:
    """Core-seconds that the machine has been busy for, or was kept from us."""
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
