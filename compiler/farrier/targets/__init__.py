"""The hardware that code is made for: what a machine is, and who makes code for it.

    parse_target("rpi5")  →  MachineDescription  →  Backend.target  →  Target

A `Target` is data about the machine that runs the code, whatever machine compiles.
"""

from __future__ import annotations

from farrier.targets.backend import (
    Backend,
    KnownMachine,
    Loaded,
    Plan,
    backend_for,
    backends,
)
from farrier.targets.names import (
    called,
    canonical,
    host,
    known_machines,
    parse_machine,
    parse_target,
    read_target,
    to_text,
    why_not_here,
)
from farrier.targets.target import Target

__all__ = [
    "Backend",
    "KnownMachine",
    "Loaded",
    "Plan",
    "Target",
    "backend_for",
    "backends",
    "called",
    "canonical",
    "host",
    "known_machines",
    "parse_machine",
    "parse_target",
    "read_target",
    "to_text",
    "why_not_here",
]
