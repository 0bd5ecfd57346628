"""A CPU's part of the manifest: what a run of the ELF library of a model needs to know."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from farrier.errors import ArtifactError
from farrier_device import codec
from farrier_device.codec import Natural

# The function of a library that computes the workspace of a call; none if no size is open.
WORKSPACE_BYTES = "farrier_workspace_bytes"


@dataclasses.dataclass(frozen=True, slots=True)
class CpuPart:
    """The entry point of the library, and the threads and the memory that it takes.

    The model was tuned for `threads`, and the workspace has room for `max_threads`. It has
    `workspace_bytes` at the typical sizes, and `workspace` at most, an extent in the manifest's
    dims and capacities."""

    triple: str
    threads: Natural
    max_threads: Natural
    entry: str
    workspace_bytes: Natural
    workspace: int | str = 0

    def to_json(self) -> dict[str, Any]:
        part: dict[str, Any] = codec.encode(self)
        return part

    @classmethod
    def of_json(cls, part: Mapping[str, Any]) -> CpuPart:
        """Raise ArtifactError for a field that is missing, malformed or new to this version."""
        try:
            unknown = codec.Unknown.REFUSED_UNLESS_EMPTY
            return codec.decode(cls, dict(part), unknown=unknown, name="backend")
        except ValueError as error:
            raise ArtifactError(
                f"the manifest's part for CPUs is damaged, or of a newer Farrier: {error}",
                hint="compile the model again, or run it with the Farrier that made it",
            ) from error
