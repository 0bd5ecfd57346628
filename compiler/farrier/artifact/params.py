"""The parameter arena: every constant as its kernel reads it, in the order of execution.

Execution order matters: a kernel's prefetch of its next weight panel runs on into the next
kernel's.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.artifact.container import ALIGNMENT
from farrier.cores import on_cores
from farrier.ir.graph import Constant
from farrier.ir.types import Layout

_Part: TypeAlias = tuple[int, Constant, Layout | None]  # where a constant lies, and how


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
            self._parts.append((self.nbytes, constant, layout))
            nbytes = math.prod(_physical_shape(constant, layout)) * constant.value.type.dtype.nbytes
            placed = -(-nbytes // ALIGNMENT) * ALIGNMENT
            before = self.bytes_of.get(constant.identity, 0)
            self.bytes_of[constant.identity] = before + placed
            self.nbytes += placed
        return self._offsets[key]

    def pack(self) -> npt.NDArray[np.uint8]:
        """The arena's bytes: uint8 [nbytes]."""
        arena = np.zeros(self.nbytes, np.uint8)

        def place(part: _Part) -> None:
            offset, constant, layout = part
            array = constant.made()
            shape = _physical_shape(constant, layout)
            nbytes = math.prod(shape) * array.itemsize
            target = arena[offset : offset + nbytes].view(array.dtype).reshape(shape)
            if layout is None:
                np.copyto(target, array)
            else:
                layout.pack(array, target)

        on_cores(place, self._parts)
        return arena


def _physical_shape(constant: Constant, layout: Layout | None) -> tuple[int, ...]:
    shape = constant.value.type.static_shape
    return shape if layout is None else layout.physical_shape(shape)
