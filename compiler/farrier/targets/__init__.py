"""The hardware that code is made for: what a machine is, and who makes code for it.

    parse_target("rpi5")  →  MachineDescription  →  Backend.target  →  Target

A `Target` is data about the machine that runs the code, whatever machine compiles.
"""

from __future__ import annotations

from farrier.targets.backend import Backend, KnownMachine, Plan, backend_for, backend_of, backends
from farrier.targets.names import host, known_machines, parse_target, why_not_here
from farrier.targets.target import Target

__all__ = [
    "Backend",
    "KnownMachine",
    "Plan",
    "Target",
    "backend_for",
    "backend_of",
    "backends",
    "host",
    "known_machines",
    "parse_target",
    "why_not_here",
]
