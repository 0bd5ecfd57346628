"""Count the kernels that tests of this process run, by the memory space (host or device) in which
they run."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

from farrier.runtime.artifact import Artifact

_counts: collections.Counter[str] = collections.Counter()


def run(artifact: Artifact, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run an artifact, count its kernels, and return the outputs."""
    _counts.update(kernel.space for kernel in artifact.manifest.kernels)
    outputs = artifact.run(inputs)
    artifact.session().close()  # Hundreds of open devices would exhaust the driver.
    return outputs


def taken() -> dict[str, int]:
    """Return the counts since the last call of this function."""
    counts = dict(_counts)
    _counts.clear()
    return counts
