"""The argument through which a measured model receives its sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farrier.measure.runner import Blobs
from farrier_device.measurement import Argument, Role


def sizes_argument(sizes: Sequence[int], blobs: Blobs) -> list[Argument]:
    """Return a list with the argument that contains the sizes as i64. For no sizes, the list is
    empty."""
    if not sizes:
        return []
    data = np.array(sizes, np.int64).tobytes()
    return [Argument(Role.INPUT, len(data), "i64", blob=blobs.put(data))]
