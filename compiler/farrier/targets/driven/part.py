"""The part of an artifact's manifest for a model on a device and its host."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from farrier.targets.part import ManifestPart
from farrier_device.codec import Natural


@dataclasses.dataclass(frozen=True, slots=True)
class HostPart:
    """The host whose CPU runs some kernels: its `Target.arch`, `cpu` and `features`."""

    arch: str
    cpu: str
    features: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DrivenPart(ManifestPart):
    """The host's memory and threads for a model: `workspace` in bytes (an expression in the
    manifest's dims and in capacities, the upper limits of data-dependent sizes), `threads` for
    which the kernels are tuned, `max_threads` for which the workspace has room, and the `host` if
    any kernel runs there."""

    whose: ClassVar = "devices"

    workspace: int | str
    threads: Natural = 1
    max_threads: Natural = 1
    host: HostPart | None = None
