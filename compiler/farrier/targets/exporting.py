"""The role of a backend that hands a model to programs in other languages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from farrier.errors import UsageError

if TYPE_CHECKING:
    from farrier.artifact.code import ModelCode
    from farrier.artifact.manifest import Manifest


@dataclasses.dataclass(frozen=True, slots=True)
class Exported:
    """Files by name, and lines for the user about what they need."""

    files: Mapping[str, bytes]
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Exportable:
    """A model whose functions shall begin with `name`."""

    manifest: Manifest
    code: ModelCode
    params: memoryview
    name: str


class Exporting(Protocol):
    """Makes files that programs without Farrier use."""

    def export(self, model: Exportable, form: str, board: str) -> Exported:
        """Return the files of a model in the form `c`, or, as a program for a board, `elf`. Raises
        UsageError for a form that there is none of."""
        manifest = model.manifest
        raise UsageError(
            f"no code for {manifest.machine} ({manifest.architecture}) is exported",
            hint="compile the model for a microcontroller: `farrier targets` lists boards",
        )

    def firmware(self, machine: str) -> Exported:
        """Return the files of the program by which a machine without an operating system measures
        for an agent. Raises UsageError for any other machine."""
        raise UsageError(
            f"{machine} needs no program for an agent: `farrier-device` itself runs there",
            hint="`farrier targets` lists boards without an operating system",
        )
