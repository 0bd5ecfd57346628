"""Rules of sums and products of quantized tensors."""

from __future__ import annotations

import functools

import numpy as np

from farrier.frontends.builder import Builder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.ops.quantized.scales import (
    Target,
    centred,
    quantized,
    requantized,
)
from farrier.ops import NotSupported

_SUM_SHIFT = 20  # Places by which TFLite shifts bytes to the left before it adds them.


def _sum(call: Call, b: Builder, *, op: str) -> str:
    """Convert ADD and SUB: both operands are converted to fixed point with the unit 2 · (greater
    scale) / 2²⁰, added, and the sum is converted to the result's scale."""
    _check_bytes(call, b)
    x, y, result = (quantized(t) for t in (call.tensor(0), call.tensor(1), call.outputs[0]))
    greatest = 2 * max(x.real, y.real)
    terms = [
        _scaled(b, call.value(place), each.zero, each.real / greatest)
        for place, each in enumerate((x, y))
    ]
    target = Target.of(call.outputs[0], call.option("activation"))
    real = greatest / ((1 << _SUM_SHIFT) * result.real)
    return requantized(b, b.add(op, *terms), [real], target)


def _scaled(b: Builder, x: str, zero: int, real: float) -> str:
    shift = b.constant(np.array(_SUM_SHIFT, np.int32))
    shifted = b.add("BitShift", centred(b, x, zero), shift, direction="LEFT")
    return requantized(b, shifted, [real], Target.word())


def _product(call: Call, b: Builder) -> str:
    """Convert MUL of quantized tensors."""
    _check_bytes(call, b)
    x, y, result = (quantized(t) for t in (call.tensor(0), call.tensor(1), call.outputs[0]))
    product = b.add("Mul", centred(b, call.value(0), x.zero), centred(b, call.value(1), y.zero))
    target = Target.of(call.outputs[0], call.option("activation"))
    return requantized(b, product, [x.real * y.real / result.real], target)


def _check_bytes(call: Call, b: Builder) -> None:
    if any(b.dtype(value).bits != 8 for value in call.values()):
        raise NotSupported(f"{call.op} of quantized integers of 16 bits")


RULES: dict[str, Rule] = {
    "ADD": functools.partial(_sum, op="Add"),
    "MUL": _product,
    "SUB": functools.partial(_sum, op="Sub"),
}
