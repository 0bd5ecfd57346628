"""PID namespaces: when the first process of a namespace ends, all processes in the namespace end.

Whatever these processes do (`setsid`, double forks, a cleared parent-death signal), the kernel
kills them together with the first process, which also becomes the parent of processes whose parents
have ended.

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
    """Continue as the first process of a new PID namespace. Return False, with nothing changed, if
    the kernel does not permit that.

    The calling process must have one thread. The original process stays outside, waits for the
    first process and ends in the same way; neither outlives the other. A user namespace is entered
    as well, which needs no privilege, and removes a privileged caller's rights over the machine.
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
    """Enter a new IPC namespace, if the kernel permits that: System V shared memory of other
    processes becomes unreachable, and segments that the calling process creates are freed when it
    ends."""
    libc.unshare(_NEW_IPC)


def drop_capabilities(libc: ctypes.CDLL) -> None:
    """Drop all capabilities (Linux privileges) of the calling thread."""
    nothing = struct.pack("=6I", *([0] * 6))
    libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION, 0), nothing)


def _stay_behind(first: int, held: int) -> NoReturn:
    """Wait for the first process of the namespace, and end in the same way. All files are closed
    except the pipe from which the first process learns that this process still runs."""
    os.closerange(0, held)
    os.closerange(held + 1, _MOST_FILES)
    _, status = os.waitpid(first, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(abs(code))
