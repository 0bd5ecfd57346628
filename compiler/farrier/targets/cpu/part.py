"""The CPU backend's part of an artifact's manifest: the data needed to run the model's ELF
library."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from farrier.targets.part import ManifestPart
from farrier_device.codec import Natural

# The function that computes the workspace of a call; libraries without open sizes lack it.
WORKSPACE_BYTES = "farrier_workspace_bytes"


@dataclasses.dataclass(frozen=True, slots=True)
class CpuPart(ManifestPart):
    """The entry point of the library, and the threads and memory that a call uses.

    The model was tuned for `threads` threads, and the workspace has room for `max_threads`.
    `workspace_bytes` is the size of the workspace at the typical sizes; `workspace` is its largest
    size, an expression in the manifest's dims and in capacities (the upper limits of data-dependent
    sizes).
    """

    whose: ClassVar = "CPUs"

    triple: str
    threads: Natural
    max_threads: Natural
    entry: str
    workspace_bytes: Natural
    workspace: int | str = 0
