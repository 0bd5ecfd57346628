"""Rules of pools of quantized tensors, which do not change the scale."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from farrier.frontends.builder.images import ImageBuilder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.ops.pooling import kernel
from farrier.frontends.tflite.ops.quantized.scales import Target
from farrier.frontends.tflite.ops.windows import window
from farrier.frontends.tflite.schema import Array
from farrier.ir.dim import number
from farrier.ops import NotSupported
from farrier.ops.window import Window, window_of


def _max(call: Call, b: ImageBuilder) -> str:
    target = Target.of(call.outputs[0], call.option("activation"))
    attrs = window(call, "h", "w")
    image = b.channels_first(call.value(0))
    result = b.add("MaxPool", image, kernel_shape=kernel(call), **attrs)
    return b.channels_last(bounded(b, result, target))


def bounded(b: ImageBuilder, x: str, target: Target) -> str:
    """Clamp integers to the bounds of the quantized result `target`."""
    if (target.low, target.high) == target.dtype.limits:
        return x
    bounds = [np.array(bound, b.dtype(x).numpy) for bound in (target.low, target.high)]
    return b.add("Clip", x, *map(b.constant, bounds))


def _average(call: Call, b: ImageBuilder) -> str:
    """Convert AVERAGE_POOL_2D: the sum of the integers in a window without padding, divided by
    their number, with halves rounded away from zero. Zero points need not be subtracted."""
    target = Target.of(call.outputs[0], call.option("activation"))
    image, size = b.channels_first(call.value(0)), kernel(call)
    channels, *extents = (extent for extent in b.shape(image)[1:] if isinstance(extent, int))
    if len(extents) != len(size):
        raise NotSupported("a quantized average of an image whose size is open")
    attrs = window(call, "h", "w")
    covered = window_of(attrs, tuple(extents), size)
    if list(size) == extents and not any(covered.before + covered.after):
        total = b.add("ReduceSum", b.add("Cast", image, to="i32"), [2, 3], keepdims=1)
    else:
        ones = b.constant(np.ones((channels, 1, *size), np.int8))
        total = b.add("Conv", image, ones, accumulator="i32", group=channels, **attrs)
    return b.channels_last(_divided(b, total, _counts(covered, extents), target))


def _divided(b: ImageBuilder, total: str, counts: Array, target: Target) -> str:
    zero, half = (b.constant(value) for value in (np.zeros((), np.int32), np.asarray(counts // 2)))
    nudge = b.add("Where", b.add("Greater", total, zero), half, b.add("Neg", half))
    mean = b.add("Div", b.add("Add", total, nudge), b.constant(counts))
    low, high = (b.constant(np.array(v, np.int32)) for v in (target.low, target.high))
    return b.add("Cast", b.add("Clip", mean, low, high), to=str(target.dtype))


def _counts(covered: Window, extents: Sequence[int]) -> Array:
    """Return the number of elements inside the image that each window covers, i32 [height, width];
    a scalar if all numbers are equal."""
    lines = []
    for axis, extent in enumerate(extents):
        before = number(covered.before[axis])
        starts = np.arange(covered.outputs(tuple(extents))[axis]) * covered.strides[axis] - before
        ends = np.minimum(starts + covered.kernel[axis], extent)
        lines.append(ends - np.maximum(starts, 0))
    counts = np.outer(*lines).astype(np.int32)
    return counts.reshape(-1)[:1].reshape(()) if (counts == counts[0, 0]).all() else counts


def check_same_scale(call: Call) -> None:
    """Raise NotSupported if the tensors of an operator that only moves or compares integers have
    different scales."""
    tensors = [t for t in (*call.inputs, *call.outputs) if t is not None and t.is_quantized]
    tensors = [t for t in tensors if t.type != 2]
    for left, right in itertools.pairwise(tensors):
        a, c = left.quantization, right.quantization
        assert a is not None
        assert c is not None
        if not (np.array_equal(a.scale, c.scale) and np.array_equal(a.zero_point, c.zero_point)):
            raise NotSupported(f"{call.op} of tensors with several scales")


RULES: dict[str, Rule] = {"AVERAGE_POOL_2D": _average, "MAX_POOL_2D": _max}
