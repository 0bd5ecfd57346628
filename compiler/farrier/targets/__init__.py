"""The hardware that code is made for: what a machine is, and who makes code for it.

    parse_target("rpi5")  →  MachineDescription  →  Backend.target  →  Target  →  Target.backend

A `Target` describes the machine that runs the code, whatever machine compiles. Names and messages
lead to backends (`names`, `registry`); whoever has a target has its backend.
"""

from __future__ import annotations

from farrier.targets.backend import Backend
from farrier.targets.code import Plan
from farrier.targets.describing import KnownMachine
from farrier.targets.names import (
    called,
    canonical,
    driver_and_device,
    host,
    known_machines,
    parse_machine,
    parse_target,
    read_target,
    to_text,
    why_not_here,
)
from farrier.targets.running import Loaded
from farrier.targets.target import Target

__all__ = [
    "Backend",
    "KnownMachine",
    "Loaded",
    "Plan",
    "Target",
    "called",
    "canonical",
    "driver_and_device",
    "host",
    "known_machines",
    "parse_machine",
    "parse_target",
    "read_target",
    "to_text",
    "why_not_here",
]
