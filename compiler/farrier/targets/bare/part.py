"""A microcontroller's part of the manifest: what a C program needs to know of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from farrier.errors import ArtifactError
from farrier.targets.c_header import Arena
from farrier_device import codec
from farrier_device.codec import Natural


@dataclasses.dataclass(frozen=True, slots=True)
class BarePart:
    """The entry point of the object, and the bytes of each input, of each output, of the workspace
    and of the parameters. `sizes` are the numbers of 64 bits that the entry takes in addition."""

    core: str
    entry: str
    inputs: tuple[Natural, ...]
    outputs: tuple[Natural, ...]
    workspace: Natural
    params: Natural
    sizes: Natural = 0

    @property
    def arena(self) -> Arena:
        """The memory that the caller lends."""
        return Arena(self.inputs, self.outputs, self.workspace, self.sizes)

    def to_json(self) -> dict[str, Any]:
        part: dict[str, Any] = codec.encode(self)
        return part

    @classmethod
    def of_json(cls, part: Mapping[str, Any]) -> BarePart:
        """Raise ArtifactError for a field that is missing, malformed or new to this version."""
        try:
            unknown = codec.Unknown.REFUSED_UNLESS_EMPTY
            return codec.decode(cls, dict(part), unknown=unknown, name="backend")
        except ValueError as error:
            raise ArtifactError(
                f"the manifest's part for microcontrollers is damaged, or of a newer Farrier: "
                f"{error}",
                hint="compile the model again, or use the Farrier that made it",
            ) from error
