"""What the rewrites of all control flow share."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.errors import UnresolvedShapeError, UnsupportedOperatorError
from farrier.importer.names import Entry
from farrier.importer.scope import Region, Regions
from farrier.importer.tensors import MisfitError
from farrier.ir.graph import Node, Value
from farrier.ops import Mismatch
from farrier.ops.control import check_control

# Why a graph may not be compiled that is none of the model's whole.
UNFIT = (MisfitError, UnresolvedShapeError, UnsupportedOperatorError)


def append(node: Node, scope: Regions) -> None:
    """Raises Mismatch where the node and its regions are typed apart."""
    check_control(node)
    scope.append(node)


def captures_of(regions: Sequence[Region], scope: Regions) -> tuple[Value, ...]:
    """What regions use of the graph around them, constants left out: those are their own."""
    found = {
        outside.name: outside
        for region in regions
        for outside, inside in region.body.captured.values()
        if scope.known(inside) is None
    }
    return tuple(found.values())


def bind(names: Sequence[str], entries: Sequence[Entry], scope: Regions) -> None:
    """Name what is returned; a node may leave out the last outputs."""
    if len(entries) < len(names):
        raise Mismatch(f"it has {len(names)} outputs, and its graph returns {len(entries)}")
    for name, entry in zip(names, entries, strict=False):
        scope.bind(name, entry)
