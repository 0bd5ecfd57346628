"""The parameter arena: every constant as its kernel reads it, in the order of execution.

Execution order matters: a kernel's prefetch of its next weight panel runs on into the next
kernel's.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import mmap
import os
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from farrier.artifact.container import ALIGNMENT
from farrier.ir.graph import Constant
from farrier.ir.types import Layout


class ParamArena:
    """Constants with their layouts, each pair once, at offsets that are multiples of 64 bytes."""

    def __init__(self) -> None:
        self.nbytes = 0
        self.bytes_of: dict[Hashable, int] = {}  # by a constant's identity, in all its layouts
        self._offsets: dict[tuple[Hashable, Layout | None], int] = {}
        self._parts: list[_Part] = []

    def add(self, constant: Constant, layout: Layout | None) -> int:
        """The offset of `constant` in `layout` (None: row-major), placed at the first call."""
        key = (constant.identity, layout)
        if key not in self._offsets:
            self._offsets[key] = self.nbytes
            nbytes = math.prod(_physical_shape(constant, layout)) * constant.value.type.dtype.nbytes
            placed = -(-nbytes // ALIGNMENT) * ALIGNMENT
            before = self.bytes_of.get(constant.identity, 0)
            self.bytes_of[constant.identity] = before + placed
            self._parts.append(_Part(self.nbytes, self.nbytes + placed, constant, layout))
            self.nbytes += placed
        return self._offsets[key]

    def pack(self) -> tuple[npt.NDArray[np.uint8], str]:
        """The arena's bytes, uint8 [nbytes], and their sha256 in hex.

        All cores work on it, numpy without Python's lock. The memory is in pages of 4 KiB: a
        virtual machine has some of those at hand, where it may have to ask its host for huge ones,
        at 4 ms a megabyte.
        """
        arena = np.frombuffer(mmap.mmap(-1, max(self.nbytes, 1)), np.uint8)[: self.nbytes]
        digest = hashlib.sha256()

        def place(part: _Part) -> None:
            array = part.constant.made()
            shape = _physical_shape(part.constant, part.layout)
            nbytes = math.prod(shape) * array.itemsize
            target = arena[part.start : part.start + nbytes].view(array.dtype).reshape(shape)
            if part.layout is None:
                np.copyto(target, array)
            else:
                part.layout.pack(array, target)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as cores:
            for part, _ in zip(self._parts, cores.map(place, self._parts), strict=True):
                digest.update(arena[part.start : part.stop].data)
        return arena, digest.hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """A constant in the arena, which is full of parts without a gap."""

    start: int
    stop: int  # a multiple of 64
    constant: Constant
    layout: Layout | None


def _physical_shape(constant: Constant, layout: Layout | None) -> tuple[int, ...]:
    shape = constant.value.type.static_shape
    return shape if layout is None else layout.physical_shape(shape)
