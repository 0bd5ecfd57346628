"""What each operator can do with channel-blocked images, for `assign-layouts`."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable

from farrier.ir.dim import Extent, is_less, typical
from farrier.ir.graph import Node, Value
from farrier.ir.types import DType, Shape
from farrier.ops import Kind, lookup
from farrier.ops.window import Window, window_of

# Whether a value lies in blocks of channels already, and the content of constants.
IsBlocked = Callable[[Value], bool]

IMAGE_RANKS = (4, 5)  # The ranks of images [n, c, h, w] and of volumes [n, c, d, h, w].
CONVOLUTIONS = frozenset(("Conv", "ConvTranspose", "WinogradConv"))
FLOATS = frozenset((DType.F32, DType.BF16))
# What an image may consist of. A block of channels is a vector of 32-bit sums of convolutions.
_SUMS = (DType.F32, DType.I32)
ELEMENTS = FLOATS | {DType.F16, DType.I8, DType.U8, DType.I16, DType.I32}
# Windows that slide over each channel by itself, and other operators that keep channels apart.
_CHANNELWISE = frozenset(("MaxPool", "AveragePool", "LpPool", "InstanceNormalization"))


# The operators that move channels to points of an image.
_SPREADS = frozenset(("DepthToSpace", "PhasesToSpace"))

# A halo that makes an image larger than this many times costs more than checks for padding do: that
# of a 3×3 window dilated by 12, for one.
_MAX_GROWTH = 4


class Form(enum.Enum):
    """How a node runs."""

    PLAIN = enum.auto()  # reads and writes row-major tensors
    BLOCKED = enum.auto()  # reads and writes blocked images
    BLOCKED_INPUT = enum.auto()  # reads blocked images and writes what has no blocks
    BLOCKED_OUTPUT = enum.auto()  # writes blocked images and reads its input as it lies


def is_image(value: Value) -> bool:
    """Return whether `value` is a tensor [n, c, h, w] or [n, c, d, h, w] of more than one point and
    of a known number of channels, whose elements have 32 bits at most.

    A single point lies the same way in blocks as without them.
    """
    type = value.type
    if type.rank not in IMAGE_RANKS or type.dtype not in ELEMENTS:
        return False
    return set(type.shape[2:]) != {1} and isinstance(type.shape[1], int)


def form_of(
    node: Node,
    is_blocked: IsBlocked,
    extents: Callable[[Value | None], Shape | None],
    lanes: int,
) -> Form:
    """Return the layouts with which `node` runs best, for the layouts of its inputs. `extents`
    returns the elements of a constant, which may be dims."""
    x = node.inputs[0] if node.inputs else None
    if x is None:
        return Form.PLAIN
    if node.op in CONVOLUTIONS:
        return _convolution(node, x, is_blocked(x), lanes)
    if lookup(node.op).kind is Kind.ELEMENTWISE:
        return _elementwise(node, is_blocked)
    if node.op == "Concat":
        return Form.BLOCKED if _concat(node, is_blocked, lanes) else Form.PLAIN
    if not is_blocked(x):
        return Form.BLOCKED if _is_wide_pool(node, x, lanes) else Form.PLAIN
    if node.op in _CHANNELWISE:
        return Form.BLOCKED
    if node.op.startswith("Global"):
        return Form.BLOCKED_INPUT
    if node.op in _SPREADS and 2 * node.outputs[0].type.shape[1] < lanes:
        return Form.BLOCKED_INPUT
    if node.op.startswith("Reduce"):
        axes = extents(node.inputs[1]) if len(node.inputs) > 1 else None
        rank = x.type.rank
        spatial = axes is not None and {axis % rank for axis in axes} <= set(range(2, rank))
        whole = spatial and axes is not None and len(axes) == rank - 2
        if not spatial:
            return Form.PLAIN
        return Form.BLOCKED if node.attr("keepdims", 1) and not whole else Form.BLOCKED_INPUT
    return Form.BLOCKED if _moves_whole_blocks(node, x, extents, lanes) else Form.PLAIN


def _is_wide_pool(node: Node, x: Value, lanes: int) -> bool:
    """Whether vectors of channels pool so much faster than rows that blocks are worth making."""
    window = math.prod(node.attr("kernel_shape", (1,)))
    wide = is_image(x) and is_image(node.outputs[0]) and len(node.outputs) == 1
    return node.op == "MaxPool" and wide and window > 1 and x.type.shape[1] >= lanes


def _convolution(node: Node, x: Value, blocked: bool, lanes: int) -> Form:
    """Vectors run over output channels and broadcast input elements, so inputs of few channels are
    read as they lie; a depthwise convolution reads vectors too."""
    y, group = node.outputs[0], int(node.attr("group", 1))
    if not (x.type.rank == y.type.rank in IMAGE_RANKS and y.type.dtype in _SUMS):
        return Form.PLAIN
    channels, outputs = x.type.shape[1], y.type.shape[1]
    if not is_image(y):
        return Form.BLOCKED_INPUT if blocked and group == 1 else Form.PLAIN
    if group > 1:
        depthwise = group == channels == outputs and node.op == "Conv"
        if depthwise:
            return Form.BLOCKED if channels >= lanes or blocked else Form.PLAIN
        whole = (outputs // group) % lanes == 0 and (channels // group) % lanes == 0
        return Form.BLOCKED if whole and node.op == "Conv" else Form.PLAIN
    if channels >= lanes:
        return Form.BLOCKED
    if blocked:
        return Form.BLOCKED
    return Form.BLOCKED_OUTPUT if outputs >= lanes // 2 else Form.PLAIN


def _elementwise(node: Node, is_blocked: IsBlocked) -> Form:
    """Blocked where an operand is, and the output keeps that operand's channels."""
    y = node.outputs[0]
    if y.type.rank not in IMAGE_RANKS:
        return Form.PLAIN
    for value in node.inputs:
        if value is None or value.type.rank != y.type.rank:
            continue
        if is_blocked(value) and value.type.shape[1] == y.type.shape[1]:
            return Form.BLOCKED if is_image(y) else Form.BLOCKED_INPUT
    return Form.PLAIN


def _concat(node: Node, is_blocked: IsBlocked, lanes: int) -> bool:
    """Along channels every part but the last must fill its blocks."""
    parts = [value for value in node.inputs if value is not None]
    if not any(map(is_blocked, parts)) or not all(map(is_image, parts)):
        return False
    if node.attr("axis") % node.outputs[0].type.rank != 1:
        return True
    return all(value.type.shape[1] % lanes == 0 for value in parts[:-1])


def _moves_whole_blocks(
    node: Node,
    x: Value,
    extents: Callable[[Value | None], Shape | None],
    lanes: int,
) -> bool:
    """Whether an operator that only moves elements leaves each within its place in a block."""
    if any(not is_image(y) for y in node.outputs):
        return False
    channels = [y.type.shape[1] for y in node.outputs]
    match node.op:
        case "Resize":
            return channels == [x.type.shape[1]]
        case "Pad":
            widths = extents(node.inputs[1])
            given_axes = len(node.inputs) > 3 and node.inputs[3] is not None
            return (
                not given_axes and widths is not None and widths[1] == widths[x.type.rank + 1] == 0
            )
        case "Split":
            axis = node.attr("axis", 0) % x.type.rank
            return axis != 1 or all(count % lanes == 0 for count in channels[:-1])
        case "Slice":
            return _slices_whole_blocks(node, extents, lanes)
        case "PhasesToSpace":
            return channels[0] % lanes == 0
    return False


def _slices_whole_blocks(
    node: Node, extents: Callable[[Value | None], Shape | None], lanes: int
) -> bool:
    inputs = (*node.inputs, None, None)[:5]
    starts, axes, steps = map(extents, (inputs[1], inputs[3], inputs[4]))
    if starts is None:
        return False
    axes = tuple(range(len(starts))) if inputs[3] is None else axes
    steps = (1,) * len(starts) if inputs[4] is None else steps
    if axes is None or steps is None:
        return False
    for start, axis, step in zip(starts, axes, steps, strict=True):
        whole = isinstance(start, int) and start >= 0 and start % lanes == 0 and step == 1
        if axis % node.outputs[0].type.rank == 1 and not whole:
            return False
    return True


def halo_read(node: Node) -> int:
    """Zeros around the image, as many on each side, that spare `node` the checks for its padding; 0
    for an operator that reads no padding, not zeros, or too many of them.

    The same number on all sides, though one might do with less: then images that differ in what
    reads them are written by one kernel.
    """
    x = node.inputs[0] if node.inputs else None
    if x is None or x.type.rank not in IMAGE_RANKS:
        return 0
    attrs, spatial = dict(node.attrs), x.type.shape[2:]
    if node.op == "Conv" and node.inputs[1] is not None:
        window = window_of(attrs, spatial, node.inputs[1].type.shape[2:])
    elif node.op in ("AveragePool", "WinogradConv"):
        window = window_of(attrs, spatial, None)
    else:
        return 0
    outputs = node.outputs[0].type.shape[2:]
    halo = max(_reach(window, axis, spatial[axis], outputs[axis]) for axis in range(len(spatial)))
    around = math.prod(typical(extent) + 2 * halo for extent in spatial)
    return halo if around <= _MAX_GROWTH * math.prod(map(typical, spatial)) else 0


def _reach(window: Window, axis: int, extent: Extent, outputs: Extent) -> int:
    """How far the window slides out of the image whatever its size, at the end where it does so
    more."""
    before = window.before[axis]
    last = (outputs - 1) * window.strides[axis] + window.reach(axis) - 1 - before
    for reach in range(window.reach(axis)):
        if is_less(before, reach + 1) and is_less(last - extent, reach):
            return reach
    return 0
