"""Control groups (version 2), which limit the resources of a set of processes and can kill all of
them reliably.

A process cannot leave its group, whatever it starts, unless it may write to the group's files. A
group can be created if the system has delegated a subtree of groups to this process: to its user,
as `systemd --user` does, or to a service with `Delegate=yes`.

Source: Linux `Documentation/admin-guide/cgroup-v2.rst`; systemd `docs/CGROUP_DELEGATION.md`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from farrier_device.closing import Closing
from farrier_device.processes import is_running

NAME = "cgroup"  # The name in a level of isolation.
_CONTROLLERS = frozenset({"memory", "pids"})
# The share of the memory that a group gets, so that the keeper and the system keep working when a
# child uses all of it.
_MEMORY_SHARE = 7 / 8
# Extended attributes that systemd sets on delegated groups.
_MARKS = ("user.delegate", "trusted.delegate")
_GLANCE_S = 0.005  # The interval at which a killed group is checked.
_PREFIX = "farrier-"  # The prefix of the names of created groups.
_LEAF = "agent"  # The sub-group that a process moves to so that its own group can be divided.

_MOUNTS = Path("/proc/self/mountinfo")
_OWN = Path("/proc/self/cgroup")


class Group(Closing):
    """A control group, which contains no process at first."""

    def __init__(self, parent: Path, memory_bytes: int, tasks: int) -> None:
        """Create a group below `parent`, a group that `place` returned, with limits on memory and
        on the number of tasks. Raises OSError."""
        _clear(parent)
        self.path = parent / f"{_PREFIX}{os.getpid()}-{time.monotonic_ns()}"
        self.path.mkdir()
        try:
            self._write("memory.max", int(memory_bytes * _MEMORY_SHARE))
            self._write("pids.max", tasks)
        except BaseException:
            self.path.rmdir()
            raise

    def take(self, pid: int) -> None:
        """Move a process into the group; processes that it starts later are in the group too.
        Raises OSError."""
        self._write("cgroup.procs", pid)

    def kill(self, timeout_s: float) -> bool:
        """Kill all processes in the group; return whether the group is empty within `timeout_s`
        seconds."""
        deadline = time.monotonic() + timeout_s
        while self._is_populated():
            self._kill_once()
            if time.monotonic() >= deadline:
                return False
            time.sleep(_GLANCE_S)
        return True

    def close(self) -> None:
        """Remove the group, if it contains no process; a second call does nothing."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _is_populated(self) -> bool:
        """Return whether the group contains a running process; an ended process does not count,
        even if its parent has not reaped it."""
        events = (self.path / "cgroup.events").read_text().split()
        return events[events.index("populated") + 1] != "0"

    def _kill_once(self) -> None:
        try:
            self._write("cgroup.kill", 1)
        except OSError:  # The kernel is older than Linux 5.14.
            for pid in map(int, _words(self.path / "cgroup.procs")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _write(self, name: str, value: int) -> None:
        (self.path / name).write_text(str(value))


def place() -> Path | None:
    """Return the nearest control group below which groups with limits can be created: that of this
    process, or an ancestor of it. Return None if there is none."""
    for group in _own_and_above():
        with contextlib.suppress(OSError):
            if _words(group / "cgroup.subtree_control") >= _CONTROLLERS and _is_delegated(group):
                return group
    return None


def settle() -> None:
    """Move this process to a subgroup of its control group, so that further subgroups can have
    limits: a group that contains processes itself cannot have such subgroups.

    Do nothing if the group is not delegated to this process, or contains other processes.
    """
    own = next(_own_and_above(), None)
    pid = str(os.getpid())
    with contextlib.suppress(OSError):
        if own is None or _words(own / "cgroup.procs") != {pid} or not _is_delegated(own):
            return
        if _words(own / "cgroup.controllers") >= _CONTROLLERS:
            (own / _LEAF).mkdir(exist_ok=True)
            (own / _LEAF / "cgroup.procs").write_text(pid)
            wanted = " ".join(f"+{name}" for name in sorted(_CONTROLLERS))
            (own / "cgroup.subtree_control").write_text(wanted)


def _clear(parent: Path) -> None:
    """Remove the empty groups below `parent` that ended processes have left."""
    for group in parent.glob(f"{_PREFIX}*-*"):
        pid = group.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not is_running(int(pid)):
            with contextlib.suppress(OSError):
                group.rmdir()


def _own_and_above() -> Iterator[Path]:
    """Yield the folder of this process's control group, then those of its ancestors, as far as they
    are visible."""
    try:
        mount = _mount()
        own = next(line for line in _OWN.read_text().splitlines() if line.startswith("0::/"))
    except (OSError, StopIteration):
        return
    folder = mount / own.removeprefix("0::/")
    yield folder
    yield from (above for above in folder.parents if above.is_relative_to(mount))


def _mount() -> Path:
    """Return the mount point of the control-group file system. Raises StopIteration if it is not
    mounted."""
    lines = map(str.split, _MOUNTS.read_text().splitlines())
    return next(Path(words[4]) for words in lines if words[words.index("-") + 1] == "cgroup2")


def _is_delegated(group: Path) -> bool:
    """Return whether this process may create subgroups of the group: its user owns the group, or an
    extended attribute marks it as delegated."""
    if not all(os.access(path, os.W_OK) for path in (group, group / "cgroup.procs")):
        return False
    if os.geteuid() != 0:
        return group.stat().st_uid == os.geteuid()
    return any(_mark(group, name) == b"1" for name in _MARKS)


def _mark(group: Path, name: str) -> bytes:
    try:
        return os.getxattr(group, name)
    except OSError:
        return b""


def _words(file: Path) -> set[str]:
    return set(file.read_text().split())
