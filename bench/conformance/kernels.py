"""The kernels that a test of this process has run, by the space of memory that they run in."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

from farrier.runtime.artifact import Artifact

_counts: collections.Counter[str] = collections.Counter()


def run(artifact: Artifact, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run an artifact, and count its kernels."""
    _counts.update(kernel.space for kernel in artifact.manifest.kernels)
    outputs = artifact.run(inputs)
    artifact.session().close()  # Hundreds of open devices would exhaust the driver.
    return outputs


def taken() -> dict[str, int]:
    """Return the counts since the last call."""
    counts = dict(_counts)
    _counts.clear()
    return counts
