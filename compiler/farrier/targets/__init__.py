"""The machines that Farrier compiles for: how a machine is described, and the backends that
generate its code.

    parse_target("rpi5")  →  MachineDescription  →  Backend.target  →  Target  →  Target.backend

A `Target` describes the machine that will run the code, which may differ from the machine that
compiles it. The modules `names` and `registry` find the backend for a machine's name or
description; code that already has a target reads `Target.backend`.
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
