"""Operands of an elementwise operator whose extents have two names.

A mask and what it is added to often have names of their own for one size: the two are equal, or the
mask has one row for all. Which it is shows when the model runs. The operand of fewer elements is
read at the place of the other's element, or at its only one:

    y[n] = x[n] + z[m]    ->    y[i] = x[i] + z[min(i, m - 1)]    where m is n or 1
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from farrier.importer.local_sizes import ImpliedSizes
from farrier.importer.raw import RawNode
from farrier.importer.scope import Regions, ints
from farrier.importer.signature import Signature
from farrier.ir.dim import Dim, Extent, Symbol, maximum, minimum, typical
from farrier.ir.graph import Value


def stretch(node: RawNode, scope: Regions, signature: Signature) -> None:
    """Exchanges operands of a node for those of one size along axes of several names. Raises
    ImpliedSizes where the typical sizes are neither equal nor 1, and the user chose none."""
    named = {one.symbol for one in signature.dims}
    if len(named) < 2:
        return
    operands = [name for name in node.inputs if name and isinstance(scope.entry(name), Value)]
    rank = max((len(scope.shape(name)) for name in operands), default=0)
    operands.sort(key=lambda name: -_elements(scope.shape(name)))
    for axis in range(-rank, 0):
        along = [name for name in operands if len(scope.shape(name)) >= -axis]
        extents = [scope.shape(name)[axis] for name in along]
        if not all(extent == 1 or _is_name(extent, named) for extent in extents):
            continue
        whole = next((extent for extent in extents if extent != 1), 1)
        for name, extent in zip(along, extents, strict=True):
            if extent not in (1, whole):
                _settle_typical(extent, whole, signature)
                needs = signature.text(f"{extent} must be {whole} or 1")
                longer = _stretched(name, axis, whole, needs, scope)
                node.inputs[:] = [longer if one == name else one for one in node.inputs]
                operands[:] = [longer if one == name else one for one in operands]


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


def _settle_typical(own: Extent, whole: Extent, signature: Signature) -> None:
    """Raises ImpliedSizes for the typical size that the operand is to have."""
    size = typical(whole)
    if typical(own) in (1, size):
        return
    for one in signature.dims:
        is_free = one.name not in signature.pinned | signature.implied
        if one.extent == own and is_free and one.low <= size <= one.high:
            raise ImpliedSizes({one.name: size * one.step})


def _stretched(name: str, axis: int, whole: Extent, needs: str, scope: Regions) -> str:
    """The operand with `whole` elements along an axis, of which it has as many or one."""
    own = scope.shape(name)[axis]
    apart, more = maximum(own - whole, whole - own), maximum(own - 1, 1 - own)
    check = scope.constant(ints([minimum(apart, more)]))
    scope.require(scope.unknown(check), [0], needs=needs)
    count = [scope.constant(ints(value)) for value in (0, whole, 1)]
    last = scope.constant(ints(own - 1))
    at = scope.add("Min", scope.add("Range", *count), last)
    return scope.add("Gather", name, at, axis=len(scope.shape(name)) + axis)
