"""The softmax of bytes in fixed-point arithmetic, as in TFLite's reference kernel.

Exponentials are looked up in a table, since the distance to the greatest element of a row is a
byte. The reciprocal of their sum is computed by Newton's method in products of 32 bits (gemmlowp's
fixedpoint.h).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from farrier.frontends.builder import Builder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.ops.quantized.scales import Factor, quantized
from farrier.frontends.tflite.schema import INT8, UINT8, Array
from farrier.ir.types import DType
from farrier.ops import NotSupported

_DIFFERENCE_BITS = 5  # The distance to the greatest element has this many integer bits.
_SUM_BITS = 12  # The sum of exponentials has this many integer bits.
_LEVELS = 256  # Two bytes may have this many distances.
_LEAST, _MOST = DType.I32.limits


def _product(x: Array, y: Array | int) -> Array:
    """Return floor((x · y + 2³⁰) / 2³¹), in numpy, as the operator HighProduct does."""
    return np.asarray((x * np.asarray(y, np.int64) + (1 << 30)) >> 31)


def _shifted(x: Array, places: int) -> Array:
    """Return x / 2^places with halves rounded away from zero, in numpy, as the operator
    RoundedShift does."""
    return np.asarray(np.sign(x) * ((np.abs(x) + (1 << places - 1)) >> places))


def _fixed(real: float, fraction_bits: int = 31) -> int:
    return math.floor(real * (1 << fraction_bits) + 0.5)


def _exponentials(x: Array) -> Array:
    """Return exp(x) with 31 fraction bits, for x <= 0 with 26 fraction bits. Multiples of 1/4 are
    factored out; the rest is a polynomial around −1/8."""
    fraction = 31 - _DIFFERENCE_BITS
    quarter = 1 << fraction - 2
    rest = (x & quarter - 1) - quarter
    result = _near_eighth(rest << _DIFFERENCE_BITS)
    remainder = rest - x
    for exponent in range(-2, _DIFFERENCE_BITS):
        factor = _fixed(math.exp(-(2.0**exponent)))
        is_set = remainder & (1 << fraction + exponent) != 0
        result = np.where(is_set, _product(result, factor), result)
    return np.where(x == 0, _MOST, result)


def _near_eighth(x: Array) -> Array:
    """Return exp(x) for x in [−1/4, 0) by a Taylor series; both have 31 fraction bits."""
    constant, third = _fixed(math.exp(-1 / 8)), _fixed(1 / 3)
    x = x + (1 << 28)
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    terms = _shifted(_product(_shifted(fourth, 2) + cube, third) + square, 1)
    return constant + _product(x + terms, constant)


@dataclasses.dataclass(frozen=True)
class Tables:
    """Tables for the softmax of a row of bytes, indexed by the distance of an element to the
    greatest element of the row, 0 to 255. `exponentials` has the exponentials with 31 fraction
    bits, `terms` the same with 19 fraction bits, and `counts` is false where the exponential counts
    as 0."""

    exponentials: Array
    terms: Array
    counts: Array

    @classmethod
    def of(cls, scale: float, beta: float) -> Tables:
        """Return the tables for bytes with that scale, and a softmax with factor `beta`."""
        real = min(beta * scale * (1 << 31 - _DIFFERENCE_BITS), (1 << 31) - 1.0)
        factor = Factor.of(real)
        whole = (1 << _DIFFERENCE_BITS) - 1
        radius = math.floor(whole * (1 << 31 - _DIFFERENCE_BITS) / 2.0**factor.shift)
        distance = np.arange(_LEVELS, dtype=np.int64)
        counts = distance <= radius
        scaled = -np.where(counts, distance, 0) * 2 ** max(factor.shift, 0)
        scaled = _product(scaled, factor.multiplier)
        if factor.shift < 0:
            raise NotSupported("a softmax of a scale that is too small for fixed-point numbers")
        exponentials = np.where(counts, _exponentials(scaled), 0)
        terms = _shifted(exponentials, _SUM_BITS)
        return cls(exponentials.astype(np.int32), terms.astype(np.int32), counts)


def _softmax(call: Call, b: Builder) -> str:
    x, target = call.value(0), call.outputs[0]
    if call.tensor(0).type not in (INT8, UINT8) or target.type != call.tensor(0).type:
        raise NotSupported("a softmax of quantized integers of 16 bits")
    tables = Tables.of(quantized(call.tensor(0)).real, float(call.option("beta")))
    wide = b.add("Cast", x, to="i32")
    distance = b.add("Sub", b.add("ReduceMax", wide, [-1], keepdims=1), wide)
    exponential = b.add("Gather", b.constant(tables.exponentials), distance, axis=0)
    terms = b.add("Gather", b.constant(tables.terms), distance, axis=0)
    total = b.add("ReduceSum", terms, [-1], keepdims=1)
    zeros = b.add("LeadingZeros", total)
    product = b.add("HighProduct", exponential, _reciprocal(b, total, zeros))
    low, high = DType.I8.limits
    # The sum has more than one by this many bits, and a word has these more than a byte.
    places = b.add("Sub", _word(b, _SUM_BITS + 31 - DType.I8.bits), zeros)
    result = b.add("RoundedShift", product, places)
    if target.type == INT8:
        result = b.add("Add", result, _word(b, low))
    else:
        low, high = DType.U8.limits
    bounds = _word(b, low), _word(b, high)
    return b.add("Cast", b.add("Clip", result, *bounds), to=str(b.dtype(x)))


def _reciprocal(b: Builder, x: str, zeros: str) -> str:
    """Return 1 / x with 31 fraction bits, where x is normalized to [1, 2): three Newton steps from
    the start value 48/17 − 32/17 · x/2."""
    shifted = b.add("BitShift", x, zeros, direction="LEFT")
    rest = b.add("BitwiseAnd", shifted, _word(b, _MOST))
    half = b.add("Add", _halved(b, rest), _word(b, 1 << 30))
    first, slope = _fixed(48 / 17, 29), -_fixed(32 / 17, 29)
    guess = b.add("Add", b.add("HighProduct", half, _word(b, slope)), _word(b, first))
    for _ in range(3):
        error = b.add("Sub", _word(b, 1 << 29), b.add("HighProduct", half, guess))
        step = b.add("HighProduct", guess, error)
        step = b.add("BitShift", step, _word(b, 2), direction="LEFT")
        guess = b.add("Add", guess, step)
    whole = _word(b, 1 << 30)
    doubled = b.add("BitShift", guess, _word(b, 1), direction="LEFT")
    return b.add("Where", b.add("Less", guess, whole), doubled, _word(b, _MOST))


def _halved(b: Builder, x: str) -> str:
    return b.add("BitShift", x, _word(b, 1), direction="RIGHT")


def _word(b: Builder, value: int) -> str:
    return b.constant(np.array(value, np.int32))


RULES: dict[str, Rule] = {"SOFTMAX": _softmax}
