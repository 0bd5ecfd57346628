"""Sizes that a measured model takes as an argument."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farrier.measure.runner import Blobs
from farrier_device.measurement import Argument, Role


def sizes_argument(sizes: Sequence[int], blobs: Blobs) -> list[Argument]:
    """Return the argument that holds sizes as i64; an empty list for no sizes."""
    if not sizes:
        return []
    data = np.array(sizes, np.int64).tobytes()
    return [Argument(Role.INPUT, len(data), "i64", blob=blobs.put(data))]
