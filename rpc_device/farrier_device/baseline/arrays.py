"""Tensors in files: their bytes in C order, and a description of them as JSON.

{"name": "x", "dtype": "<f4", "shape": [1, 3, 224, 224]}    the dtype as numpy writes it
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_LINE_BYTES = 64  # The line of a cache of usual processors.

Array = npt.NDArray[Any]


def describe(name: str, array: Array) -> dict[str, Any]:
    """Return the JSON description of an array. Raises ValueError if the elements are Python
    objects."""
    if array.dtype.hasobject:
        raise ValueError(f"the array {name} contains Python objects, which cannot be sent")
    return {"name": name, "dtype": array.dtype.str, "shape": list(array.shape)}


def size(tensor: dict[str, Any]) -> int:
    """Return the size of a tensor in bytes."""
    nbytes: int = math.prod(tensor["shape"]) * np.dtype(tensor["dtype"]).itemsize
    return nbytes


def read(tensor: dict[str, Any], file: int, offset: int = 0) -> Array:
    """Return the array at an offset of a file. Its memory starts on a cache line, so that alignment
    does not favour an engine by chance. Raises ValueError if the file is too short."""
    nbytes = size(tensor)
    room = np.empty(nbytes + _LINE_BYTES, np.uint8)
    start = -room.ctypes.data % _LINE_BYTES
    place = room[start : start + nbytes]
    done = 0
    while done < nbytes:  # One call reads 2 GiB at most.
        count = os.preadv(file, [place.data[done:]], offset + done)
        if not count:
            raise ValueError(f"the file of {tensor['name']} has {done} of {nbytes} bytes")
        done += count
    array: Array = place.view(np.dtype(tensor["dtype"])).reshape(tensor["shape"])
    return array


def read_all(tensors: Sequence[dict[str, Any]], files: Sequence[int]) -> dict[str, Array]:
    """Return the arrays in the files, one for each tensor, by tensor name. Further files are
    ignored."""
    return {
        tensor["name"]: read(tensor, file) for tensor, file in zip(tensors, files, strict=False)
    }


def read_together(tensors: Sequence[dict[str, Any]], file: int) -> dict[str, Array]:
    """Return the arrays that are stored in one file one after another, by tensor name."""
    offsets = itertools.accumulate(map(size, tensors), initial=0)
    return {
        tensor["name"]: read(tensor, file, offset)
        for tensor, offset in zip(tensors, offsets, strict=False)
    }


def write(array: Array, file: int) -> None:
    """Append the bytes of an array to a file."""
    rest = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""
    while rest:
        rest = rest[os.write(file, rest) :]
