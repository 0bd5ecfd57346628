"""Other processes, by descriptors: signalled, and waited for although they are not our children."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path

from farrier_device.closing import Closing

_GLANCE_S = 0.01  # between two looks at a process that has no descriptor


class Handle(Closing):
    """A process that a descriptor stands for, so that another one that gets its number is safe.

    A kernel before Linux 5.3 and some emulators have no such descriptors: there the number is used.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._file: int | None = None
        with contextlib.suppress(OSError):  # It is gone already, or the kernel has no pidfd.
            self._file = os.pidfd_open(pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; a process that is gone gets none."""
        with contextlib.suppress(ProcessLookupError):
            if self._file is None:
                os.kill(self.pid, number)
            else:
                signal.pidfd_send_signal(self._file, number)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process has ended with all its threads, and return whether it has."""
        if self._file is not None:
            poll = select.poll()
            poll.register(self._file, select.POLLIN)
            return bool(poll.poll(1000 * timeout_s))
        deadline = time.monotonic() + timeout_s
        while is_running(self.pid):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_GLANCE_S)
        return True

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def is_running(pid: int) -> bool:
    """Return whether there is a process of this number that has not ended."""
    return state_of(pid) not in ("", "Z", "X")


def state_of(pid: int) -> str:
    """Return the letter that /proc has for the state of a process, "" if there is none."""
    try:
        return _fields(pid)[0]
    except OSError:
        return ""


def children_of(parent: int) -> list[int]:
    """Return the numbers of the processes whose parent is `parent`, those that have ended too."""
    children = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # It may end while its file is open.
                if _fields(int(entry.name))[1] == str(parent):
                    children.append(int(entry.name))
    return children


def _fields(pid: int) -> list[str]:
    """Return the state, the parent and what follows in /proc/PID/stat; the name before them may
    hold anything. Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
