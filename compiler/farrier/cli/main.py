"""Where the `farrier` command begins.

All but `sys` is imported under the guard: Ctrl-C is answered from the first line of `main` on.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130  # as shells say it: 128 + the signal


def main() -> None:
    """Runs the command and exits: 0, an error's own code, 130 after Ctrl-C."""
    try:
        from farrier.cli.exits import run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
