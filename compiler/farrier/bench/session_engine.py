"""The adapter by which a race runs Farrier's own runtime on an artifact
(`farrier_device.baseline.engines`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]


def load(
    model: str, inputs: Arrays, threads: int, precision: str
) -> tuple[Callable[[], Any], Callable[[Any], Arrays]]:
    """Load an artifact, and return two functions: the first calls `Session.run`, the second returns
    its outputs as arrays. Aligned inputs are read in place, outputs are new arrays."""
    from farrier.runtime.artifact import load as load_artifact

    artifact = load_artifact(model)
    assert artifact.manifest.precision == precision
    session = artifact.session(threads)
    return lambda: session.run(inputs), lambda outputs: outputs
