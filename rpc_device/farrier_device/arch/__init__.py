"""The instruction-set architectures that the device layer supports: one module each, and this list.

On any other architecture, a machine is described only by the facts that every kernel reports, and
its system calls are not filtered.
"""

from __future__ import annotations

import platform

from farrier_device.arch.architecture import Architecture, ArgumentRule, SystemCalls
from farrier_device.arch.arm import ARM
from farrier_device.arch.riscv import RISCV
from farrier_device.arch.x86 import X86

__all__ = [
    "ALL",
    "ARM",
    "RISCV",
    "X86",
    "Architecture",
    "ArgumentRule",
    "SystemCalls",
    "calls_of",
    "here",
    "in_64_bits",
    "of",
]

ALL = (X86, ARM, RISCV)
_BY_NAME = {name: its for its in ALL for name in (its.name, *its.names_in_32_bits)}
_IN_64_BITS = {name: its.name for its in ALL for name in its.names_in_32_bits}
_CALLS = {its.name: its.calls for its in ALL if its.calls is not None}


def of(machine: str) -> Architecture:
    """Return the architecture of a system from its machine name, as `uname -m` prints it. For an
    unsupported architecture, return an `Architecture` that has only this name."""
    return _BY_NAME.get(machine) or Architecture(machine)


def here() -> Architecture:
    """Return the architecture of the system that runs this program."""
    return of(platform.machine())


def in_64_bits(machine: str) -> str:
    """Return the machine name of the 64-bit system that runs on the same processors as the
    32-bit system `machine`: `"armv7l" → "aarch64"`. Return "" if `machine` does not name a
    32-bit system."""
    return _IN_64_BITS.get(machine, "")


def calls_of(machine: str) -> SystemCalls | None:
    """Return the table of system calls of 64-bit programs on the architecture with this machine
    name. Return None for an unsupported architecture, and for a 32-bit system."""
    return _CALLS.get(machine)
