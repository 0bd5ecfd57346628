"""Layout rules: how operators run on images that lie in blocks of channels."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable
from typing import TypeAlias

from farrier.ir.graph import Node, Value
from farrier.ir.types import DType, Shape

IMAGE_RANKS = (4, 5)  # The ranks of images [n, c, h, w] and of volumes [n, c, d, h, w].
# What an image may consist of. A block of channels is a vector of 32-bit sums of convolutions.
_SUMS = (DType.F32, DType.I32)
ELEMENTS = frozenset((DType.F32, DType.BF16, DType.F16, DType.I8, DType.U8, DType.I16, DType.I32))


class Form(enum.Enum):
    """The layouts with which a node runs."""

    PLAIN = enum.auto()  # It reads and writes row-major tensors.
    BLOCKED = enum.auto()  # It reads and writes blocked images.
    BLOCKED_INPUT = enum.auto()  # It reads blocked images and writes row-major tensors.
    BLOCKED_OUTPUT = enum.auto()  # It reads its input as it lies and writes blocked images.


@dataclasses.dataclass(frozen=True, slots=True)
class Images:
    """The facts for a layout rule: whether a value lies in blocks of channels already; the elements
    of a constant, which may be dims; the number of channels in a block."""

    is_blocked: Callable[[Value], bool]
    extents: Callable[[Value | None], Shape | None]
    lanes: int


LayoutRule: TypeAlias = Callable[[Node, Images], Form]


def is_image(value: Value) -> bool:
    """Return whether `value` is a tensor [n, c, h, w] or [n, c, d, h, w] of more than one point and
    of a known number of channels, whose elements have 32 bits at most.

    A single point lies the same way in blocks as without them.
    """
    type = value.type
    if type.rank not in IMAGE_RANKS or type.dtype not in ELEMENTS:
        return False
    return set(type.shape[2:]) != {1} and isinstance(type.shape[1], int)


def elementwise(node: Node, images: Images) -> Form:
    """Run in blocks where an operand lies so, and the output keeps that operand's channels."""
    y = node.outputs[0]
    if y.type.rank not in IMAGE_RANKS:
        return Form.PLAIN
    for value in node.inputs:
        if value is None or value.type.rank != y.type.rank:
            continue
        if images.is_blocked(value) and value.type.shape[1] == y.type.shape[1]:
            return Form.BLOCKED if is_image(y) else Form.BLOCKED_INPUT
    return Form.PLAIN


def convolution(node: Node, images: Images) -> Form:
    """Run in blocks where vectors of output channels fill them. These multiply input elements that
    are broadcast, so inputs of few channels are read as they lie; a depthwise convolution reads
    vectors too."""
    x, y, group = _first(node), node.outputs[0], int(node.attr("group", 1))
    if group == 1 or not _is_convolved(node):
        return ungrouped_convolution(node, images)
    if not is_image(y):
        return Form.PLAIN
    channels, outputs, lanes = x.type.shape[1], y.type.shape[1], images.lanes
    if group == channels == outputs:
        return Form.BLOCKED if channels >= lanes or images.is_blocked(x) else Form.PLAIN
    is_whole = (outputs // group) % lanes == 0 and (channels // group) % lanes == 0
    return Form.BLOCKED if is_whole else Form.PLAIN


def ungrouped_convolution(node: Node, images: Images) -> Form:
    """Do as `convolution` does, but run on row-major images where there are groups."""
    x, y, group = _first(node), node.outputs[0], int(node.attr("group", 1))
    if not _is_convolved(node) or group > 1:
        return Form.PLAIN
    is_blocked = images.is_blocked(x)
    if not is_image(y):
        return Form.BLOCKED_INPUT if is_blocked else Form.PLAIN
    if x.type.shape[1] >= images.lanes or is_blocked:
        return Form.BLOCKED
    return Form.BLOCKED_OUTPUT if y.type.shape[1] >= images.lanes // 2 else Form.PLAIN


def _is_convolved(node: Node) -> bool:
    x, y = _first(node), node.outputs[0]
    return x.type.rank == y.type.rank in IMAGE_RANKS and y.type.dtype in _SUMS


def concatenation(node: Node, images: Images) -> Form:
    """Run in blocks where a part lies so; along channels every part but the last must fill them."""
    parts = [value for value in node.inputs if value is not None]
    if not any(map(images.is_blocked, parts)) or not all(map(is_image, parts)):
        return Form.PLAIN
    if node.attr("axis") % node.outputs[0].type.rank != 1:
        return Form.BLOCKED
    is_whole = all(value.type.shape[1] % images.lanes == 0 for value in parts[:-1])
    return Form.BLOCKED if is_whole else Form.PLAIN


def channelwise(node: Node, images: Images) -> Form:
    """Run in blocks where the image lies so, as an operator can that keeps channels apart."""
    return Form.BLOCKED if images.is_blocked(_first(node)) else Form.PLAIN


def vectors_of_channels(node: Node, images: Images) -> Form:
    """Run in blocks wherever there are enough channels: windows of vectors of these are so much
    faster than rows that blocks are worth making."""
    x, y = _first(node), node.outputs[0]
    window = math.prod(node.attr("kernel_shape", (1,)))
    is_wide = is_image(x) and is_image(y) and len(node.outputs) == 1
    if is_wide and window > 1 and x.type.shape[1] >= images.lanes:
        return Form.BLOCKED
    return channelwise(node, images)


def points_reduced(node: Node, images: Images) -> Form:
    """Read an image in blocks and write one point, as a pool over all of it does."""
    return Form.BLOCKED_INPUT if images.is_blocked(_first(node)) else Form.PLAIN


def axes_reduced(node: Node, images: Images) -> Form:
    """Read an image in blocks where its input 1 names spatial axes alone."""
    x = _first(node)
    if not images.is_blocked(x):
        return Form.PLAIN
    axes = images.extents(node.inputs[1]) if len(node.inputs) > 1 else None
    rank = x.type.rank
    if axes is None or not {axis % rank for axis in axes} <= set(range(2, rank)):
        return Form.PLAIN
    is_whole = len(axes) == rank - 2
    return Form.BLOCKED if node.attr("keepdims", 1) and not is_whole else Form.BLOCKED_INPUT


def channels_spread(node: Node, images: Images) -> Form:
    """Read an image in blocks that moves channels to points, and leaves less than half a block."""
    if not images.is_blocked(_first(node)):
        return Form.PLAIN
    is_few = 2 * node.outputs[0].type.shape[1] < images.lanes
    return Form.BLOCKED_INPUT if is_few else Form.PLAIN


def blocks_moved(is_whole: Callable[[Node, Images], bool]) -> LayoutRule:
    """Return the rule of an operator that moves elements: in blocks where the image lies so, and
    each element stays within its place in a block, as `is_whole(node, images)` says."""

    def rule(node: Node, images: Images) -> Form:
        if not images.is_blocked(_first(node)) or not all(map(is_image, node.outputs)):
            return Form.PLAIN
        return Form.BLOCKED if is_whole(node, images) else Form.PLAIN

    return rule


def _first(node: Node) -> Value:
    x = node.inputs[0]
    assert x is not None
    return x
