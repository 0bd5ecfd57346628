"""Where the `farrier-device` command begins."""

from __future__ import annotations

from farrier_device.interrupts import guarded


def main() -> None:
    """Runs the agent and exits: 0, an error's own code, 130 after Ctrl-C while it starts."""
    guarded(_run)


def _run() -> int:
    from farrier_device import agent  # gRPC takes a while

    return agent.main()
