"""The form of a file in this folder: everything that the device layer asks of an architecture."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeAlias

Fields: TypeAlias = Mapping[str, str]
"""The fields of one processor in /proc/cpuinfo."""


@dataclasses.dataclass(frozen=True, slots=True)
class ArgumentRule:
    """A system call that is allowed where the low word of one argument, masked, has one of some
    values."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


@dataclasses.dataclass(frozen=True, slots=True)
class SystemCalls:
    """The system calls of 64-bit programs, as the filters in `seccomp` and `denials` name them.

    A name that a filter uses is in `numbers` or in `absent`, so that no filter loses a call to a
    slip of the pen. `allowed` and `rules` are calls of this architecture alone that measurement
    children may make.
    """

    audit_arch: int  # It is AUDIT_ARCH_* of Linux, which a filter sees.
    numbers: Mapping[str, int]
    absent: frozenset[str] = frozenset()
    allowed: tuple[str, ...] = ()
    rules: Mapping[str, ArgumentRule] = dataclasses.field(default_factory=dict)
    second_table_at: int | None = None  # Numbers from here on are of a second table of calls.

    def number(self, name: str) -> int | None:
        """Return the number of a call, None if the architecture lacks it. Raises KeyError for a
        name that is not listed."""
        return None if name in self.absent else self.numbers[name]


def _model_name(fields: Fields) -> str:
    return fields.get("model name", "")


def _listed(fields: Fields) -> list[str]:
    return (fields.get("Features") or fields.get("flags", "")).split()


@dataclasses.dataclass(frozen=True, slots=True)
class Architecture:
    """One instruction-set architecture under Linux.

    `name` is that of a 64-bit system, as `uname -m` prints it, and `names_in_32_bits` are those of
    32-bit systems that its processors may run; `program_in_32_bits` is the name of the system that
    a 32-bit program sees on a 64-bit kernel. `elf_machine` is e_machine in the head of an ELF file.
    Without `calls` no system call is filtered. The processor slows down from
    `limit_celsius` on if the kernel states no limit.

    `processor` returns the name of the core that the fields of /proc/cpuinfo describe ("" if they
    do not say), and `features` the kernel's names of its ISA extensions. `little_cores` has the
    names of cores that are made to accompany larger ones; None if every core counts alike.
    """

    name: str
    names_in_32_bits: tuple[str, ...] = ()
    program_in_32_bits: str = ""
    elf_machine: int | None = None
    calls: SystemCalls | None = None
    processor: Callable[[Fields], str] = _model_name
    features: Callable[[Fields], list[str]] = _listed
    little_cores: frozenset[str] | None = None
    limit_celsius: float = 95.0
