"""Ctrl-C, from the first line of a command on.

Nothing is imported here that Python has not at its start: what a command imports, it imports under
the guard.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

INTERRUPTED = 130  # as shells say it: 128 + the signal
_AGAIN_S = 0.01


def guarded(command: Callable[[], int | None]) -> None:
    """Run a command and exits: with the code that it returns, 130 after Ctrl-C."""
    sys.unraisablehook = _dropped
    try:
        sys.exit(command())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _dropped(what: sys.UnraisableHookArgs) -> None:
    """Python drops what is raised in its callbacks: in finalizers, and at the end of each import. A
    signal's handler that ran there and raised is called again, soon after."""
    number = _signal(what.exc_value)
    if number is None:
        sys.__unraisablehook__(what)
    else:
        _thread.start_new_thread(_raise_again, (number,))


def _signal(error: BaseException | None) -> int | None:
    """The number of the signal whose handler raised the error; None where none has."""
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED - 128
        case SystemExit(code=int(code)) if code > 128:
            return code - 128
        case _:
            return None


def _raise_again(number: int) -> None:
    time.sleep(_AGAIN_S)
    os.kill(os.getpid(), number)
