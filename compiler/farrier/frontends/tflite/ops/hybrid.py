"""Products of floats with i8 weights, for which activations are quantized at run time.

As in TFLite's kernels, each image or row gets its own scale, without a zero point if the weights
have a single scale, and with one if they have a scale per channel. Sums of integer products are
exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from farrier.frontends.builder import Builder
from farrier.frontends.tflite.call import Call
from farrier.frontends.tflite.ops.rounding import rounded_away
from farrier.frontends.tflite.schema import DTYPES, Array
from farrier.ir.types import DType
from farrier.ops import Mismatch

_LEAST, _MOST = DType.I8.limits


@dataclasses.dataclass(frozen=True, slots=True)
class Quantized:
    """Activations that were quantized to i8 at run time. `scale` has a scale for each entry of the
    first axis, and so does `zero` for the zero points; it is "" if all zero points are 0."""

    bytes: str
    scale: str
    zero: str = ""


def is_hybrid(call: Call) -> bool:
    """Check whether an operator on floats has i8 weights."""
    x, weights = call.tensor(0), call.tensor(1)
    return DTYPES[x.type].is_float and weights.is_quantized and DTYPES[weights.type] is DType.I8


def has_scales_by_output(call: Call) -> bool:
    """Check whether the weights have a scale for each output channel."""
    quantization = call.tensor(1).quantization
    return quantization is not None and quantization.is_per_axis


def quantized_activations(call: Call, b: Builder, x: str, *, is_asymmetric: bool) -> Quantized:
    """Quantize floats to i8, with a separate range for each entry of the first axis."""
    axes = list(range(1, len(b.shape(x))))
    return _asymmetric(b, x, axes) if is_asymmetric else _symmetric(b, x, axes)


def _symmetric(b: Builder, x: str, axes: Sequence[int]) -> Quantized:
    """Quantize to −127 … 127 without a zero point; an all-zero range has scale 1."""
    span = b.add("ReduceMax", b.add("Abs", x), list(axes), keepdims=1)
    most, zero, unit = (_number(b, value) for value in (_MOST, 0.0, 1.0))
    is_empty = b.add("Equal", span, zero)
    span = b.add("Where", is_empty, most, span)
    whole = rounded_away(b, b.add("Mul", x, b.add("Div", most, span)))
    clamped = b.add("Clip", whole, _number(b, -_MOST), most)
    scale = b.add("Where", is_empty, unit, b.add("Div", span, most))
    return Quantized(b.add("Cast", clamped, to="i8"), scale)


def _asymmetric(b: Builder, x: str, axes: Sequence[int]) -> Quantized:
    """Quantize the range of x, extended to include zero, to −128 … 127. The zero point is computed
    in f64 from the end of the range at which the error is smaller."""
    none, unit = _wide(b, 0.0), _wide(b, 1.0)
    least, most = (_wide(b, float(bound)) for bound in (_LEAST, _MOST))
    low = b.add("Min", _as_wide(b, b.add("ReduceMin", x, list(axes), keepdims=1)), none)
    high = b.add("Max", _as_wide(b, b.add("ReduceMax", x, list(axes), keepdims=1)), none)
    is_empty = b.add("Equal", low, high)
    scale = b.add("Div", b.add("Sub", high, low), _wide(b, float(_MOST - _LEAST)))
    scale = b.add("Where", is_empty, unit, scale)
    from_low, from_high = b.add("Div", low, scale), b.add("Div", high, scale)
    is_low = b.add(
        "Less",
        b.add("Add", _wide(b, float(-_LEAST)), b.add("Abs", from_low)),
        b.add("Add", most, b.add("Abs", from_high)),
    )
    zero = b.add("Where", is_low, b.add("Sub", least, from_low), b.add("Sub", most, from_high))
    zero = b.add("Clip", rounded_away(b, zero), least, most)
    zero = b.add("Where", is_empty, none, zero)
    narrow, offset = (b.add("Cast", name, to="f32") for name in (scale, zero))
    inverse = b.add("Div", _number(b, 1.0), narrow)
    whole = rounded_away(b, b.add("Add", offset, b.add("Mul", x, inverse)))
    clamped = b.add("Clip", whole, _number(b, _LEAST), _number(b, _MOST))
    return Quantized(b.add("Cast", clamped, to="i8"), narrow, b.add("Cast", zero, to="i32"))


def signed_weights(call: Call) -> Array:
    """Return constant weights in i8. Raises Mismatch if they have zero points."""
    quantization = call.tensor(1).quantization
    assert quantization is not None
    if quantization.zero_point.any():
        raise Mismatch("its weights of bytes have a zero point")
    return call.data(1)


def scaled_sums(
    call: Call, b: Builder, sums: str, activations: Quantized, totals: Array, shape: Sequence[int]
) -> str:
    """Return the integer `sums` of products, converted to floats by the scales of `activations` and
    of the weights.

    `totals` are the sums of the weights for each output; multiplied by the zero points of the
    activations, they are subtracted first. A vector over outputs is reshaped to `shape` to
    broadcast against the sums.
    """
    quantization = call.tensor(1).quantization
    assert quantization is not None
    if activations.zero:
        share = b.constant(totals.astype(np.int32).reshape(shape))
        sums = b.add("Sub", sums, b.add("Mul", activations.zero, share))
    wide = b.add("Cast", sums, to="f32")
    scales = quantization.scale.astype(np.float32)
    if scales.size == 1:
        factor = b.add("Mul", activations.scale, b.constant(scales.reshape(())))
        return b.add("Mul", wide, factor)
    by_output = b.add("Mul", wide, b.constant(scales.reshape(shape)))
    return b.add("Mul", by_output, activations.scale)


def _number(b: Builder, value: float) -> str:
    return b.constant(np.array(value, np.float32))


def _wide(b: Builder, value: float) -> str:
    return b.constant(np.array(value, np.float64))


def _as_wide(b: Builder, x: str) -> str:
    return b.add("Cast", x, to="f64")
