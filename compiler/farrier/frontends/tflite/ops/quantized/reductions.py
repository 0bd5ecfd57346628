"""Rules of means, bilinear resizing and PRELU of quantized tensors."""

from __future__ import annotations

import math

import numpy as np

from farrier.frontends.builder.images import ImageBuilder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.ops.quantized.scales import (
    Factor,
    Target,
    centred,
    multiplied,
    quantized,
    requantized,
)
from farrier.frontends.tflite.schema import Array
from farrier.ir.dim import number
from farrier.ir.types import DType
from farrier.ops import Mismatch, NotSupported
from farrier.ops.operator import normal_axis

_FRACTION = 10  # Weights of a resized image have this many fraction bits.


def _mean(call: Call, b: ImageBuilder) -> str:
    """Convert MEAN: a sum in 32 bits, multiplied by a factor that includes 1 / count."""
    x, source, target = call.value(0), quantized(call.tensor(0)), quantized(call.outputs[0])
    rank = len(b.shape(x))
    axes = sorted({normal_axis(axis, rank) for axis in call.ints(1)})
    extents = [b.shape(x)[axis] for axis in axes]
    if not all(isinstance(extent, int) for extent in extents):
        raise NotSupported("a quantized mean along an axis whose length is open")
    count = math.prod(number(extent) for extent in extents)
    if not count:
        raise Mismatch("it takes the mean of no elements")
    wide = centred(b, x, source.zero)
    total = b.add("ReduceSum", wide, axes, keepdims=int(call.option("keep_dims"))) if axes else wide
    factor = Factor.of(source.real / target.real).divided(count)
    return multiplied(b, total, [factor], Target.of(call.outputs[0]))


def _bilinear(call: Call, b: ImageBuilder) -> str:
    """Convert RESIZE_BILINEAR: a product with integer weights, which does not change the scale. The
    sum has 20 fraction bits, and halves are rounded away from zero."""
    height, width = call.ints(1)
    if call.option("align_corners"):
        raise NotSupported("a quantized image that is resized with aligned corners")
    image = b.channels_first(call.value(0))
    extents = [number(extent) for extent in b.shape(image)[2:]]
    is_half = bool(call.option("half_pixel"))
    rows, columns = (
        _weights(extent, size, is_half)
        for extent, size in zip(extents, (height, width), strict=True)
    )
    wide = b.add("Cast", image, to="i32")
    across = b.add("MatMul", wide, b.constant(np.ascontiguousarray(columns.T)), accumulator="i32")
    total = b.add("MatMul", b.constant(rows), across, accumulator="i32")
    places = b.constant(np.array(2 * _FRACTION, np.int32))
    rounded = b.add("RoundedShift", total, places)
    return b.channels_last(b.add("Cast", rounded, to=str(b.dtype(image))))


def _weights(extent: int, size: int, is_half: bool) -> Array:
    """Return the weights [size, extent] of bilinear resizing along an axis: `size` results from
    `extent` elements, as integers with 10 fraction bits. `is_half` selects half-pixel centres."""
    unit = 1 << _FRACTION
    step = (unit * extent + size // 2) // size
    positions = np.arange(size) * step + (step // 2 - unit // 2 if is_half else 0)
    low = np.maximum(positions >> _FRACTION, 0)
    high = np.clip((positions + unit - 1) >> _FRACTION, 0, extent - 1)
    share = positions - low * unit
    weights = np.zeros((size, extent), np.int32)
    np.add.at(weights, (np.arange(size), low), unit - share)
    np.add.at(weights, (np.arange(size), high), share)
    return weights


def _prelu(call: Call, b: ImageBuilder) -> str:
    """Convert PRELU, whose result is x or x · slope. Each of the two is requantized to the result's
    scale by a factor of its own."""
    if any(b.dtype(value).bits != DType.I8.bits for value in call.values()):
        raise NotSupported("PRELU of quantized integers of 16 bits")
    x, slope = quantized(call.tensor(0)), quantized(call.tensor(1))
    result, target = quantized(call.outputs[0]), Target.of(call.outputs[0])
    wide = centred(b, call.value(0), x.zero)
    product = b.add("Mul", wide, centred(b, call.value(1), slope.zero))
    above = requantized(b, wide, [x.real / result.real], target)
    below = requantized(b, product, [x.real * slope.real / result.real], target)
    zero = b.constant(np.array(0, np.int32))
    return b.add("Where", b.add("GreaterOrEqual", wide, zero), above, below)


RULES: dict[str, Rule] = {"MEAN": _mean, "PRELU": _prelu, "RESIZE_BILINEAR": _bilinear}
