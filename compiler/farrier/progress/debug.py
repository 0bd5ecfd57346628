"""Environment variables for debugging and checking the compiler, which no other module reads:

FARRIER_DEBUG    0 silent (default) · 1 time of each stage · 2 what each pass changed · 3 the graph
                 after each pass · 4 tensor programs and schedules · 5 every kernel's loops after
                 each loop pass that changed them · 6 its instructions,
                 and those after each pass on them
FARRIER_CHECK    0 nothing · 1 verify after each pass on graphs (default) · 2 also after each pass
                 on loops and the driver, and read the printed
                 IR back
FARRIER_CRASHES  where a failing pass leaves its reproducer (default: farrier-crashes in the
                 directory for temporary files)
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from farrier.errors import UsageError

TIMES, CHANGES, GRAPHS, PROGRAMS, LOOPS, CODE = range(1, 7)
READ_BACK = 2  # A level of FARRIER_CHECK.


def debug_level() -> int:
    """Return the value of FARRIER_DEBUG. Raises UsageError if it is not a number."""
    return _level("FARRIER_DEBUG", 0)


def check_level() -> int:
    """Return the value of FARRIER_CHECK, which sets how much is verified."""
    return _level("FARRIER_CHECK", 1)


def crash_directory() -> Path:
    """Return the folder to which reproducers are written; it may not exist yet."""
    chosen = os.environ.get("FARRIER_CRASHES")
    return Path(chosen) if chosen else Path(tempfile.gettempdir()) / "farrier-crashes"


def leave_reproducer(name: str, text: str) -> Path:
    """Write the IR on which the pass `name` failed to a file, and return the path."""
    directory = crash_directory()
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.ir"
    path.write_text(text, encoding="utf-8")
    return path


def show(level: int, title: str, text: Callable[[], str] = str) -> None:
    """Write `title` and the result of `text` to standard error if FARRIER_DEBUG is at least
    `level`."""
    if debug_level() >= level:
        print(f"--- {title}", text(), sep="\n", end="", file=sys.stderr)


def _level(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    if not text:
        return default
    if not text.isdecimal():
        raise UsageError(f"{variable} is {text!r}", hint=f"{variable}=1")
    return int(text)
