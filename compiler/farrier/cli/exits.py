"""The end of the `farrier` command: an error or a signal becomes one line of text and an exit code.

This module imports nothing large, so that a missing package is reported in one line, too.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from farrier.errors import FarrierError, StorageError, not_installed
from farrier_device.storage.durable import is_full

BROKEN_PIPE, TERMINATED = 141, 143  # 128 + the number of the signal, as in shells.


def run() -> None:
    """Run the command and exit with 0 or with the code of an error. Raises KeyboardInterrupt."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        from farrier.cli.app import build

        build()()
    except FarrierError as error:
        _exit_with(error)
    except ModuleNotFoundError as error:
        _exit_with(not_installed(error))
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(BROKEN_PIPE)
    except OSError as error:
        if not is_full(error):
            raise
        _exit_with(_disk_full(error))


def _terminated(_number: int, _frame: FrameType | None) -> None:
    """End the process as Ctrl-C does, so that children and temporary files are removed. Server
    roles install handlers of their own."""
    raise SystemExit(TERMINATED)


def _exit_with(error: FarrierError) -> None:
    """Print the error with its hint, and exit with its code."""
    red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() else ("", "")
    hint = f"\n  hint: {error.hint}" if error.hint else ""
    sys.stderr.write(f"{red}error: {error.message}{plain}{hint}\n")
    sys.exit(error.exit_code)


def _disk_full(error: OSError) -> StorageError:
    where = f" {error.filename}" if error.filename else ""
    return StorageError(
        f"cannot write{where}: {error.strerror}",
        hint="free some space; TMPDIR moves temporary files to another disk",
    )
