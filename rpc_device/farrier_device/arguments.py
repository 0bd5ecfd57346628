"""The arguments of the candidates of a batch: mapped blobs, and the buffers that calls work on."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Mapping

from farrier_device.measurement import Argument, Candidate, Part, Role
from farrier_device.memory import ALIGNMENT, Buffer, aligned_buffer, pointers
from farrier_device.native import DTYPE_BYTES, Library, Pointers

# Were all buffers to start on a page, a core that compares the low 12 bits of addresses would
# take loads and stores of different arguments for alike; so each starts some cache lines later.
_SKEW = 17 * ALIGNMENT
_PAGE = 4096


class ArgumentError(Exception):
    """A candidate's arguments cannot be made: a blob is missing or has another size."""


class Blob:
    """A blob in an open file, which is closed with it."""

    def __init__(self, file: int) -> None:
        self.nbytes = os.fstat(file).st_size
        self._file = file
        self._pages: mmap.mmap | None = None

    @property
    def address(self) -> int:
        """Where the bytes are, mapped copy on write: what a candidate scribbles stays here."""
        if not self.nbytes:
            return 0
        if self._pages is None:
            self._pages = mmap.mmap(self._file, self.nbytes, flags=mmap.MAP_PRIVATE)
        return ctypes.addressof(ctypes.c_char.from_buffer(self._pages))

    def read_into(self, memory: memoryview) -> None:
        """Fill memory of as many bytes. They are read and not mapped, because mapped pages would
        be in memory once more. Raises ArgumentError where the file has become shorter."""
        os.lseek(self._file, 0, os.SEEK_SET)
        with open(self._file, "rb", buffering=0, closefd=False) as file:
            done = 0
            while done < self.nbytes:  # one call reads 2 GiB at most
                count = file.readinto(memory[done : self.nbytes])
                if not count:
                    raise ArgumentError(f"a blob of {self.nbytes} bytes ends after {done}")
                done += count

    def close(self) -> None:
        if self._pages is not None:
            self._pages.close()
        os.close(self._file)


class Arguments:
    """Buffers by argument position, kept from candidate to candidate and grown as needed."""

    def __init__(self) -> None:
        self._buffers: dict[int, Buffer] = {}

    def fill(self, candidate: Candidate, blobs: Mapping[str, Blob]) -> Pointers:
        """Inputs hold their blobs, the rest is zero. Raises ArgumentError, MemoryError."""
        return pointers(
            [
                self._filled(position, argument, blobs)
                for position, argument in enumerate(candidate.args)
            ]
        )

    def of_part(self, candidate: Candidate, part: Part) -> Pointers:
        """The part's arguments, within those that `fill` made. Raises ArgumentError."""
        addresses = []
        for position, offset in part.args:
            if not 0 <= position < len(candidate.args):
                raise ArgumentError(f"{part.symbol} wants argument {position}, which is not there")
            if not 0 <= offset <= candidate.args[position].nbytes:
                raise ArgumentError(f"{part.symbol} wants byte {offset} of argument {position}")
            addresses.append(self._buffers[position].address + offset)
        return pointers(addresses)

    def cold_ranges(self, candidate: Candidate) -> list[tuple[int, int]]:
        """Address and bytes of each argument that is to be out of the caches."""
        return [
            (self._buffers[position].address, argument.nbytes)
            for position, argument in enumerate(candidate.args)
            if argument.cold
        ]

    def max_error(
        self, candidate: Candidate, blobs: Mapping[str, Blob], library: Library
    ) -> float | None:
        """The largest error of the outputs against what is expected; None where nothing is."""
        errors = [
            library.max_error(
                self._buffers[position].address,
                blobs[argument.expected].address,
                argument.nbytes,
                argument.dtype,
                argument.padding,
            )
            for position, argument in enumerate(candidate.args)
            if argument.expected is not None
        ]
        return max(errors, default=None)

    def _filled(self, position: int, argument: Argument, blobs: Mapping[str, Blob]) -> int:
        _check(position, argument, blobs)
        buffer = self._buffer(position, argument.nbytes)
        if argument.role is Role.INPUT and argument.blob is not None:
            blobs[argument.blob].read_into(buffer.view[: argument.nbytes])
        else:
            buffer.zero(argument.nbytes)
        return buffer.address

    def _buffer(self, position: int, nbytes: int) -> Buffer:
        buffer = self._buffers.get(position)
        if buffer is None or buffer.nbytes < nbytes:
            self._buffers.pop(position, None)
            buffer = aligned_buffer(nbytes, skew=position * _SKEW % _PAGE)
            self._buffers[position] = buffer
        return buffer


def _check(position: int, argument: Argument, blobs: Mapping[str, Blob]) -> None:
    if argument.dtype not in DTYPE_BYTES:
        raise ArgumentError(f"argument {position} has an unknown dtype {argument.dtype!r}")
    for sha256 in filter(None, (argument.blob, argument.expected)):
        if sha256 not in blobs:
            raise ArgumentError(f"blob {sha256} of argument {position} is missing")
        held = blobs[sha256].nbytes
        if held != argument.nbytes:
            raise ArgumentError(
                f"argument {position} has {argument.nbytes} bytes, its blob {sha256} has {held}"
            )
