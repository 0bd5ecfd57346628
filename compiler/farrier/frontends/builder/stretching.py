"""Broadcasting between axes whose extents have different names in the model.

A mask and the tensor that it is added to often have different names for the same size. At run time
the two are equal, or the mask's extent is 1. The mask is therefore read at the same position as the
tensor, clamped to its own length:

    y[n] = x[n] + z[m]    ->    y[i] = x[i] + z[min(i, m - 1)]    where m is n or 1
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from farrier.frontends.builder.local_sizes import ImpliedSizes
from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.signature import Signature
from farrier.ir.dim import Dim, Extent, Symbol, maximum, minimum, typical
from farrier.ir.graph import Value

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder


def stretch(node: RawNode, builder: Builder) -> None:
    """Change an elementwise node whose operands have different symbolic extents along an axis: each
    operand whose extent differs from that of the longest operand is replaced by a gathered one.
    Raises ImpliedSizes if the typical sizes of two extents do not broadcast and the user has not
    chosen them."""
    signature = builder.signature
    named = {dim.symbol for dim in signature.dims}
    if len(named) < 2:
        return
    entries = [(name, builder.entry(name)) for name in node.inputs if name]
    operands = [name for name, entry in entries if isinstance(entry, Value)]
    shapes = {entry.type.shape for _, entry in entries if isinstance(entry, Value)}
    distinct = {extent for shape in shapes for extent in shape if isinstance(extent, Dim)}
    if len(shapes) < 2 or sum(_is_name(extent, named) for extent in distinct) < 2:
        return
    rank = max((len(builder.shape(name)) for name in operands), default=0)
    operands.sort(key=lambda name: -_elements(builder.shape(name)))
    for axis in range(-rank, 0):
        along = [name for name in operands if len(builder.shape(name)) >= -axis]
        extents = [builder.shape(name)[axis] for name in along]
        if not all(extent == 1 or _is_name(extent, named) for extent in extents):
            continue
        longest = next((extent for extent in extents if extent != 1), 1)
        for name, extent in zip(along, extents, strict=True):
            if extent not in (1, longest):
                _settle_typical(extent, longest, signature)
                needs = signature.text(f"{extent} must be {longest} or 1")
                longer = _stretched(name, axis, longest, needs, builder)
                node.inputs[:] = [longer if own == name else own for own in node.inputs]
                operands[:] = [longer if own == name else own for own in operands]


def _elements(shape: Sequence[Extent]) -> int:
    count = 1
    for extent in shape:
        count *= typical(extent)
    return count


def _is_name(extent: Extent, named: Collection[str]) -> bool:
    match extent:
        case Dim(terms=(((Symbol(name=name),), 1),)):
            return name in named
    return False


def _settle_typical(own: Extent, length: Extent, signature: Signature) -> None:
    """Raise ImpliedSizes, with the typical size of `length` for the dim `own`, if the typical size
    of `own` is neither 1 nor the typical size of `length`. Do nothing if the user or a branch chose
    the typical size of `own`."""
    size = typical(length)
    if typical(own) in (1, size):
        return
    for dim in signature.dims:
        is_free = dim.name not in signature.pinned | signature.implied
        if dim.extent == own and is_free and dim.low <= size <= dim.high:
            raise ImpliedSizes({dim.name: size * dim.step})


def _stretched(name: str, axis: int, length: Extent, needs: str, builder: Builder) -> str:
    """Return operand `name` repeated to `length` elements along an axis, by a gather. Also add a
    check that ends a run in which the axis has neither `length` elements nor one."""
    own = builder.shape(name)[axis]
    apart, more = maximum(own - length, length - own), maximum(own - 1, 1 - own)
    builder.require(builder.unknown([minimum(apart, more)]), [0], needs=needs)
    at = builder.add("Min", builder.add("Range", 0, length, 1), own - 1)
    return builder.add("Gather", name, at, axis=len(builder.shape(name)) + axis)
