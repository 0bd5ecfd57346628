"""Rules of conversions to quantized tensors, from them, and between scales."""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder import Builder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.ops import quantization as plain
from farrier.frontends.tflite.ops.quantized import tables
from farrier.frontends.tflite.ops.quantized.scales import Target, centred, quantized, requantized
from farrier.frontends.tflite.ops.rounding import rounded_away
from farrier.frontends.tflite.schema import INT8, UINT8


def _quantize(call: Call, b: Builder) -> str:
    """Convert QUANTIZE, from floats or from integers of another scale."""
    x, source = call.value(0), call.tensor(0)
    if b.dtype(x).is_float:
        return _from_floats(call, b, x)
    if source.type in (INT8, UINT8) and call.outputs[0].type in (INT8, UINT8):
        return tables.requantized_bytes(call, b)
    real = quantized(source).real / quantized(call.outputs[0]).real
    sums = centred(b, x, quantized(source).zero)
    return requantized(b, sums, [real], Target.of(call.outputs[0]))


def _from_floats(call: Call, b: Builder, x: str) -> str:
    """Compute x / scale + zero point with halves rounded away from zero; QuantizeLinear would round
    them to even."""
    target, scale = Target.of(call.outputs[0]), quantized(call.outputs[0]).scale[0]
    ratio = b.add("Div", x, b.constant(np.array(scale, np.float32)))
    whole = rounded_away(b, ratio)
    zero, low, high = (
        b.constant(np.array(value, np.float32)) for value in (target.zero, target.low, target.high)
    )
    return b.add("Cast", b.add("Clip", b.add("Add", whole, zero), low, high), to=str(target.dtype))


RULES: dict[str, Rule] = {"DEQUANTIZE": plain.RULES["DEQUANTIZE"], "QUANTIZE": _quantize}
