"""A CPU's part of the manifest: what a run of the ELF library of a model needs to know."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from farrier.targets.part import ManifestPart
from farrier_device.codec import Natural

# The function of a library that computes the workspace of a call; none if no size is open.
WORKSPACE_BYTES = "farrier_workspace_bytes"


@dataclasses.dataclass(frozen=True, slots=True)
class CpuPart(ManifestPart):
    """The entry point of the library, and the threads and the memory that it takes.

    The model was tuned for `threads`, and the workspace has room for `max_threads`. It has
    `workspace_bytes` at the typical sizes, and `workspace` at most, an extent in the manifest's
    dims and capacities."""

    whose: ClassVar = "CPUs"

    triple: str
    threads: Natural
    max_threads: Natural
    entry: str
    workspace_bytes: Natural
    workspace: int | str = 0
