"""HARD_SWISH of bytes, in the 16-bit fixed-point arithmetic of TFLite's reference kernel."""

from __future__ import annotations

import numpy as np

from farrier.frontends.tflite.ops.quantized.scales import Factor
from farrier.frontends.tflite.schema import Array

_INPUT_BITS = 7  # The input is shifted left by this, which fits in 16 bits.
_HALF = 1 << 15
_LEAST, _MOST = -_HALF, _HALF - 1


def hard_swish(integers: Array, scale: np.float32, result: np.float32) -> Array:
    """Return x · min(max(x + 3, 0), 6) / 6 as integers of scale `result` without their zero point.
    `integers` are x without the zero point, with scale `scale`."""
    fine = np.float32(1 / 128) * scale
    output, gate = (
        Factor.of(float(np.float64(np.float32(ratio))))
        for ratio in (fine / result, fine / np.float32(3 / 32768))
    )
    wide = integers << _INPUT_BITS
    numerator = _rounded_high(wide, _halved(output))
    reluish = wide
    if gate.shift > 0:
        reluish = _saturated(reluish << gate.shift - 1)
    reluish = _rounded_high(reluish, _halved(gate))
    if gate.shift > 0:
        reluish = _saturated(reluish << 1)
    if gate.shift < 0:
        reluish = _shifted(reluish, -gate.shift)
    share = (reluish + _HALF) >> 1  # It is in [0, 1], with 15 fraction bits.
    product = share * numerator
    high = np.sign(product) * (np.abs(product) >> 15)
    return _shifted(high, max(-output.shift, 0))


def _halved(factor: Factor) -> int:
    """Return the multiplier of a factor, which has 31 bits, rounded to the upper 16 bits."""
    return min((factor.multiplier + _HALF) >> 16, _MOST)


def _rounded_high(x: Array, multiplier: int) -> Array:
    """Return floor((x · multiplier + 2¹⁴) / 2¹⁵), saturated to 16 bits."""
    return _saturated((x * multiplier + (1 << 14)) >> 15)


def _shifted(x: Array, places: int) -> Array:
    """Return x / 2^places with halves rounded away from zero."""
    half = (1 << places) >> 1
    return np.asarray(np.sign(x) * ((np.abs(x) + half) >> places))


def _saturated(x: Array) -> Array:
    return np.clip(x, _LEAST, _MOST)
