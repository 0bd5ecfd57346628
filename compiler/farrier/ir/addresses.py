"""Where an element of a buffer lies: logical indices to an offset, by the buffer's layout."""

from __future__ import annotations

from farrier.ir.affine import Linear, Simplifier, combine
from farrier.ir.dim import Extent
from farrier.ir.expr import Buffer, Expr
from farrier.ir.types import Layout


def flatten(buffer: Buffer, indices: tuple[Expr, ...], simplifier: Simplifier, size: int) -> Linear:
    """The offset of an element of `size` bytes, by the layout of its buffer; with size 1 the number
    of the element, which is the key of a register."""
    forms = [simplifier.linear(i) for i in indices]
    layout = buffer.layout
    if layout is None:
        layout = Layout.plain(len(buffer.shape))
    total = Linear({}, 0)
    stride: Extent = size
    extents = layout.physical_shape(buffer.shape)
    for dim, extent in zip(reversed(layout.dims), reversed(extents), strict=True):
        form = forms[dim.axis]
        before = layout.halo_of(dim.axis)[0]
        part = Linear(form.terms, form.const + before) if before else form
        if dim.div > 1:
            part = simplifier.divide(part, dim.div)
        if dim.mod:
            part = simplifier.remainder(part, dim.mod)
        total = combine(total, part, stride)
        stride *= extent
    return simplifier.join(total)
