"""Nodes whose sizes values decide → nodes whose sizes are extents.

Operators read sizes, bounds and positions as extents (`farrier.ops`). Where a frontend's node has
values in their place that are known only at run time, or asks for what operators have no form for,
the builder appends other nodes, which compute the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites import axes, pads, ranges, reshapes, scales, sizes, slices

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder

_Rule: TypeAlias = Callable[[RawNode, "Builder"], RawNode]
_RULES: dict[str, _Rule] = {
    "Concat": sizes.concat,
    "ConstantOfShape": sizes.constant_of_shape,
    "CumProd": axes.running,
    "CumSum": axes.running,
    "Expand": sizes.expand,
    "MaxUnpool": sizes.max_unpool,
    "NonZero": sizes.non_zero,
    "OneHot": sizes.one_hot,
    "Pad": pads.pad,
    "Range": ranges.range_,
    "Reshape": reshapes.reshape,
    "Resize": scales.resize,
    "Slice": slices.slice_,
    "Split": slices.split,
    "Tile": sizes.tile,
    "TopK": sizes.top_k,
    "Trilu": sizes.trilu,
}


def rewritten(node: RawNode, builder: Builder) -> RawNode:
    """Return the node whose operands are known where its operator needs them to be, or another with
    its outputs. The nodes on which it stands are added to the builder."""
    rule = _RULES.get(node.op)
    return node if rule is None else rule(node, builder)
