"""The types that each module of this folder fills in: all that the device layer needs to know of an
architecture."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeAlias

Fields: TypeAlias = Mapping[str, str]
"""The fields of one processor in /proc/cpuinfo."""


@dataclasses.dataclass(frozen=True, slots=True)
class ArgumentRule:
    """A rule that allows a system call only if the low 32 bits of one argument, combined with a
    mask by AND, equal one of a set of values."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


@dataclasses.dataclass(frozen=True, slots=True)
class SystemCalls:
    """The numbers of an architecture's system calls for 64-bit programs, for the filters in
    `seccomp` and `denials`.

    Every name that a filter uses must be in `numbers` or in `absent`, so that a misspelt name
    raises an error instead of being left out of the filter. `allowed` and `rules` concern calls
    that only this architecture has and that measurement children may make.
    """

    audit_arch: int  # It is AUDIT_ARCH_* of Linux, which a filter sees.
    numbers: Mapping[str, int]
    absent: frozenset[str] = frozenset()
    allowed: tuple[str, ...] = ()
    rules: Mapping[str, ArgumentRule] = dataclasses.field(default_factory=dict)
    second_table_at: int | None = None  # Numbers from here on are of a second table of calls.

    def number(self, name: str) -> int | None:
        """Return the number of a system call, or None if the architecture lacks the call. Raises
        KeyError for a name that is not listed."""
        return None if name in self.absent else self.numbers[name]


def _model_name(fields: Fields) -> str:
    return fields.get("model name", "")


def _listed(fields: Fields) -> list[str]:
    return (fields.get("Features") or fields.get("flags", "")).split()


@dataclasses.dataclass(frozen=True, slots=True)
class Architecture:
    """One instruction-set architecture under Linux.

    `name` is the machine name of a 64-bit system (`uname -m`), and `names_in_32_bits` are those of
    32-bit systems that run on the same processors; `program_in_32_bits` is the machine name that a
    32-bit program sees on a 64-bit kernel. `elf_machine` is the field e_machine of an ELF header.
    If `calls` is None, system calls are not filtered. `limit_celsius` is the temperature from which
    the processor slows down, used if the kernel reports no limit.

    `processor` returns the name of the core that the fields of /proc/cpuinfo describe ("" if they
    do not identify the core), and `features` returns the kernel's names of its ISA extensions.
    `little_cores` contains the names of the little cores of big.LITTLE processors; None if the
    architecture does not distinguish big from little cores.
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
