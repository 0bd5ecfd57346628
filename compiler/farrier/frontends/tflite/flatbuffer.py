"""Checked access to an untrusted flatbuffer: tables, vectors and scalars at offsets in the file.

    table  = i32 back to its vtable, then the fields
    vtable = u16 bytes of the vtable, u16 bytes of the table, u16 offset of each field (0: absent)
    vector = u32 length, then the elements; a string is a vector of bytes
    offset = u32 forward, from its own position

(https://flatbuffers.dev/internals). Each access is checked against the end of the data. Several
offsets may lead to the same place, so the total of all reads is bounded as well: a small file could
otherwise describe a huge model. The layout has no cycles, because the tables of a schema nest to a
fixed depth.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.errors import InvalidModelError

_HINT = "the file is incomplete or damaged: copy, download or convert it again"
_U16, _U32, _I32 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<i")
_SCALARS = {
    kind: struct.Struct(f"<{kind}")
    for kind in ("b", "B", "h", "H", "i", "I", "q", "Q", "f", "d", "?")
}
_REREAD = 8  # A writer shares strings and vectors, but not this many times on average.
_LEAST_ALLOWANCE = 1 << 20  # Bytes that a small file may always read.


def damaged(what: str) -> InvalidModelError:
    """Return the error for data that is not the flatbuffer it claims to be."""
    return InvalidModelError(f"the TFLite model is malformed: {what}", hint=_HINT)


class Flatbuffer:
    """The bytes of a flatbuffer, and the number of bytes that may still be read."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self._left = max(_LEAST_ALLOWANCE, _REREAD * len(data))

    def root(self) -> Table:
        """Return the outermost table. Raises InvalidModelError, as every accessor does."""
        return Table(self, self.follow(0))

    def scalar(self, layout: struct.Struct, at: int) -> Any:
        """Read one scalar."""
        self.check(at, layout.size)
        (value,) = layout.unpack_from(self.data, at)
        return value

    def follow(self, at: int) -> int:
        """Return the position to which the offset stored at `at` points."""
        return int(at + self.scalar(_U32, at))

    def vector(self, at: int, size: int) -> tuple[int, int]:
        """Return the position of the first element of a vector, and its length. The offset of the
        vector is stored at `at`, and its elements have `size` bytes."""
        start = self.follow(at)
        length = self.scalar(_U32, start)
        self.check(start + 4, length * size)
        return start + 4, length

    def check(self, at: int, size: int) -> None:
        """Raise InvalidModelError unless `size` bytes exist at `at`."""
        if at < 0 or at + size > len(self.data):
            raise damaged(f"an offset leads to byte {at + size} of {len(self.data)}")

    def charge(self, size: int) -> None:
        """Count `size` bytes as read. Raises InvalidModelError beyond the limit."""
        self._left -= size
        if self._left < 0:
            raise damaged("its tables share parts so often that it describes far more than it has")


class Table:
    """A table of a flatbuffer. An absent field has its default value."""

    __slots__ = ("_at", "_buffer", "_fields", "_vtable")

    def __init__(self, buffer: Flatbuffer, at: int) -> None:
        self._buffer, self._at = buffer, at
        self._vtable = at - buffer.scalar(_I32, at)
        size = buffer.scalar(_U16, self._vtable)
        buffer.check(self._vtable, size)
        self._fields = size // 2 - 2
        buffer.charge(4 + size)

    def scalar(self, field: int, kind: str, default: Any = 0) -> Any:
        """Return a scalar field; `kind` is its format character in `struct`."""
        at = self._place(field)
        return default if at is None else self._buffer.scalar(_SCALARS[kind], at)

    def table(self, field: int) -> Table | None:
        """Return a field that is a table, or None if it is absent."""
        at = self._place(field)
        return None if at is None else Table(self._buffer, self._buffer.follow(at))

    def tables(self, field: int) -> Iterator[Table]:
        """Yield the tables of a field that is a vector of tables."""
        at = self._place(field)
        if at is None:
            return
        start, length = self._buffer.vector(at, 4)
        self._buffer.charge(4 * length)
        for position in range(length):
            yield Table(self._buffer, self._buffer.follow(start + 4 * position))

    def numbers(self, field: int, kind: str) -> npt.NDArray[Any]:
        """Return a field that is a vector of scalars; empty if it is absent."""
        dtype = np.dtype(f"<{_NUMPY[kind]}")
        at = self._place(field)
        if at is None:
            return np.empty(0, dtype)
        start, length = self._buffer.vector(at, dtype.itemsize)
        self._buffer.charge(length * dtype.itemsize)
        return np.frombuffer(self._buffer.data, dtype, length, start)

    def bytes(self, field: int) -> memoryview | None:
        """Return a field that is a vector of bytes, as a view, or None if it is absent."""
        at = self._place(field)
        if at is None:
            return None
        start, length = self._buffer.vector(at, 1)
        return self._buffer.data[start : start + length]

    def text(self, field: int) -> str:
        """Return a field that is a string; empty if it is absent."""
        view = self.bytes(field)
        if view is None:
            return ""
        self._buffer.charge(len(view))
        return bytes(view).decode("utf-8", "backslashreplace")

    def _place(self, field: int) -> int | None:
        """Return the position of a field's value, or None if it is absent."""
        if field >= self._fields:
            return None
        offset = self._buffer.scalar(_U16, self._vtable + 4 + 2 * field)
        return self._at + offset if offset else None


_NUMPY = {"b": "i1", "B": "u1", "h": "i2", "H": "u2", "i": "i4", "I": "u4", "q": "i8", "f": "f4"}
