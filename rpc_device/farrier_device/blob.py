"""Blobs (byte strings named by their digest) in open files, as a measurement child receives
them."""

from __future__ import annotations

import ctypes
import mmap
import os


class ArgumentError(Exception):
    """The arguments of a candidate cannot be prepared: a blob is missing or has another size."""


class Blob:
    """A blob in an open file; closing the blob closes the file."""

    def __init__(self, file: int) -> None:
        self.nbytes = os.fstat(file).st_size
        self._file = file
        self._pages: mmap.mmap | None = None

    @property
    def view(self) -> memoryview:
        """The bytes of the blob, mapped copy-on-write: a candidate's writes to them do not reach
        the file."""
        if not self.nbytes:
            return memoryview(b"")
        if self._pages is None:
            self._pages = mmap.mmap(self._file, self.nbytes, flags=mmap.MAP_PRIVATE)
        return memoryview(self._pages)

    @property
    def address(self) -> int:
        """The address of the blob's first byte, 0 if the blob is empty."""
        view = self.view
        return ctypes.addressof(ctypes.c_char.from_buffer(view)) if self.nbytes else 0

    def read_into(self, memory: memoryview) -> None:
        """Read the whole blob into `memory`. The file is read rather than mapped, because mapped
        pages would take up memory of the same size again. Raises ArgumentError if the file has
        become shorter."""
        os.lseek(self._file, 0, os.SEEK_SET)
        with open(self._file, "rb", buffering=0, closefd=False) as file:
            done = 0
            while done < self.nbytes:  # One call reads 2 GiB at most.
                count = file.readinto(memory[done : self.nbytes])
                if not count:
                    raise ArgumentError(f"a blob of {self.nbytes} bytes ends after {done}")
                done += count

    def close(self) -> None:
        if self._pages is not None:
            self._pages.close()
        os.close(self._file)
