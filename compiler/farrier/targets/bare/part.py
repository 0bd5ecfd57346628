"""A microcontroller's part of the manifest: what a C program needs to know of a model."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from farrier.targets.c_header import Arena
from farrier.targets.part import ManifestPart
from farrier_device.codec import Natural


@dataclasses.dataclass(frozen=True, slots=True)
class BarePart(ManifestPart):
    """The entry point of the object, and the bytes of each input, of each output, of the workspace
    and of the parameters. `sizes` are the numbers of 64 bits that the entry takes in addition.
    `lent` are the offsets of inputs and outputs in the workspace, -1 for memory of their own."""

    whose: ClassVar = "microcontrollers"

    core: str
    entry: str
    inputs: tuple[Natural, ...]
    outputs: tuple[Natural, ...]
    workspace: Natural
    params: Natural
    sizes: Natural = 0
    lent: tuple[int, ...] = ()

    @property
    def arena(self) -> Arena:
        """The memory that the caller lends."""
        return Arena(self.inputs, self.outputs, self.workspace, self.sizes, self.lent)
