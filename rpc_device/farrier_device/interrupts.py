"""The handling of Ctrl-C from the start of a command on.

This module imports only modules that Python has loaded at its start, so that Ctrl-C is also handled
during the command's imports.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

INTERRUPTED = 130  # The exit code that shells use: 128 + the signal.
_AGAIN_S = 0.01


def guarded(command: Callable[[], int | None]) -> None:
    """Run a command and exit with the code that it returns, or with 130 after Ctrl-C."""
    sys.unraisablehook = _dropped
    try:
        sys.exit(command())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except RuntimeError as error:
        # Python before 3.12 raises this from an exception in `__set_name__` of a class's attribute.
        number = _signal(error.__cause__)
        if number is None:
            raise
        sys.exit(128 + number)
    finally:
        # CPython remembers an interrupt that left `exec` of a string, as in the definition of a
        # dataclass, and would end by SIGINT despite the code. The next `exec` clears that. It is
        # done at every end, since Typer turns an interrupt into SystemExit.
        exec("")


def _dropped(what: sys.UnraisableHookArgs) -> None:
    """Handle an exception that Python cannot propagate, because it was raised in a finalizer or
    at the end of an import; this is a hook for `sys.unraisablehook`. If a signal handler raised
    the exception, the handler is called again soon. Otherwise Python's own hook reports the
    exception."""
    number = _signal(what.exc_value)
    if number is None:
        sys.__unraisablehook__(what)
    else:
        _thread.start_new_thread(_raise_again, (number,))


def _signal(error: BaseException | None) -> int | None:
    """Return the number of the signal whose handler raised the error; None if the error has another
    origin."""
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
