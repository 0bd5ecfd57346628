"""Handles of other processes, by descriptor: they can be signalled and waited for even if they are
not children."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path

from farrier_device.closing import Closing

_GLANCE_S = 0.01  # The interval at which a process without a descriptor is checked.


class Handle(Closing):
    """A process, identified by a descriptor, so that another process that is assigned the same
    process id later is not affected.

    Kernels before Linux 5.3 and some emulators lack such descriptors; the process id is used there.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._file: int | None = None
        with contextlib.suppress(OSError):  # It is gone already, or the kernel has no pidfd.
            self._file = os.pidfd_open(pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self._file is None:
                os.kill(self.pid, number)
            else:
                signal.pidfd_send_signal(self._file, number)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process has ended with all its threads; return whether it has ended within
        `timeout_s` seconds."""
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
    """Return whether a process with this process id is running."""
    return state_of(pid) not in ("", "Z", "X")


def state_of(pid: int) -> str:
    """Return the letter of a process's state in /proc, "" if the process has ended."""
    try:
        return _fields(pid)[0]
    except OSError:
        return ""


def children_of(parent: int) -> list[int]:
    """Return the process ids of the child processes of `parent`, including ended ones that are not
    reaped."""
    children = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # It may end while its file is open.
                if _fields(int(entry.name))[1] == str(parent):
                    children.append(int(entry.name))
    return children


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the process state on; the process name before them
    may contain any character. Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
