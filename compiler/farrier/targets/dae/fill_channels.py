"""The pass that lets convolutions with few input channels use whole channel blocks. The points
between which a convolution moves by its stride become channels of one point, and channels of zeros
fill the rest of the block."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.ops import Product, product_of
from farrier.ops.window import Window, window_of
from farrier.passes.rewriting import Rewriter


def fill_channels(graph: Graph, block: int) -> Graph:
    """Let a convolution of bytes with fewer input channels than a block read whole blocks. Its
    image is padded with zero channels, and `stride` × `stride` points become channels of one point
    (SpaceToDepth). The host rearranges the image.

    before:
        @graph
        def g(x: i8[1, 1, 4, 4]):
            w: i8[1, 1, 2, 2] = constant([1, 2, 3, 4])
            y: i32[1, 1, 2, 2] = Conv(x, w, accumulator='i32', strides=(2, 2))
            return y

    after:
        @graph
        def g(x: i8[1, 1, 4, 4]):
            w_filled: i8[1, 4, 1, 1] = constant([1, 2, 3, 4])
            x_phases: i8[1, 4, 2, 2] = SpaceToDepth(x, blocksize=2)
            y: i32[1, 1, 2, 2] = Conv(x_phases, w_filled, accumulator='i32', kernel_shape=(1, 1), pads=(0, 0, 0, 0), strides=(1, 1))
            return y
    """  # noqa: E501
    rewriter = Rewriter(graph)
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        for each in _filled(node, rewriter, block):
            rewriter.emit(each)
    return rewriter.finish()


@dataclasses.dataclass(frozen=True, slots=True)
class _Phases:
    """The rearrangement of a convolution's image: its number of channels after padding, the padding
    before it, and the extents of the image and of the convolution kernel, divided by the stride."""

    channels: int
    stride: int
    before: tuple[int, ...]
    image: tuple[int, ...]
    window: tuple[int, ...]


def _filled(node: Node, rewriter: Rewriter, block: int) -> tuple[Node, ...]:
    """Return the nodes that replace `node`, which are `node` itself if it needs no change."""
    x, w = (*node.inputs, None, None)[:2]
    if x is None or product_of(node) is not Product.CONVOLUTION or x.type.dtype is not DType.I8:
        return (node,)
    weights = rewriter.data(w)
    if weights is None or weights.dtype != np.int8 or len(node.outputs[0].type.shape) != 4:
        return (node,)
    window = window_of(dict(node.attrs), x.type.shape[2:], weights.shape[2:])
    phases = _phases_of(node, x.type, window, block)
    if phases is None:
        return (node,)
    assert w is not None
    padded, image = _padded(x, phases, rewriter)
    filled = rewriter.constant(_filled_weights(weights, phases), f"{w.name}_filled")
    attrs = {name: value for name, value in node.attrs if name != "auto_pad"}
    attrs |= {"pads": (0, 0, 0, 0), "strides": (1, 1), "kernel_shape": phases.window}
    conv = dataclasses.replace(
        node, inputs=(image, filled, *node.inputs[2:]), attrs=attributes(**attrs)
    )
    return (*padded, conv)


def _phases_of(node: Node, x: TensorType, window: Window, block: int) -> _Phases | None:
    """Return the rearrangement for a convolution. Return None if its channels fill blocks already,
    or if its parameters (groups, dilations, different strides, open (dynamic) sizes) are not
    supported."""
    group = dict(node.attrs).get("group", 1)
    stride = window.strides[0]
    before, after = (
        tuple(each for each in pads if isinstance(each, int))
        for pads in (window.before, window.after)
    )
    is_plain = group == 1 and window.dilations == (1, 1) and window.strides == (stride, stride)
    if not is_plain or not x.is_static or len(before) != 2 or len(after) != 2:
        return None
    channels = x.static_shape[1]
    if channels >= block or block % stride**2:
        return None
    whole = next(each for each in range(channels, block + 1) if each * stride**2 % block == 0)
    outputs = node.outputs[0].type.static_shape[2:]
    image = tuple(
        -(-sum(each) // stride) for each in zip(x.static_shape[2:], before, after, strict=True)
    )
    taps = tuple(points - output + 1 for points, output in zip(image, outputs, strict=True))
    return _Phases(whole, stride, before, image, taps)


def _padded(x: Value, phases: _Phases, rewriter: Rewriter) -> tuple[list[Node], Value]:
    """Return the nodes that pad an image with channels and rearrange it as `phases` describes, and
    the value that the last of these nodes computes."""
    nodes: list[Node] = []
    _, channels, *points = x.type.static_shape
    whole = [count * phases.stride for count in phases.image]
    after = [
        each - size - before
        for each, size, before in zip(whole, points, phases.before, strict=True)
    ]
    pads = (0, 0, *phases.before, 0, phases.channels - channels, *after)
    image = x
    if any(pads):
        shape = (1, phases.channels, *whole)
        operands = (
            x,
            rewriter.constant(np.array(pads, np.int64), f"{x.name}_pads"),
            rewriter.constant(np.zeros((), np.int8), f"{x.name}_zero"),
        )
        image = Value(rewriter.fresh(f"{x.name}_padded"), TensorType(DType.I8, shape))
        nodes.append(Node("Pad", operands, (image,)))
    if phases.stride > 1:
        shape = (1, phases.channels * phases.stride**2, *phases.image)
        joined = Value(rewriter.fresh(f"{x.name}_phases"), TensorType(DType.I8, shape))
        attrs = attributes(blocksize=phases.stride)
        nodes.append(Node("SpaceToDepth", (image,), (joined,), attrs))
        image = joined
    return nodes, image


def _filled_weights(weights: npt.NDArray[np.int8], phases: _Phases) -> npt.NDArray[np.int8]:
    """Return the weights for a rearranged image. The weights of the points that become channels of
    one point are adjacent, as they are in the image."""
    outputs, channels, *taps = weights.shape
    stride = phases.stride
    whole = [count * stride for count in phases.window]
    pads = [(0, each - count) for each, count in zip(whole, taps, strict=True)]
    padded = np.pad(weights, [(0, 0), (0, phases.channels - channels), *pads])
    high, wide = phases.window
    parts = padded.reshape(outputs, phases.channels, high, stride, wide, stride)
    return parts.transpose(0, 3, 5, 1, 2, 4).reshape(outputs, -1, high, wide)
