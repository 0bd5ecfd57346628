"""A namespace of processes: when its first process ends, all processes in it end.

Whatever the processes in it do (`setsid`, double forks, a cleared parent-death signal), the kernel
kills them together with the first one, and makes the first one the parent of processes whose
parents have ended.

Source: Linux `include/uapi/linux/{sched,capability,prctl}.h`; pid_namespaces(7).
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import struct
from typing import NoReturn

PROCESSES = "pidns"  # The name in a level of isolation.
_NEW_IPC, _NEW_USER, _NEW_PID = 0x08000000, 0x10000000, 0x20000000
_PR_SET_PDEATHSIG = 1
_CAPABILITY_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3: two words of each set
_MOST_FILES = 4096  # A fork server has a few descriptors, which the kernel numbers from 0 on.


def enter(libc: ctypes.CDLL) -> bool:
    """Continue as the first process of a new namespace of processes; return False, with nothing
    changed, if the kernel does not allow it.

    The calling process must have one thread. It stays behind, waits for the first process and ends
    as that does; neither outlives the other. A user namespace is entered as well, which needs no
    privilege, and takes a privileged caller's rights over the machine.
    """
    if libc.unshare(_NEW_USER | _NEW_PID) != 0 and libc.unshare(_NEW_PID) != 0:
        return False
    watched, held = os.pipe()
    first = os.fork()
    if first:
        _stay_behind(first, held)
    os.close(held)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent is outside of the namespace, so `getppid` would not show that it is gone.
    if select.select([watched], [], [], 0)[0]:
        os._exit(1)
    os.close(watched)
    return True


def enter_own_ipc(libc: ctypes.CDLL) -> None:
    """Leave the System V shared memory of other processes, if the kernel allows it: segments that
    the calling process creates end with it."""
    libc.unshare(_NEW_IPC)


def drop_capabilities(libc: ctypes.CDLL) -> None:
    """Give up every capability of the calling thread."""
    nothing = struct.pack("=6I", *([0] * 6))
    libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION, 0), nothing)


def _stay_behind(first: int, held: int) -> NoReturn:
    """Wait for the first process, and end as it does. All files are closed except the pipe by which
    the first process sees that this one lives."""
    os.closerange(0, held)
    os.closerange(held + 1, _MOST_FILES)
    _, status = os.waitpid(first, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(abs(code))
