"""The terminal of the benchmark commands: how wide they write, and how they end on an error."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console

from farrier.errors import FarrierError

_INTERRUPTED = 130  # The exit status of a command that Ctrl-C ends: 128 + SIGINT.


def open_console(piped_columns: int = 160) -> Console:
    """Return a console as wide as the terminal; of `piped_columns` if the output is piped."""
    width = None if sys.stdout.isatty() else piped_columns
    return Console(highlight=False, soft_wrap=True, width=width)


def run(command: Callable[[Console], int], console: Console) -> int:
    """Return the exit status of a command; print a FarrierError and return its own."""
    try:
        return command(console)
    except FarrierError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
