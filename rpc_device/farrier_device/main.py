"""The entry point of the `farrier-device` command."""

from __future__ import annotations

import sys

from farrier_device.interrupts import guarded

_USAGE = 2  # the exit code


def main() -> None:
    """Run the agent and exit: with 0, with the exit code of an error, or with 130 after Ctrl-C
    during its start."""
    guarded(_run)


def _run() -> int:
    try:
        from farrier_device import agent  # Importing gRPC takes a while.
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("google", "grpc"):
            raise
        sys.stderr.write(
            f"error: the agent needs the package {package}, which is not installed\n"
            "  hint: pip install 'farrier[device]'\n"
        )
        return _USAGE
    return agent.main()
