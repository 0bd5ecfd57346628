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
    """Return a function for the argument `preexec_fn` of `subprocess.Popen`. With it, on Linux, the
    kernel kills the child when the thread that started the child ends. The child is killed at any
    point, so its work must tolerate that."""
    return functools.partial(_die_with, os.getpid())


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # The parent died before the kernel could watch it.
