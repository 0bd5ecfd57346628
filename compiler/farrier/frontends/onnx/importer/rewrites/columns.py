"""Rewrite Col2Im and DeformConv to ConvTranspose, GridSample and MatMul."""

from __future__ import annotations

import math

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.known import check_made, constant
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.dim import Extent, number
from farrier.ops import Mismatch


def col2im(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Col2Im, which sums overlapping blocks, to a transposed convolution of each channel
    with constant weights that put each element of a block at its position."""
    n, rows = scope.shape(node.inputs[0])[0], number(scope.shape(node.inputs[0])[1])
    image = [int(v) for v in constant(scope, node.inputs[1], "image_shape")]
    block = [int(v) for v in constant(scope, node.inputs[2], "block_shape")]
    rank, size = len(image), math.prod(block)
    strides = list(node.attrs.get("strides") or [1] * rank)
    dilations = list(node.attrs.get("dilations") or [1] * rank)
    pads = list(node.attrs.get("pads") or [0] * (2 * rank))
    channels = rows // size
    check_made(size, size, channels)
    reach = [d * (b - 1) + 1 for d, b in zip(dilations, block, strict=True)]
    padded = [image[a] + pads[a] + pads[a + rank] for a in range(rank)]
    blocks = [(p - r) // s + 1 for p, r, s in zip(padded, reach, strides, strict=True)]
    spare = [p - r - (b - 1) * s for p, r, b, s in zip(padded, reach, blocks, strides, strict=True)]
    to = scope.constant(ints([n, rows, *blocks]))
    places = np.eye(size).reshape(size, 1, *block).astype(scope.dtype(node.inputs[0]).numpy)
    weights = scope.constant(np.tile(places, (channels, *(1,) * (rank + 1))))
    attrs = {
        "group": channels,
        "strides": tuple(strides),
        "dilations": tuple(dilations),
        "pads": tuple(pads),
        "output_padding": tuple(spare),
    }
    spread = scope.add("Reshape", node.inputs[0], to)
    return [RawNode("ConvTranspose", [spread, weights], node.outputs, attrs, node.origin)]


def deform_conv(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite DeformConv: sample the image at the offset positions, and multiply the samples by the
    weights.

    The samples [n, channels · kernel, points] come from GridSample, once for each offset group,
    with linear interpolation and zeros outside of the image.
    """
    x, weights, offsets = node.inputs[:3]
    n, (channels, *image) = scope.shape(x)[0], map(number, scope.shape(x)[1:])
    filters, each, *kernel = map(number, scope.shape(weights))
    outs, rank = tuple(map(number, scope.shape(offsets)[2:])), len(kernel)
    groups, sets = node.attrs.get("group", 1), node.attrs.get("offset_group", 1)
    taps, points = math.prod(kernel), math.prod(outs)
    if len(image) != rank or channels % sets or each * groups != channels:
        raise Mismatch(f"an image of {channels} channels, weights of {each} in {groups} groups")
    check_made(taps, points, rank)
    dtype = scope.dtype(x).numpy
    strides = node.attrs.get("strides") or [1] * rank
    dilations = node.attrs.get("dilations") or [1] * rank
    pads = node.attrs.get("pads") or [0] * (2 * rank)

    def reshaped(value: str, *shape: Extent) -> str:
        return scope.add("Reshape", value, shape)

    # Where each tap of each point lies without offsets, in elements: [taps, rank, points].
    steps = np.stack(np.meshgrid(*map(np.arange, kernel), indexing="ij"), -1).reshape(taps, rank)
    starts = np.stack(np.meshgrid(*map(np.arange, outs), indexing="ij"), -1).reshape(points, rank)
    regular = (steps * dilations)[:, None] + (starts * strides)[None] - np.array(pads[:rank])
    # GridSample wants […, points, rank] in [−1, 1], the last axis of the image first.
    apart = reshaped(offsets, n * sets, taps, rank, points)
    turned = scope.add("Transpose", apart, perm=(0, 1, 3, 2))
    moved = scope.add("Add", turned, scope.constant(regular[None].astype(dtype)))
    extent = np.array(image)
    scaled = scope.add("Mul", moved, scope.constant((2 / extent).astype(dtype)))
    grid = scope.add("Add", scaled, scope.constant((1 / extent - 1).astype(dtype)))
    order = scope.constant(ints(range(rank - 1, -1, -1)))
    grid = scope.add("Gather", grid, order, axis=3)
    grid = reshaped(grid, n * sets, taps * points, *(1,) * (rank - 1), rank)
    images = reshaped(x, n * sets, channels // sets, *image)
    columns = scope.add("GridSample", images, grid)  # [n · sets, channels, taps · points, 1, …]
    if node.input(4):
        mask = reshaped(node.inputs[4], n * sets, 1, taps * points, *(1,) * (rank - 1))
        columns = scope.add("Mul", columns, mask)
    columns = reshaped(columns, n, groups, each * taps, points)
    matrix = reshaped(weights, groups, filters // groups, each * taps)
    result = reshaped(scope.add("MatMul", matrix, columns), n, filters, *outs)
    if node.input(3):
        bias = reshaped(node.inputs[3], filters, *(1,) * rank)
        return [RawNode("Add", [result, bias], node.outputs, {}, node.origin)]
    return [RawNode("Identity", [result], node.outputs, {}, node.origin)]
