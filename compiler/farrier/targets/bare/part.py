"""The part of an artifact's manifest for a microcontroller, which describes a model to a C
program."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from farrier.targets.c_header import Arena
from farrier.targets.part import ManifestPart
from farrier_device.codec import Natural


@dataclasses.dataclass(frozen=True, slots=True)
class BarePart(ManifestPart):
    """The entry point of the object file, and the bytes of each input, of each output, of the
    workspace and of the parameters. `sizes` is the number of 64-bit integers in the array that the
    entry point takes as its last argument. `lent` has, for each input and then each output, the
    tensor's offset in the workspace, or -1 if it has memory of its own. `notes`
    are sentences about the model for the user."""

    whose: ClassVar = "microcontrollers"

    core: str
    entry: str
    inputs: tuple[Natural, ...]
    outputs: tuple[Natural, ...]
    workspace: Natural
    params: Natural
    sizes: Natural = 0
    lent: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def arena(self) -> Arena:
        """The layout of the memory that the calling C program lends to the model."""
        return Arena(self.inputs, self.outputs, self.workspace, self.sizes, self.lent)
