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
    """The data that a model on a device and its host needs on the host. `workspace` is the size of
    the host's workspace in bytes, an expression in the manifest's dims and in capacities (the upper
    limits of data-dependent sizes). The kernels are tuned for `threads` threads, and the workspace
    has room for `max_threads`. `host` describes the host, if any kernel runs there."""

    whose: ClassVar = "devices"

    workspace: int | str
    threads: Natural = 1
    max_threads: Natural = 1
    host: HostPart | None = None
