"""How far the blocks of a layout reach."""

from __future__ import annotations

from farrier.ir.dim import Extent, ceildiv
from farrier.ir.expr import Buffer
from farrier.ir.types import Layout


def block_of(layout: Layout | None, axis: int) -> int:
    """Elements of `axis` that its outermost part counts as one: 16 for the channels of NCHW16c."""
    return max((d.div for d in layout.dims if d.axis == axis), default=1) if layout else 1


def coverage(buffer: Buffer, axis: int) -> Extent:
    """Indices of `axis` below this one lie in memory."""
    extent = buffer.shape[axis]
    if buffer.layout is None:
        return extent
    before, after = buffer.layout.halo_of(axis)
    block = block_of(buffer.layout, axis)
    return ceildiv(before + extent + after, block) * block - before
