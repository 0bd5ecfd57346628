"""The weights in an archive: views of the mapped file, by qualified name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.errors import InvalidModelError
from farrier.frontends.torch.archive import Archive
from farrier.frontends.torch.program import TensorMeta, tensor_meta

_FOLDERS = {"weights": "model_weights_config.json", "constants": "model_constants_config.json"}


class Weights(Mapping[str, npt.NDArray[Any]]):
    """The parameters, buffers and constants of a program. Tied weights share a member of the
    archive."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._entries: dict[str, tuple[str, Mapping[str, Any]]] = {}
        for folder, config in _FOLDERS.items():
            path = next((n for n in archive.names if n.endswith(f"data/{folder}/{config}")), None)
            if path is None:
                continue
            entries = archive.json(path).get("config")
            if not isinstance(entries, dict):
                raise InvalidModelError(f"the member {path!r} of the .pt2 archive has no config")
            for name, entry in entries.items():
                self._entries[str(name)] = (path.rpartition("/")[0], entry)

    def __iter__(self) -> Any:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return a weight as an array. Raises InvalidModelError if it is not stored as raw
        elements."""
        if name not in self._entries:
            raise InvalidModelError(
                f"the .pt2 file has no weight {name!r}, which its graph uses",
                hint="save the whole program with torch.export.save",
            )
        folder, entry = self._entries[name]
        try:
            if entry["use_pickle"]:
                raise InvalidModelError(
                    f"the weight {name!r} of the .pt2 file is a pickle, which is not loaded",
                    hint="save a plain tensor: no subclass, sparse or quantized one",
                )
            meta = tensor_meta(entry["tensor_meta"])
            path = f"{folder}/{entry['path_name']}"
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise _bad(name, f"its description is malformed: {error}") from error
        return _view(name, self._archive.member(path), meta)


def _view(name: str, data: memoryview, meta: TensorMeta) -> npt.NDArray[Any]:
    """Return a view of a member's bytes with the shape and strides of a tensor."""
    if meta.dtype is None:
        raise _bad(name, f"its element type {meta.type_name} is one that Farrier does not have")
    dtype = meta.dtype.numpy
    sizes, strides, offset = meta.sizes, meta.strides, meta.offset
    numbers = [n for n in (*sizes, *strides, offset) if isinstance(n, int) and n >= 0]
    if len(numbers) != len(sizes) + len(strides) + 1 or len(sizes) != len(strides):
        raise _bad(name, "its shape is not made of numbers")
    shape, steps = numbers[: len(sizes)], numbers[len(sizes) : -1]
    start = numbers[-1] * dtype.itemsize
    if 0 in shape:
        return np.empty(shape, dtype)
    last = sum(step * (size - 1) for step, size in zip(steps, shape, strict=True))
    if start + (last + 1) * dtype.itemsize > len(data):
        raise _bad(name, f"{len(data)} bytes are too few for its shape {shape}")
    if _overlaps(shape, steps):
        raise _bad(name, f"elements of its shape {shape} with strides {steps} overlap")
    flat = np.frombuffer(data, dtype, last + 1, start)
    return np.lib.stride_tricks.as_strided(
        flat, shape, [step * dtype.itemsize for step in steps], writeable=False
    )


def _overlaps(shape: list[int], steps: list[int]) -> bool:
    """Check whether two different indices of a tensor with these strides may address the same
    element. An axis with stride 0, along which elements are repeated, does not count."""
    reach = 0
    axes = [(t, n) for t, n in zip(steps, shape, strict=True) if n > 1 and t]
    for step, size in sorted(axes):
        if step <= reach:
            return True
        reach += step * (size - 1)
    return False


def _bad(name: str, reason: str) -> InvalidModelError:
    return InvalidModelError(
        f"the weight {name!r} of the .pt2 file cannot be read: {reason}",
        hint="clone() the tensor before the export, and save again with torch.export.save",
    )
