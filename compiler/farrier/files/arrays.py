"""Store arrays by name in a .npz file without pickling.

numpy's own `savez` pickles objects by default, which only newer versions can switch off. This file
imports nothing of Farrier, so that an engine in another Python environment can run it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from os import PathLike
from typing import IO, Any

import numpy as np
import numpy.typing as npt


def save_arrays(
    file: str | PathLike[str] | IO[bytes], arrays: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Write the arrays to a .npz file by name. Raises ValueError for an array of objects."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.save(member, np.asanyarray(array), allow_pickle=False)


def load_arrays(file: str | PathLike[str] | IO[bytes]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a .npz file by name. Raises ValueError if it contains objects, or is a
    file with a single array."""
    loaded = np.load(file, allow_pickle=False)
    if not isinstance(loaded, Mapping):
        raise ValueError(f"{file} is one array, not an archive of them")
    return dict(loaded)
