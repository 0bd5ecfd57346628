"""The states that a session keeps between calls (`Manifest.state`)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.artifact.manifest import Manifest
from farrier.errors import InputMismatchError, MemoryLimitError
from farrier.ir.dim import Extent, evaluate, symbols, typical
from farrier.options.states import HeldState
from farrier_device.memory import Buffer, aligned_buffer

Array = npt.NDArray[Any]


class State:
    """One value that a session keeps between calls.

    A state that is `in_place` has one buffer, which a call reads and extends. Any other state has
    two: a call reads one and writes the other, and then they are swapped. Without a capacity a full
    buffer is replaced by one of twice the size, so growing to n elements moves fewer than 2n
    elements in total (`moved_bytes`).
    """

    def __init__(self, manifest: Manifest, spec: HeldState) -> None:
        self.spec = spec
        self.input = next(each for each in manifest.inputs if each.name == spec.input)
        self.dtype = self.input.element.numpy
        self.before = manifest.extents(self.input)
        after = next(each for each in manifest.outputs if each.name == spec.output)
        self.after = manifest.extents(after)
        self.shape: tuple[int, ...] | None = None  # None until the first call: it follows from that
        self._next: tuple[int, ...] = ()  # This is the shape after the call that `places` prepared.
        self.moved_bytes = 0
        self._model = manifest.name
        self._front: Buffer = aligned_buffer(0)
        self._back: Buffer = aligned_buffer(0)

    def begin(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape before the first call, for the sizes of dims that the other inputs
        imply."""
        if self.shape is not None:
            return self.shape
        return tuple(
            0
            if axis == self.spec.axis and not all(s.name in sizes for s in symbols((extent,)))
            else _size(extent, sizes)
            for axis, extent in enumerate(self.before)
        )

    def places(
        self, shape: tuple[int, ...], sizes: Mapping[str, int], limit: int
    ) -> tuple[int, int]:
        """Return the addresses at which a call reads and writes this state, which has `shape`
        before the call.

        Raises MemoryLimitError if the new state exceeds the capacity, or needs more than `limit`
        bytes; the state then is unchanged.
        """
        after = self._next = tuple(
            extent if isinstance(extent, int) else evaluate(extent, sizes) for extent in self.after
        )
        axis, capacity = self.spec.axis, self.spec.capacity
        if axis is not None and capacity and after[axis] > capacity:
            raise MemoryLimitError(
                f"the state {self.spec.input} of {self._model} is full: it holds {shape[axis]} "
                f"along axis {axis}, the call makes that {after[axis]}, and its capacity is "
                f"{capacity}",
                hint=f"session.reset() empties it; compiling with --state "
                f"{self.spec.input}={self.spec.output}:capacity={after[axis]} gives it more",
            )
        nbytes, needed = self._nbytes(shape), self._reserved(after)
        if self.spec.in_place:
            self._front = self._roomy(self._front, needed, nbytes, limit)
        else:
            self._front = self._roomy(self._front, nbytes, nbytes, limit)
            self._back = self._roomy(self._back, needed, 0, limit)
        if self.shape is None:
            self._fill(self._front, shape)
        target = self._front if self.spec.in_place else self._back
        return self._front.address, target.address

    def advance(self) -> None:
        """Make the value that the call has written the current value."""
        self.shape = self._next
        if not self.spec.in_place:
            self._front, self._back = self._back, self._front

    def reset(self) -> None:
        """Set the state to its initial value; the memory stays allocated."""
        self.shape = None

    def copy(self) -> Array:
        """Return a copy of the current value."""
        shape = self.begin({}) if self.shape is None else self.shape
        if self.shape is None:
            return np.full(shape, self.spec.initial, self.dtype)
        return np.array(self._view(self._front, shape), order="C")

    def load(self, array: Array) -> None:
        """Set the value to that of an array, whose dtype and rank must match. Raises
        MemoryLimitError if the array exceeds the capacity."""
        axis, capacity = self.spec.axis, self.spec.capacity
        if axis is not None and capacity and array.shape[axis] > capacity:
            raise MemoryLimitError(
                f"the state {self.spec.input} of {self._model} has a capacity of {capacity}, and "
                f"the array for it {array.shape[axis]} along axis {axis}",
                hint=f"compile with --state {self.spec.input}={self.spec.output}"
                f":capacity={array.shape[axis]}",
            )
        self._front = self._roomy(self._front, self._reserved(array.shape), 0, 0)
        np.copyto(self._view(self._front, array.shape), array)
        self.shape = array.shape

    def check(self, value: npt.ArrayLike) -> Array:
        """Return a value as an array that `load` accepts; raises InputMismatchError."""
        array = np.asarray(value)
        fixed = [
            isinstance(extent, int) and array.ndim == len(self.before) and extent != array.shape[a]
            for a, extent in enumerate(self.before)
        ]
        if array.dtype != self.dtype or array.ndim != len(self.before) or any(fixed):
            raise InputMismatchError(
                f"the state {self.spec.input} of {self._model} is {self.dtype}"
                f"[{', '.join(map(str, self.input.shape))}], and the array for it "
                f"{array.dtype}{list(array.shape)}",
                hint="convert it with .astype(), or give one of that shape",
            )
        return array

    def _nbytes(self, shape: Sequence[int]) -> int:
        return math.prod(shape) * self.dtype.itemsize

    def _reserved(self, shape: Sequence[int]) -> int:
        """Return the number of bytes for a state of this shape when grown to its capacity."""
        axis, capacity = self.spec.axis, self.spec.capacity
        if axis is None or capacity <= shape[axis]:
            return self._nbytes(shape)
        return self._nbytes([*shape[:axis], capacity, *shape[axis + 1 :]])

    def _view(self, buffer: Buffer, shape: tuple[int, ...]) -> Array:
        """Return the elements in a buffer as an array, with the axes in the model's order."""
        axis = self.spec.axis if self.spec.in_place else None
        first = axis or 0
        lies = (shape[first], *shape[:first], *shape[first + 1 :]) if axis else shape
        flat = np.frombuffer(buffer.view[: self._nbytes(shape)], self.dtype)
        return np.moveaxis(flat.reshape(lies), 0, first) if axis else flat.reshape(lies)

    def _fill(self, buffer: Buffer, shape: tuple[int, ...]) -> None:
        self._view(buffer, shape)[...] = self.dtype.type(self.spec.initial)

    def _roomy(self, buffer: Buffer, needed: int, kept: int, limit: int) -> Buffer:
        """Return a buffer of at least `needed` bytes: `buffer` itself if it is large enough,
        otherwise a larger one to which the first `kept` bytes are copied. Raises MemoryLimitError
        if it would need more than `limit` bytes."""
        if needed <= buffer.nbytes:
            return buffer
        if limit and needed > limit:
            raise MemoryLimitError(
                f"the state {self.spec.input} of {self._model} needs {needed} bytes; the session "
                f"may have {limit}",
                hint="session.reset() empties it; give the session more memory_bytes",
            )
        grows = self.spec.axis is not None and not self.spec.capacity
        room = max(needed, 2 * buffer.nbytes) if grows else needed
        larger = aligned_buffer(min(room, limit) if limit else room)
        if kept and self.shape is not None:
            ctypes.memmove(larger.address, buffer.address, kept)
            self.moved_bytes += kept
        return larger


def _size(extent: Extent, sizes: Mapping[str, int]) -> int:
    """Return an extent for these sizes of symbols; symbols without a size are typical."""
    if all(symbol.name in sizes for symbol in symbols((extent,))):
        return evaluate(extent, sizes)
    return typical(extent)
