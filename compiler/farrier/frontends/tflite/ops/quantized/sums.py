"""Rules of convolutions and matrix products of quantized tensors: integer sums of products,
requantized."""

from __future__ import annotations

from typing import Any

import numpy as np

from farrier.frontends.builder.images import ImageBuilder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.ops.products import rows
from farrier.frontends.tflite.ops.quantized.scales import Target, quantized, requantized
from farrier.frontends.tflite.ops.windows import window
from farrier.frontends.tflite.schema import Array, Tensor
from farrier.ir.types import DType
from farrier.ops import Mismatch, NotSupported
from farrier.ops.fixed_point import ONCE, TWICE
from farrier.ops.window import window_of


def _convolution(call: Call, b: ImageBuilder) -> str:
    """Convert CONV_2D, with weights [outputs, height, width, inputs of a group]."""
    weights = _weights(call, b)
    channels, inner = b.shape(call.value(0))[-1], weights.shape[-1]
    if not isinstance(channels, int) or not inner or channels % inner:
        raise Mismatch(f"its {channels} channels are no multiple of the {inner} of its weights")
    return _convolved(call, b, np.moveaxis(weights, -1, 1), channels // inner)


def _depthwise(call: Call, b: ImageBuilder) -> str:
    """Convert DEPTHWISE_CONV_2D, with weights [1, height, width, channels · multiplier]."""
    weights, channels = _weights(call, b), b.shape(call.value(0))[-1]
    if not isinstance(channels, int) or not channels or weights.shape[-1] % channels:
        raise Mismatch(
            f"its {weights.shape[-1]} outputs are no multiple of the {channels} channels"
        )
    return _convolved(call, b, np.moveaxis(weights, -1, 0), channels)


def _convolved(call: Call, b: ImageBuilder, weights: Array, groups: int) -> str:
    """Convolve an image with weights [outputs, inputs of a group, height, width]. The image is
    padded with its zero point, whose contribution to each sum is subtracted from the bias."""
    image, zero = b.channels_first(call.value(0)), quantized(call.tensor(0)).zero
    attrs: dict[str, Any] = {**window(call, "h", "w"), "group": groups}
    if zero:
        shape = window_of(attrs, b.shape(image)[2:], weights.shape[2:])
        pads = (0, 0, *shape.before, 0, 0, *shape.after)
        if any(pad != 0 for pad in pads):
            image = b.add(
                "Pad", image, list(pads), b.constant(np.array(zero, b.dtype(image).numpy))
            )
        del attrs["auto_pad"]
    bias = _bias(call, b, weights.sum(axis=(1, 2, 3), dtype=np.int64), zero)
    operands = [b.constant(np.ascontiguousarray(weights)), b.constant(bias)]
    sums = b.add("Conv", image, *operands, accumulator="i32", **attrs)
    return b.channels_last(_requantized(call, b, sums, (-1, 1, 1), TWICE))


def _product(call: Call, b: ImageBuilder) -> str:
    """Convert FULLY_CONNECTED, with weights [outputs, inputs]. Sums are rounded once, as in
    LiteRT's optimized kernels and its reference kernels."""
    weights, zero = _weights(call, b), quantized(call.tensor(0)).zero
    matrix = b.constant(np.ascontiguousarray(weights.T))
    sums = b.add("MatMul", rows(call, b, call.value(0)), matrix, accumulator="i32")
    bias = _bias(call, b, weights.sum(axis=1, dtype=np.int64), zero)
    if bias.any():
        sums = b.add("Add", sums, b.constant(bias))
    return _requantized(call, b, sums, (-1,), ONCE)


def _requantized(
    call: Call, b: ImageBuilder, sums: str, shape: tuple[int, ...], rounding: str
) -> str:
    """Return the sums requantized to the result's scale, by the factor (scale of x) · (scale of w)
    / (scale of y), computed in f64."""
    x, y = quantized(call.tensor(0)), quantized(call.outputs[0])
    w = call.tensor(1).quantization
    assert w is not None
    reals = x.real * w.scale.astype(np.float64) / y.real
    target = Target.of(call.outputs[0], call.option("activation"))
    return requantized(b, sums, reals.tolist(), target, shape, rounding)


def _weights(call: Call, b: ImageBuilder) -> Array:
    """Return the weights minus their zero points, in i8. Raises NotSupported for weights that are
    not constant, and for activations that are not bytes."""
    tensor = call.tensor(1)
    if b.dtype(call.value(0)) not in (DType.I8, DType.U8):
        raise NotSupported(f"{call.op} of {b.dtype(call.value(0))} activations")
    weights, zero = call.data(1), _zeros(tensor)
    if not zero.any():
        return _signed(weights.astype(np.int16))
    return _signed(weights.astype(np.int16) - zero.astype(np.int16))


def _signed(weights: Array) -> Array:
    low, high = DType.I8.limits
    if weights.size and (weights.min() < low or weights.max() > high):
        raise NotSupported("weights that need nine bits without their zero point")
    return np.asarray(weights.astype(np.int8))


def _zeros(tensor: Tensor) -> Array:
    """Return the zero points of weights, shaped to broadcast against the weights."""
    quantization = tensor.quantization
    if quantization is None:
        raise Mismatch(f"the weights {tensor.label!r} of integers have no scale")
    if not quantization.is_per_axis:
        return quantization.zero_point.reshape(())
    shape = [-1 if axis == quantization.axis else 1 for axis in range(len(tensor.shape))]
    return quantization.zero_point.reshape(shape)


def _bias(call: Call, b: ImageBuilder, totals: Array, zero: int) -> Array:
    """Return the bias minus the contribution of the zero point of x to each sum, with i32 overflow
    as in the sums."""
    bias = call.data(2) if call.has(2) else np.zeros(totals.shape, np.int32)
    if bias.dtype not in (np.int32, np.int64):
        raise Mismatch(f"its bias is {bias.dtype}, and must be integers")
    if bias.shape != totals.shape:
        raise Mismatch(f"a bias of shape {bias.shape} for {totals.shape[0]} outputs")
    return np.asarray((bias.astype(np.int64) - zero * totals).astype(np.int32))


RULES: dict[str, Rule] = {
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _product,
}
