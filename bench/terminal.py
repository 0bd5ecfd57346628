"""The terminal output of the benchmark commands: its width, and errors."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console

from farrier.errors import FarrierError

_INTERRUPTED = 130  # The exit status of a command that Ctrl-C ends: 128 + SIGINT.


def open_console(piped_columns: int = 160) -> Console:
    """Return a console with the width of the terminal, or of `piped_columns` columns if the output
    is not a terminal."""
    width = None if sys.stdout.isatty() else piped_columns
    return Console(highlight=False, soft_wrap=True, width=width)


def run(command: Callable[[Console], int], console: Console) -> int:
    """Run a command and return its exit status. A FarrierError is printed, and its own exit status
    returned."""
    try:
        return command(console)
    except FarrierError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
