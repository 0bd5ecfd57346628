"""Rules of convolutions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from farrier.frontends.builder.images import ImageBuilder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.ops.activations import activated
from farrier.frontends.tflite.ops.hybrid import (
    has_scales_by_output,
    is_hybrid,
    quantized_activations,
    scaled_sums,
    signed_weights,
)
from farrier.frontends.tflite.ops.windows import sizes, window
from farrier.ir.dim import Extent
from farrier.ops import Mismatch, NotSupported


def _convolution(call: Call, b: ImageBuilder) -> str:
    """Convert CONV_2D, with weights [outputs, height, width, inputs of a group]."""
    x, weights = call.value(0), call.value(1)
    return _convolved(call, b, x, b.channels_first(weights), _groups(b, x, weights), ("h", "w"))


def _convolution_3d(call: Call, b: ImageBuilder) -> str:
    """Convert CONV_3D, with weights [depth, height, width, inputs, outputs]."""
    weights = b.add("Transpose", call.value(1), perm=(4, 3, 0, 1, 2))
    return _convolved(call, b, call.value(0), weights, 1, ("d", "h", "w"))


def _depthwise(call: Call, b: ImageBuilder) -> str:
    """Convert DEPTHWISE_CONV_2D, with weights [1, height, width, channels · multiplier]."""
    x, weights = call.value(0), call.value(1)
    channels, outputs = b.shape(x)[-1], b.shape(weights)[-1]
    if not (isinstance(channels, int) and isinstance(outputs, int)) or outputs % channels:
        raise Mismatch(f"its {outputs} outputs are no multiple of the {channels} channels")
    by_channel = b.add("Transpose", weights, perm=(3, 0, 1, 2))
    return _convolved(call, b, x, by_channel, channels, ("h", "w"))


def _convolved(
    call: Call, b: ImageBuilder, x: str, weights: str, groups: int, axes: tuple[str, ...]
) -> str:
    attrs = {**window(call, *axes), "group": groups}
    if is_hybrid(call):
        result = _hybrid(call, b, b.channels_first(x), weights, attrs)
    else:
        bias = [call.value(2)] if call.has(2) else []
        result = b.add("Conv", b.channels_first(x), weights, *bias, **attrs)
    return b.channels_last(activated(b, result, call.option("activation")))


def _hybrid(call: Call, b: ImageBuilder, image: str, weights: str, attrs: Mapping[str, Any]) -> str:
    """Convert a convolution of floats with i8 weights: quantize the image at run time, and convolve
    integers. If the image has zero points, they are subtracted before padding: padding with the
    zero point itself is not possible, because it differs from image to image."""
    signed_weights(call)
    data = b.data(weights)
    if data is None:
        raise NotSupported("weights of bytes that are computed when the model runs")
    is_asymmetric = call.op == "DEPTHWISE_CONV_2D" or has_scales_by_output(call)
    activations = quantized_activations(call, b, image, is_asymmetric=is_asymmetric)
    operand, totals = activations.bytes, data.sum(axis=tuple(range(1, data.ndim)), dtype=np.int64)
    if activations.zero:
        # The padding is a number for each image, which Pad cannot insert: 16 bits hold differences.
        wide = b.add("Cast", operand, to="i16")
        operand = b.add("Sub", wide, b.add("Cast", activations.zero, to="i16"))
        weights = b.constant(data.astype(np.int16))
        activations = dataclasses.replace(activations, zero="")
    sums = b.add("Conv", operand, weights, accumulator="i32", **attrs)
    result = scaled_sums(call, b, sums, activations, totals, (-1, 1, 1))
    if not call.has(2):
        return result
    bias = b.add("Reshape", call.value(2), [-1, 1, 1])
    return b.add("Add", result, bias)


def _groups(b: ImageBuilder, x: str, weights: str) -> int:
    channels, inner = b.shape(x)[-1], b.shape(weights)[-1]
    if not (isinstance(channels, int) and isinstance(inner, int)) or not inner or channels % inner:
        raise Mismatch(f"its {channels} channels are no multiple of the {inner} of its weights")
    return channels // inner


def _transposed(call: Call, b: ImageBuilder) -> str:
    """Convert TRANSPOSE_CONV. Its operands are the output's shape, weights [outputs, height, width,
    inputs], the input, and in newer files a bias."""
    shape, weights, x = call.ints(0), call.value(1), call.value(2)
    strides = sizes(call, "stride", ("h", "w"))
    kernel, extents = b.shape(weights)[1:3], b.shape(x)[1:3]
    pads = [
        _cut(extent, size, stride, target)
        for extent, size, stride, target in zip(extents, kernel, strides, shape[1:3], strict=True)
    ]
    by_input = b.add("Transpose", weights, perm=(3, 0, 1, 2))
    bias = [call.value(3)] if call.has(3) else []
    before, after, more = zip(*pads, strict=True)
    result = b.add(
        "ConvTranspose",
        b.channels_first(x),
        by_input,
        *bias,
        strides=strides,
        pads=(*before, *after),
        output_padding=more,
    )
    return b.channels_last(activated(b, result, call.option("activation")))


def _cut(extent: Extent, kernel: Extent, stride: int, target: int) -> tuple[int, int, int]:
    """Return three numbers of elements by which the result of a transposed convolution, of length
    (extent − 1) · stride + kernel, is changed to the length `target`: to remove before, to remove
    after, and to append after."""
    if not (isinstance(extent, int) and isinstance(kernel, int)):
        raise Mismatch("its sizes are open, and must be numbers")
    surplus = (extent - 1) * stride + kernel - target
    before = max(surplus, 0) // 2
    return before, max(surplus, 0) - before, max(-surplus, 0)


RULES: dict[str, Rule] = {
    "CONV_2D": _convolution,
    "CONV_3D": _convolution_3d,
    "DEPTHWISE_CONV_2D": _depthwise,
    "TRANSPOSE_CONV": _transposed,
}
