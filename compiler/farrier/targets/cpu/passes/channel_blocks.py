"""The choice of the number of channels in a block of an image's layout."""

from __future__ import annotations

import dataclasses

from farrier.intrinsics import Dot
from farrier.ir.graph import Graph, Node
from farrier.ir.types import DType
from farrier.ops import Product, Trait, lookup, product_of
from farrier.ops.layout import is_image
from farrier.targets.cpu.target import CpuTarget

# The channels of a block on a machine with fewer lanes, if the channels of all convolutions are
# multiples of it. Convolution tiles run along channels, which are then adjacent for each point; on
# RISC-V this saves up to a third of the instructions.
_OF_SCALARS = 4
_MOST_MERGED = (
    # The largest number of groups that are merged. Merging multiplies the model's products by this
    # number, as the added weights are zeros.
    8
)


def channel_block(
    graph: Graph, target: CpuTarget, *, merges: bool = False, floats: DType = DType.F32
) -> int:
    """Return the number of channels in a block of the blocked layout. It is the largest block size
    with which a dot product or tile unit computes some convolution faster, provided that the
    channels of all other convolutions fill such blocks. If there is none, it is the number of lanes
    of a vector, or 4 on machines with fewer lanes if all channels are multiples of 4.

    Images that are concatenated or split along channels must also consist of whole blocks. If
    `merges` is true, a later pass may merge groups of channels to fill blocks. `floats` is the
    dtype to which f32 factors will be rounded.
    """
    products = ((node, product_of(node)) for node in graph.nodes)
    nodes = [node for node, product in products if product is not None and product.is_convolution]
    blocks = [_blocks(node, target, floats) for node in nodes]
    parts = _parts(graph, target.lanes)
    for block in sorted(frozenset().union(*blocks), reverse=True):
        pairs = zip(nodes, blocks, strict=True)
        fills = all(block in suited or _fills(node, block, merges) for node, suited in pairs)
        if fills and all(channels % block == 0 for channels in parts):
            return block
    if target.lanes < _OF_SCALARS and nodes:
        fills = all(_fills(node, _OF_SCALARS, False) and _reads_whole(node) for node in nodes)
        if fills and all(channels % _OF_SCALARS == 0 for channels in parts):
            return _OF_SCALARS
    return target.lanes


def block_for(dot: Dot, target: CpuTarget) -> int:
    """Return the number of channels in a block such that `dot`, a dot-product instruction, finds
    its groups of channels in a block. If the instruction can take one factor from a single lane
    of a register, a block fills a whole register, so that one load fetches the groups for all
    lanes."""
    return target.lanes * dot.group if target.machine(1).by_lane else target.lanes


def _parts(graph: Graph, lanes: int) -> list[int]:
    """Return the channel counts of images that are concatenated along channels, or that result from
    a split along channels. Each following image must start with a new block, so the block must
    divide these counts; the last image of each concatenation or split is left out. Counts that are
    not multiples of `lanes` are also left out."""
    channels = []
    for node in graph.nodes:
        operator = lookup(node.op)
        joins = operator.has(Trait.JOINS)
        if not joins and not operator.has(Trait.PARTS):
            continue
        images = node.inputs if joins else node.outputs
        if node.attr("axis", 0) % node.outputs[0].type.rank == 1:
            channels += [image.type.shape[1] for image in images[:-1] if image and is_image(image)]
    return [n for n in channels if isinstance(n, int) and n % lanes == 0]


def _blocks(node: Node, target: CpuTarget, floats: DType) -> frozenset[int]:
    """Return the block sizes in channels with which dot products or tile units compute a
    convolution faster; empty if there are none."""
    if product_of(node) is not Product.CONVOLUTION or node.attr("group", 1) != 1:
        return frozenset()
    (x, w), y = node.inputs[:2], node.outputs[0].type
    if x is None or w is None or not isinstance(y.shape[1], int):
        return frozenset()
    left, right = (floats if v.type.dtype is DType.F32 else v.type.dtype for v in (x, w))
    dot = target.dot_of(left, right, y.dtype)
    of_dots = () if dot is None else (block_for(dot, target),)
    of_tiles = [unit.blocks_of(y.shape[1], target.lanes) for unit in target.units_of(left, right)]
    return frozenset(of_dots).union(*of_tiles)


def _fills(node: Node, block: int, merges: bool) -> bool:
    """Check whether a convolution's output channels, and the channels of each group, are multiples
    of `block`."""
    outputs, group = node.outputs[0].type.shape[1], int(node.attr("group", 1))
    if outputs % block:
        return False
    is_grouped = product_of(node) is Product.CONVOLUTION and group != 1
    if not is_grouped or node.inputs[1] is None:
        return True
    channels, inputs, *_ = node.inputs[1].type.static_shape
    if inputs == channels // group == 1:  # depthwise
        return True
    merged = merging(group, channels // group, inputs, block)
    return merged is not None and not merged.rest and (merges or merged.count == 1)


def _reads_whole(node: Node) -> bool:
    """Check whether a convolution reads whole blocks on machines with few lanes: its number of
    input channels is a multiple of `_OF_SCALARS`, or so small that the image is not stored in
    blocks at all."""
    x = node.inputs[0]
    channels = None if x is None else x.type.shape[1]
    return isinstance(channels, int) and (channels < _OF_SCALARS or channels % _OF_SCALARS == 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Merging:
    """The merging of a convolution's groups: every `count` neighbouring groups become one, and the
    last `rest` groups become a separate convolution."""

    count: int
    rest: int


def merging(group: int, outputs: int, inputs: int, block: int) -> Merging | None:
    """Return the merging of a convolution's groups with which each group's channels fill blocks of
    `block`, without a rest if possible. `outputs` and `inputs` are the channels of one group.
    Return None if no small number of groups fills blocks, and `Merging(1, 0)` if single groups
    already do."""
    fitting = [
        n for n in range(1, _MOST_MERGED + 1) if n * outputs % block == n * inputs % block == 0
    ]
    even = [n for n in fitting if group % n == 0] + [group] * (group <= _MOST_MERGED)
    if even:
        return Merging(min(even), 0)
    fitting = [n for n in fitting if n < group]
    return Merging(fitting[0], group % fitting[0]) if fitting else None
