"""The role of a backend that exports a model for programs in other languages."""

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
    """Exported files by name, and notes for the user about what the files need."""

    files: Mapping[str, bytes]
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Exportable:
    """A compiled model to export. The names of the exported functions begin with `name`."""

    manifest: Manifest
    code: ModelCode
    params: memoryview
    name: str


class Exporting(Protocol):
    """The export of models as files for programs that do not use Farrier."""

    def export(self, model: Exportable, form: str, board: str) -> Exported:
        """Return the files of a model: a C library if `form` is "c", or a program for `board` if
        `form` is "elf" or "uf2". Raises UsageError if the backend does not support the form."""
        manifest = model.manifest
        raise UsageError(
            f"no code for {manifest.machine} ({manifest.architecture}) is exported",
            hint="compile the model for a microcontroller: `farrier targets` lists boards",
        )

    def firmware(self, machine: str) -> Exported:
        """Return the files of the firmware with which a machine without an operating system runs
        measurements for a device agent. Raises UsageError for any other machine."""
        raise UsageError(
            f"{machine} needs no program for an agent: `farrier-device` itself runs there",
            hint="`farrier targets` lists boards without an operating system",
        )
