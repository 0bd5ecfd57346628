"""The sizes of the blocks into which a layout splits axes, and the extent that the blocks of a
buffer cover.
"""

from __future__ import annotations

from farrier.ir.dim import Extent, ceildiv
from farrier.ir.expr import Buffer
from farrier.ir.types import Layout


def block_of(layout: Layout | None, axis: int) -> int:
    """Return the number of neighbouring elements of `axis` that share one index of the outermost
    dimension of that axis: 16 for the channels of NCHW16c."""
    return max((d.div for d in layout.dims if d.axis == axis), default=1) if layout else 1


def coverage(buffer: Buffer, axis: int) -> Extent:
    """Return the number of indices of `axis`, from 0 on, for which the buffer has memory; the
    padding of the last block is included."""
    extent = buffer.shape[axis]
    if buffer.layout is None:
        return extent
    before, after = buffer.layout.halo_of(axis)
    block = block_of(buffer.layout, axis)
    return ceildiv(before + extent + after, block) * block - before
