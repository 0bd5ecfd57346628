"""Aligned memory for native code: anonymous pages, huge pages if possible."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

ALIGNMENT = 64  # Bytes: a cache line, and the widest vector register.
_HUGE_PAGE = 2 << 20


class Buffer:
    """A block of `nbytes` of zeroed memory at `address`.

    A block of at least 2 MiB starts on a huge-page boundary, and the kernel is asked for huge
    pages, because a kernel that streams weights through 4 KiB pages is slowed by TLB misses. The
    memory is freed when the last reference to the buffer or to a view of it is dropped.
    """

    __slots__ = ("_pages", "address", "nbytes", "view")

    address: int
    nbytes: int
    view: memoryview  # Writable, one byte an item.

    def __init__(self, nbytes: int, skew: int = 0) -> None:
        huge = nbytes >= _HUGE_PAGE
        boundary = _HUGE_PAGE if huge else ALIGNMENT
        self._pages = _anonymous(nbytes + skew + (boundary if huge else 0))
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        self.address = -(-base // boundary) * boundary + skew
        self.nbytes = nbytes
        start = self.address - base
        self.view = memoryview(self._pages)[start : start + nbytes]
        if huge and hasattr(mmap, "MADV_HUGEPAGE"):
            self._pages.madvise(mmap.MADV_HUGEPAGE)

    def zero(self, nbytes: int | None = None) -> None:
        """Set the first `nbytes` to zero, by default all bytes."""
        ctypes.memset(self.address, 0, self.nbytes if nbytes is None else nbytes)


def aligned_buffer(nbytes: int, *, skew: int = 0) -> Buffer:
    """Return zeroed memory of `nbytes`, whose address is `skew` bytes after a page boundary. `skew`
    is a multiple of 64 below 2 MiB, so that the address is 64-byte aligned. Raises MemoryError if
    there is not enough memory."""
    if nbytes < 0 or skew % ALIGNMENT or not 0 <= skew < _HUGE_PAGE:
        raise ValueError(f"cannot allocate a buffer of {nbytes} bytes with a skew of {skew}")
    return Buffer(nbytes, skew)


def pointers(addresses: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]:
    """Return a C array of the addresses: the `void *const *args` of an entry point."""
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _anonymous(nbytes: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"not enough memory for {nbytes} bytes") from error
