"""The backend's part of the manifest for a model on a device and its host."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from farrier.errors import ArtifactError
from farrier_device import codec
from farrier_device.codec import Natural


@dataclasses.dataclass(frozen=True, slots=True)
class HostPart:
    """The host that has kernels: its `Target.arch`, `cpu` and `features`."""

    arch: str
    cpu: str
    features: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DrivenPart:
    """The workspace of the host, an extent in the manifest's dims and capacities, the threads that
    suit the model and that it has memory for, and the host if any kernel runs there."""

    workspace: int | str
    threads: Natural = 1
    max_threads: Natural = 1
    host: HostPart | None = None

    def to_json(self) -> dict[str, Any]:
        part: dict[str, Any] = codec.encode(self)
        return part

    @classmethod
    def of_json(cls, raw: Mapping[str, Any]) -> DrivenPart:
        """Raise ArtifactError for a field that is missing, malformed or new to this version."""
        try:
            unknown = codec.Unknown.REFUSED_UNLESS_EMPTY
            return codec.decode(cls, dict(raw), unknown=unknown, name="backend")
        except ValueError as error:
            raise ArtifactError(
                f"the manifest's part for devices is damaged, or of a newer Farrier: {error}",
                hint="compile the model again, or run it with the Farrier that made it",
            ) from error
