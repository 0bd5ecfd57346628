"""Layout rules: which operators run on blocked images, [n, c / lanes, h, w, lanes], and when."""

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
    """The layouts of the tensors that a node reads and writes."""

    PLAIN = enum.auto()  # It reads and writes row-major tensors.
    BLOCKED = enum.auto()  # It reads and writes blocked images.
    BLOCKED_INPUT = enum.auto()  # It reads blocked images and writes row-major tensors.
    BLOCKED_OUTPUT = enum.auto()  # It reads its input in any layout and writes blocked images.


@dataclasses.dataclass(frozen=True, slots=True)
class Images:
    """Information for a layout rule: `is_blocked(value)` checks whether a value has a blocked
    layout, `extents(value)` returns the elements of an integer constant, and `lanes` is the number
    of channels in a block.
    """

    is_blocked: Callable[[Value], bool]
    extents: Callable[[Value | None], Shape | None]
    lanes: int


LayoutRule: TypeAlias = Callable[[Node, Images], Form]


def is_image(value: Value) -> bool:
    """Check whether a blocked layout is possible for `value`: it is [n, c, h, w] or [n, c, d, h, w]
    with more than one spatial point and a static number of channels, and its elements have at most
    32 bits.

    With a single point, the blocked layout is the same as the row-major one.
    """
    type = value.type
    if type.rank not in IMAGE_RANKS or type.dtype not in ELEMENTS:
        return False
    return set(type.shape[2:]) != {1} and isinstance(type.shape[1], int)


def elementwise(node: Node, images: Images) -> Form:
    """Run in blocked layout if an operand is blocked and the output has the same channels."""
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
    """Run in blocked layout if there are enough output channels to fill vectors. Input elements are
    broadcast, so an input with few channels is read in row-major layout; a depthwise convolution
    reads vectors of channels.
    """
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
    """Apply the rule `convolution`, but run in row-major layout if the convolution has groups."""
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
    """Run in blocked layout if an operand is blocked. For the channel axis, all operands except the
    last must also have a multiple of `lanes` channels.
    """
    parts = [value for value in node.inputs if value is not None]
    if not any(map(images.is_blocked, parts)) or not all(map(is_image, parts)):
        return Form.PLAIN
    if node.attr("axis") % node.outputs[0].type.rank != 1:
        return Form.BLOCKED
    is_whole = all(value.type.shape[1] % images.lanes == 0 for value in parts[:-1])
    return Form.BLOCKED if is_whole else Form.PLAIN


def channelwise(node: Node, images: Images) -> Form:
    """Run in blocked layout if the image is blocked, for operators that do not mix channels."""
    return Form.BLOCKED if images.is_blocked(_first(node)) else Form.PLAIN


def vectors_of_channels(node: Node, images: Images) -> Form:
    """Run in blocked layout if there are at least `lanes` channels: with a window of more than one
    element, the gain from vectors of channels exceeds the cost of converting the layout.
    """
    x, y = _first(node), node.outputs[0]
    window = math.prod(node.attr("kernel_shape", (1,)))
    is_wide = is_image(x) and is_image(y) and len(node.outputs) == 1
    if is_wide and window > 1 and x.type.shape[1] >= images.lanes:
        return Form.BLOCKED
    return channelwise(node, images)


def points_reduced(node: Node, images: Images) -> Form:
    """Read a blocked image and write a row-major result, for a pool over all spatial positions."""
    return Form.BLOCKED_INPUT if images.is_blocked(_first(node)) else Form.PLAIN


def axes_reduced(node: Node, images: Images) -> Form:
    """Read a blocked image in a reduction whose axes (input 1) are constant and all spatial."""
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
    """Choose the form of an operator that moves channels to spatial positions. If the result has
    less than half a block of channels, the operator reads a blocked image and writes a row-major
    one."""
    if not images.is_blocked(_first(node)):
        return Form.PLAIN
    is_few = 2 * node.outputs[0].type.shape[1] < images.lanes
    return Form.BLOCKED_INPUT if is_few else Form.PLAIN


def blocks_moved(is_whole: Callable[[Node, Images], bool]) -> LayoutRule:
    """Return the layout rule of an operator that moves elements: it runs in blocked layout if the
    image is blocked and `is_whole(node, images)` holds, which checks that no element changes its
    lane.
    """

    def rule(node: Node, images: Images) -> Form:
        if not images.is_blocked(_first(node)) or not all(map(is_image, node.outputs)):
            return Form.PLAIN
        return Form.BLOCKED if is_whole(node, images) else Form.PLAIN

    return rule


def _first(node: Node) -> Value:
    x = node.inputs[0]
    assert x is not None
    return x
