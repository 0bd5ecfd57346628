"""The entry point of the `farrier` command."""

from __future__ import annotations

from farrier_device.interrupts import guarded


def main() -> None:
    """Run the command and exit: with 0, the code of an error, or 130 after Ctrl-C."""
    guarded(_run)


def _run() -> None:
    from farrier.cli.exits import run

    run()
