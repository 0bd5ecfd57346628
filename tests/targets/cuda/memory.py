"""The memory of an emulated device: arrays at addresses, and which of their bytes are written."""

from __future__ import annotations

import numpy as np

from tests.targets.cuda.ptx import PtxError

PLACE = 40  # Bits of an offset in an array of global memory; the others are its number.


class Array:
    """Some bytes, and which of them somebody has written."""

    def __init__(self, nbytes):
        # Whole elements of 16 bytes, so that an array can be viewed in any type.
        self.content = np.full(-(-nbytes // 16) * 16, 0xA5, np.uint8)
        self.written = np.zeros(len(self.content), bool)


class Memory:
    """The arrays of a device, by their addresses."""

    def __init__(self):
        self.arrays = {}
        self._count = 0
        self._constants = {}  # Their addresses, by their content.

    def allocate(self, nbytes):
        self._count += 1
        self.arrays[self._count] = Array(nbytes)
        return self._count << PLACE

    def constant(self, content):
        """Return the address of an array of a module."""
        if content not in self._constants:
            address = self._constants[content] = self.allocate(len(content))
            self.write(address, np.frombuffer(content, np.uint8))
        return self._constants[content]

    def free(self, address):
        del self.arrays[address >> PLACE]

    def read(self, address, nbytes):
        """Return a view of some bytes. Raises PtxError for those outside of an array."""
        array, part = self._part(address, nbytes)
        return array.content[part]

    def write(self, address, content):
        """Write bytes, as the host does."""
        array, part = self._part(address, len(content))
        array.content[part] = content
        array.written[part] = True

    def _part(self, address, nbytes):
        array, start = self.arrays.get(address >> PLACE), address & ((1 << PLACE) - 1)
        if array is None or start + nbytes > len(array.content):
            raise PtxError(f"a copy of {nbytes} bytes at {address:#x} is outside of all arrays")
        return array, slice(start, start + nbytes)
