"""Scales as fixed-point factors, and the requantization of integer sums.

The formulas are those of TFLite's quantization specification and reference kernels: a real factor
becomes a multiplier of 31 bits and a shift, which the operator `Requantize` applies.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from farrier.frontends.builder import Builder
from farrier.frontends.tflite.ops.activations import RANGES
from farrier.frontends.tflite.schema import DTYPES, Quantization, Tensor
from farrier.ir.types import DType
from farrier.ops import Mismatch, NotSupported
from farrier.ops.fixed_point import TWICE

_BITS = 31  # The bits of a multiplier, the highest of which is set.
_LEAST_SHIFT = -31  # A further shift makes any 32-bit number 0.


@dataclasses.dataclass(frozen=True, slots=True)
class Factor:
    """A real factor in fixed point: multiplier · 2^(shift − 31)."""

    multiplier: int
    shift: int

    @classmethod
    def of(cls, real: float) -> Factor:
        """Return the nearest factor to a real number; halves are rounded away from zero."""
        if real == 0:
            return cls(0, 0)
        fraction, shift = math.frexp(real)
        multiplier = math.floor(abs(fraction) * (1 << _BITS) + 0.5)
        if multiplier == 1 << _BITS:
            multiplier, shift = multiplier // 2, shift + 1
        if shift < _LEAST_SHIFT:
            return cls(0, 0)
        return cls(multiplier if real > 0 else -multiplier, shift)

    def divided(self, count: int) -> Factor:
        """Return this factor divided by `count`, for a mean. As in TFLite, the multiplier is first
        shifted to the left by the number of bits of `count`, so that the division loses no
        precision, but only so far that the factor's shift to the right stays below 32."""
        places = min(count.bit_length() - 1, 32, 31 + self.shift)
        return Factor((self.multiplier << places) // count, self.shift - places)


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """The properties of a quantized result: its dtype, its zero point, and the bounds to which it
    is clamped."""

    dtype: DType
    zero: int
    low: int
    high: int

    @classmethod
    def of(cls, tensor: Tensor, activation: int = 0) -> Target:
        """Return the target for a result tensor; a fused activation narrows the bounds."""
        quantization, dtype = quantized(tensor), DTYPES[tensor.type]
        if activation not in RANGES:
            raise NotSupported(f"the fused activation {activation} of quantized tensors")
        zero, (low, high) = quantization.zero, dtype.limits
        least, most = RANGES[activation]
        if least is not None:
            low = max(low, zero + rounded(least, quantization))
        if most is not None:
            high = min(high, zero + rounded(most, quantization))
        return cls(dtype, zero, low, high)

    @classmethod
    def word(cls) -> Target:
        """Return the target for an intermediate result in i32 without zero point."""
        return cls(DType.I32, 0, *DType.I32.limits)


def rounded(real: float, quantization: Quantization) -> int:
    """Return a real number divided by the scale, with halves rounded away from zero, computed in
    f32 as in TFLite."""
    ratio = float(np.float32(real) / quantization.scale[0])
    return int(math.copysign(math.floor(abs(ratio) + 0.5), ratio))


def quantized(tensor: Tensor) -> Quantization:
    """Return the quantization of a tensor. Raises Mismatch unless it has a single scale."""
    quantization = tensor.quantization
    if quantization is None:
        raise Mismatch(f"the tensor {tensor.label!r} of integers has no scale")
    if quantization.is_per_axis:
        raise NotSupported(f"scales along an axis of {tensor.label!r}")
    if not quantization.scale[0] > 0:
        raise Mismatch(f"the tensor {tensor.label!r} has the scale 0")
    return quantization


def requantized(
    b: Builder,
    x: str,
    reals: Sequence[float],
    target: Target,
    shape: Sequence[int] = (),
    rounding: str = TWICE,
) -> str:
    """Return i32 sums `x` multiplied by real factors, rounded, and clamped to the result `target`.
    `reals` is a single factor, or a vector that is reshaped to `shape` to broadcast against the
    sums."""
    return multiplied(b, x, [Factor.of(real) for real in reals], target, shape, rounding)


def multiplied(
    b: Builder,
    x: str,
    factors: Sequence[Factor],
    target: Target,
    shape: Sequence[int] = (),
    rounding: str = TWICE,
) -> str:
    """Return i32 sums `x` multiplied by fixed-point factors, rounded, and clamped to the result
    `target`. Several factors are reshaped to `shape` to broadcast against the sums."""
    multiplier = np.array([factor.multiplier for factor in factors], np.int32)
    shift = np.array([factor.shift for factor in factors], np.int32)
    operands = [multiplier, np.maximum(-shift, 0)]
    if (shift > 0).any():
        operands.append(np.maximum(shift, 0))
    arranged = [operand.reshape(() if len(factors) == 1 else shape) for operand in operands]
    return b.add(
        "Requantize",
        x,
        *map(b.constant, arranged),
        zero=target.zero,
        low=target.low,
        high=target.high,
        to=str(target.dtype),
        rounding=rounding,
    )


def centred(b: Builder, x: str, zero: int) -> str:
    """Return integers minus their zero point, in i32."""
    wide = b.add("Cast", x, to="i32")
    return b.add("Sub", wide, b.constant(np.array(zero, np.int32))) if zero else wide
