"""The parameter arena: every constant in its kernel's layout, in the order of execution.

The order matters: a kernel's prefetch of its next weight panel runs into the weights of the next
kernel.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import EllipsisType

import numpy as np

from farrier.artifact.container import ALIGNMENT
from farrier.files.mapped import FileMemory, check_unchanged, release
from farrier.ir.dim import number
from farrier.ir.graph import Constant
from farrier.ir.types import Layout

_SLAB_BYTES = 64 << 20  # The bytes that are packed before their pages are released.


class ParamArena:
    """Constants with their layouts, each pair stored once, at offsets that are multiples of 64
    bytes."""

    def __init__(self) -> None:
        self.nbytes = 0
        self.bytes_of: dict[Hashable, int] = {}  # By a constant's identity, in all its layouts.
        self._offsets: dict[tuple[Hashable, Layout | None], int] = {}
        self._parts: list[_Part] = []

    def add(self, constant: Constant, layout: Layout | None) -> int:
        """Return the offset of `constant` in `layout` (None: row-major), adding it if it is new."""
        key = (constant.identity, layout)
        if key not in self._offsets:
            self._offsets[key] = self.nbytes
            nbytes = _nbytes(constant, layout)
            placed = -(-nbytes // ALIGNMENT) * ALIGNMENT
            before = self.bytes_of.get(constant.identity, 0)
            self.bytes_of[constant.identity] = before + placed
            self._parts.append(_Part(self.nbytes, self.nbytes + placed, constant, layout))
            self.nbytes += placed
        return self._offsets[key]

    def pack(self) -> PackedParams:
        """Pack all constants of the arena, on all cores; numpy works without Python's lock.

        The result is in a temporary file, and neither packed constants nor their sources stay in
        memory: a model of gigabytes only needs memory for the constants that are being packed.
        Raises StorageError, and InvalidModelError if a file that holds constants has changed.
        """
        memory = FileMemory(self.nbytes)
        arena = np.frombuffer(memory.view, np.uint8)
        digest = hashlib.sha256()

        def place(part: _Part) -> None:
            for source in part.constant.sources:
                check_unchanged(source)
            array = part.constant.made()
            if part.layout is not None and part.layout.per_byte > 1:
                joined = part.layout.join(part.layout.ordered(array))
                np.copyto(arena[part.start : part.start + joined.size], joined)
                for source in part.constant.sources:
                    release(source)
                return
            shape = _physical_shape(part.constant, part.layout)
            nbytes = math.prod(shape) * array.itemsize
            target = arena[part.start : part.start + nbytes].view(array.dtype).reshape(shape)
            ordered = array if part.layout is None else part.layout.ordered(array)
            for slab in _slabs(shape, array.itemsize):
                np.copyto(target[slab], ordered[slab])
                release(target[slab])
                for source in part.constant.sources:
                    release(source)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as cores:
            for part, _ in zip(self._parts, cores.map(place, self._parts), strict=True):
                placed = arena[part.start : part.stop]
                digest.update(placed.data)
                release(placed)
        return PackedParams(memory, digest.hexdigest())


@dataclasses.dataclass(frozen=True)
class PackedParams:
    """A model's parameters in the layouts of their kernels, and their sha256 in hex."""

    memory: FileMemory
    digest: str

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes

    @property
    def view(self) -> memoryview:
        """The bytes of the parameters; constants start at multiples of 64 bytes."""
        return self.memory.view


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """A constant and its position in the arena, which consists of such parts without gaps."""

    start: int
    stop: int  # A multiple of 64.
    constant: Constant
    layout: Layout | None


def _slabs(shape: tuple[int, ...], itemsize: int) -> Iterator[slice | EllipsisType]:
    """Yield slices of an array along its first axis, each of at most `_SLAB_BYTES` if that is
    possible."""
    nbytes = math.prod(shape) * itemsize
    if nbytes <= _SLAB_BYTES:
        yield ...
        return
    rows = max(1, shape[0] * _SLAB_BYTES // nbytes)
    yield from (slice(at, at + rows) for at in range(0, shape[0], rows))


def _nbytes(constant: Constant, layout: Layout | None) -> int:
    return number(dataclasses.replace(constant.value.type, layout=layout).nbytes)


def _physical_shape(constant: Constant, layout: Layout | None) -> tuple[int, ...]:
    shape = constant.value.type.static_shape
    return shape if layout is None else layout.physical_shape(shape)
