"""The kernel's account of an idle process: stopped, or kept waiting for a processor or a disk.
Linux reports it in `/proc` (proc_pid_stat(5), Documentation/scheduler/sched-stats.rst)."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping
from pathlib import Path

_STOPPED = "T"
_HELD = "Dt"  # at the disk, or by a debugger
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_STEAL = 7  # the column of `/proc/stat` of the time that a hypervisor gave to other machines


@dataclasses.dataclass(frozen=True, slots=True)
class Glimpse:
    """The state of a process at one moment."""

    at: float  # of the monotonic clock
    is_held: bool
    waited_s: Mapping[int, float]  # by thread, for a processor, since its start
    stolen_s: float  # from each processor of this machine, since its start

    def kept_waiting_s(self, before: Glimpse) -> float:
        """For how many seconds, of those since an earlier look, the process may have been unable to
        go on. The waits of its threads count together, since one may hold the interpreter's lock
        against the next."""
        past_s = self.at - before.at
        if self.is_held:
            return past_s
        waited = sum(
            seconds - before.waited_s.get(thread, 0.0) for thread, seconds in self.waited_s.items()
        )
        return min(past_s, waited + self.stolen_s - before.stolen_s)


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped a process, which then certainly does nothing."""
    return _state(Path(f"/proc/{pid}")) == _STOPPED


def glimpse(pid: int) -> Glimpse:
    """A look at a process, which may be gone."""
    is_held, waited_s = False, {}
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            is_held = is_held or _state(thread) in _HELD
            waited_s[int(thread.name)] = _waited_s(thread)
    return Glimpse(time.monotonic(), is_held, waited_s, _stolen_s())


def _state(process: Path) -> str:
    """The letter of the state of a process or thread; "-" where it is gone."""
    try:
        return (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return "-"


def _waited_s(thread: Path) -> float:
    """The time on a run queue; 0 of a thread that is gone, or of a kernel that does not count."""
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
