"""Child processes that do not outlive the process that started them."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
_LIBC = ctypes.CDLL(None)


def bound_to_this_process() -> Callable[[], None]:
    """What a child is to call between fork and exec (`preexec_fn` of `subprocess.Popen`): on Linux
    it is killed with the thread that started it, however early that one dies. What such a child
    does is made to survive this."""
    return functools.partial(_die_with, os.getpid())


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # it died before it could be watched
