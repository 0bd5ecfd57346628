"""Where the `farrier` command begins."""

from __future__ import annotations

from farrier_device.interrupts import guarded


def main() -> None:
    """Run the command and exits: 0, an error's own code, 130 after Ctrl-C."""
    guarded(_run)


def _run() -> None:
    from farrier.cli.exits import run

    run()
