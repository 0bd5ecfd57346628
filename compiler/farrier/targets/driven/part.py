"""The backend's part of the manifest for a model on a device and its host."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from farrier.targets.part import ManifestPart
from farrier_device.codec import Natural


@dataclasses.dataclass(frozen=True, slots=True)
class HostPart:
    """The host that has kernels: its `Target.arch`, `cpu` and `features`."""

    arch: str
    cpu: str
    features: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DrivenPart(ManifestPart):
    """The workspace of the host, an extent in the manifest's dims and capacities, the threads that
    suit the model and that it has memory for, and the host if any kernel runs there."""

    whose: ClassVar = "devices"

    workspace: int | str
    threads: Natural = 1
    max_threads: Natural = 1
    host: HostPart | None = None
