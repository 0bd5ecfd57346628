"""How many channels lie together, where images lie in blocks of channels."""

from __future__ import annotations

from farrier.intrinsics import Dot, dot_of
from farrier.ir.graph import Graph, Node
from farrier.passes.layouts import CONVOLUTIONS
from farrier.space.machine import Machine
from farrier.targets import Target


def channel_block(graph: Graph, target: Target) -> int:
    """As many as a vector has lanes; as many as a convolution's dot products make worth it, where
    the channels that all others make fill such blocks: their tiles end where the channels do."""
    nodes = [node for node in graph.nodes if node.op in CONVOLUTIONS]
    dots = [_dot(node, target) for node in nodes]
    block = max((block_for(dot, target) for dot in dots if dot is not None), default=target.lanes)
    others = [node for node, dot in zip(nodes, dots, strict=True) if dot is None]
    fills = all(node.outputs[0].type.shape[1] % block == 0 for node in others)
    return block if fills else target.lanes


def block_for(dot: Dot, target: Target) -> int:
    """Channels of a block of which a dot product takes groups: where it takes a lane of a register
    as a factor, as many as fill the register, so that one load brings the groups of all lanes."""
    return target.lanes * dot.group if Machine.of(target, 1).by_lane else target.lanes


def _dot(node: Node, target: Target) -> Dot | None:
    """The dot product that takes a convolution's products."""
    if node.op != "Conv" or node.attr("group", 1) != 1:
        return None
    x, w = node.inputs[:2]
    if x is None or w is None:
        return None
    return dot_of(x.type.dtype, w.type.dtype, node.outputs[0].type.dtype, target)
