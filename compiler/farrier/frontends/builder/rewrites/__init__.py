"""Rewrite nodes with data-dependent sizes to nodes whose sizes are extents.

Operators read sizes, limits and positions as extents (`farrier.ops`). If a node of a frontend has
values known only at run time as such operands, or uses a form that no operator supports, the
builder appends equivalent nodes instead.
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
    """Return a node with the same outputs as `node`, whose operands that must be known when
    compiling are constants. Nodes that compute its other operands are added to the builder. A node
    without a rule is returned unchanged."""
    rule = _RULES.get(node.op)
    return node if rule is None else rule(node, builder)
