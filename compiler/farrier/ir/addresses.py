"""Map the logical indices of an element to its offset in memory, by the layout of the buffer."""

from __future__ import annotations

from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, number
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr
from farrier.ir.linear import Linear, combine, to_expr
from farrier.ir.types import Layout, PhysicalDim, Swizzle


def flatten(buffer: Buffer, indices: tuple[Expr, ...], simplifier: Simplifier, size: int) -> Linear:
    """Return the offset of the element `buffer[indices]` in the buffer's memory, according to its
    layout, as a linear form. `size` is the size of an element: pass its bytes for an offset in
    bytes, or 1 for an offset in elements."""
    forms = [simplifier.linear(i) for i in indices]
    layout = buffer.layout
    if layout is None:
        layout = Layout.plain(len(buffer.shape))
    total = Linear({}, 0)
    stride: Extent = size
    extents = layout.physical_shape(buffer.shape)
    parts = [_part(layout, dim, forms[dim.axis], simplifier) for dim in layout.dims]
    if layout.swizzle is not None:
        parts[-1] = _swizzled(layout.swizzle, parts[-2], parts[-1], simplifier)
    for part, extent in zip(reversed(parts), reversed(extents), strict=True):
        total = combine(total, part, stride)
        stride *= extent
    return simplifier.join(total)


def _part(layout: Layout, dim: PhysicalDim, form: Linear, simplifier: Simplifier) -> Linear:
    """Return the index along the physical dimension `dim` of an element whose index along the
    logical axis is `form`. For the index i it is `(i + halo) // div % mod`, where `halo` is the
    number of zeros before the axis."""
    before = layout.halo_of(dim.axis)[0]
    part = Linear(form.terms, form.const + before) if before else form
    if dim.div > 1:
        part = simplifier.divide(part, dim.div)
    return simplifier.remainder(part, dim.mod) if dim.mod else part


def _swizzled(swizzle: Swizzle, row: Linear, column: Linear, simplifier: Simplifier) -> Linear:
    """Return the index of an element within its row of memory after the swizzle, from `row` and the
    index `column` before it."""
    turn = simplifier.remainder(simplifier.divide(row, swizzle.rows), swizzle.count)
    chunk = simplifier.divide(column, swizzle.chunk)
    within = simplifier.remainder(column, swizzle.chunk)
    if not turn.terms and turn.const == 0:
        return column
    if not (turn.terms or chunk.terms):
        place_of_chunk = number(turn.const) ^ number(chunk.const)
        return combine(within, Linear({}, place_of_chunk), swizzle.chunk)
    place = Binary(BinaryOp.BIT_XOR, to_expr(chunk), to_expr(turn))
    return combine(within, Linear({place: 1}, 0), swizzle.chunk)
