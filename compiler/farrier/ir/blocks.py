"""The sizes of the blocks that a layout splits axes into, and how far a buffer's blocks reach."""

from __future__ import annotations

from farrier.ir.dim import Extent, ceildiv
from farrier.ir.expr import Buffer
from farrier.ir.types import Layout


def block_of(layout: Layout | None, axis: int) -> int:
    """Return the elements of `axis` that share an index of its outermost part: 16 for the channels
    of NCHW16c."""
    return max((d.div for d in layout.dims if d.axis == axis), default=1) if layout else 1


def coverage(buffer: Buffer, axis: int) -> Extent:
    """Return the end of the indices of `axis` that lie in memory, padding of the last block
    included."""
    extent = buffer.shape[axis]
    if buffer.layout is None:
        return extent
    before, after = buffer.layout.halo_of(axis)
    block = block_of(buffer.layout, axis)
    return ceildiv(before + extent + after, block) * block - before
