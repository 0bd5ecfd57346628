"""How many channels lie together, where images lie in blocks of channels."""

from __future__ import annotations

import math

from farrier.intrinsics import Dot, dot_of, tile_depth
from farrier.ir.graph import Graph, Node
from farrier.passes.layouts import CONVOLUTIONS
from farrier.space.machine import Machine
from farrier.targets import Target

NARROW_BLOCK = 16  # channels of less than 32 bits that products of tiles reduce at once, at most


def channel_block(graph: Graph, target: Target) -> int:
    """As many as a vector has lanes; as many as a convolution's products make worth it, where the
    channels that all others make fill such blocks: their tiles end where the channels do."""
    nodes = [node for node in graph.nodes if node.op in CONVOLUTIONS]
    blocks = [_block(node, target) for node in nodes]
    block = max((one for one in blocks if one), default=target.lanes)
    others = [node for node, one in zip(nodes, blocks, strict=True) if not one]
    fills = all(node.outputs[0].type.shape[1] % block == 0 for node in others)
    return block if fills else target.lanes


def block_for(dot: Dot, target: Target) -> int:
    """Channels of a block of which a dot product takes groups: where it takes a lane of a register
    as a factor, as many as fill the register, so that one load brings the groups of all lanes."""
    return target.lanes * dot.group if Machine.of(target, 1).by_lane else target.lanes


def _block(node: Node, target: Target) -> int:
    """The channels of a block that suits a convolution's products; 0 where none is better."""
    if node.op != "Conv" or node.attr("group", 1) != 1:
        return 0
    x, w = node.inputs[:2]
    if x is None or w is None:
        return 0
    operands = x.type.dtype, w.type.dtype
    if (dot := dot_of(*operands, node.outputs[0].type.dtype, target)) is not None:
        return block_for(dot, target)
    depth = tile_depth(*operands, target)
    return math.gcd(depth, NARROW_BLOCK) if depth and Machine.of(target, 1).by_lane else 0
