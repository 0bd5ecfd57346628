"""The kernel's view of a process that makes no progress: stopped by a signal, or waiting for a
processor or the disk. Linux reports it in `/proc` (proc_pid_stat(5),
Documentation/scheduler/sched-stats.rst)."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping
from pathlib import Path

_STOPPED = "T"
_HELD = "Dt"  # States of waiting for a disk, or for a debugger.
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_STEAL = 7  # The column of `/proc/stat` with the time that a hypervisor used for other machines.


@dataclasses.dataclass(frozen=True, slots=True)
class Glimpse:
    """The state of a process in the kernel at one moment."""

    at: float  # By the monotonic clock.
    is_held: bool
    # The time that each thread has waited for a processor since its start.
    waited_s: Mapping[int, float]
    stolen_s: float  # The time taken from each processor of this machine since its start.

    def kept_waiting_s(self, before: Glimpse) -> float:
        """Return how long the process could not run since the earlier state `before`, in seconds,
        at most the time between the two. The waiting times of all threads are added, because each
        thread may hold the interpreter lock for which the next one waits."""
        past_s = self.at - before.at
        if self.is_held:
            return past_s
        waited = sum(
            seconds - before.waited_s.get(thread, 0.0) for thread, seconds in self.waited_s.items()
        )
        return min(past_s, waited + self.stolen_s - before.stolen_s)


def is_stopped(pid: int) -> bool:
    """Return whether a signal, such as SIGSTOP, has stopped a process."""
    return _state(Path(f"/proc/{pid}")) == _STOPPED


def glimpse(pid: int) -> Glimpse:
    """Return the present state of a process, which may have exited."""
    is_held, waited_s = False, {}
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            is_held = is_held or _state(thread) in _HELD
            waited_s[int(thread.name)] = _waited_s(thread)
    return Glimpse(time.monotonic(), is_held, waited_s, _stolen_s())


def _state(process: Path) -> str:
    """Return the letter of the state of a process or thread in `/proc`; "-" if it has exited."""
    try:
        return (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return "-"


def _waited_s(thread: Path) -> float:
    """Return the time that a thread has waited on a run queue, in seconds; 0 if the thread has
    exited, or if the kernel does not measure the time."""
    try:
        return int((thread / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _stolen_s() -> float:
    try:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        return int(words[1 + _STEAL]) * _TICK_S / (os.cpu_count() or 1)
    except (OSError, IndexError, ValueError):
        return 0.0
