"""Fixed-point requantization: products of integers by a real factor, rounded as in TFLite's
kernels.

A factor is multiplier · 2^(left − right − 31), where multiplier is in [2³⁰, 2³¹). In mode "twice",
as in gemmlowp, the product is rounded two times: to the upper half of the 64-bit product, and in
the shift to the right, where halves round away from zero (B. Jacob et al., "Quantization and
Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", section 2.2). In mode
"once", as in ruy, it is rounded a single time, halves up. All arithmetic is in 32 bits, and every
target can compute the upper half of a product.
"""

from __future__ import annotations

import numpy as np

from farrier.ir.expr import BinaryOp
from farrier.ir.graph import Node
from farrier.ir.types import DType
from farrier.ops.operator import Array, Attrs, Mismatch, Operator, Types, as_ints, required
from farrier.ops.pointwise import first_dtype, function, pointwise
from farrier.ops.scalar import (
    Scalar,
    bits,
    both,
    cast,
    equal,
    invert,
    maximum,
    minimum,
    number,
    where,
)
from farrier.ops.traits import Trait

ONCE, TWICE = "once", "twice"  # The number of times that a product is rounded.
_MOST_PLACES = 31  # Requantize shifts by this at most.
IS_SMALL = "is_small"
"""The attribute of a Requantize that says that no sum exceeds `LARGEST_SUM` in magnitude, and that
its shifts to the right are within `SHIFTS`."""
LARGEST_SUM, SHIFTS = (1 << 29) - 1, (1, 20)
_LEAST, _MOST = DType.I32.limits


def _high_product(x: Scalar, y: Scalar) -> Scalar:
    """Compute floor((x · y + 2³⁰) / 2³¹)."""
    high, rest = _wide_product(x, y)
    return high + bits(BinaryOp.BIT_AND, rest, 1)


def _wide_product(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """Return floor(x · y / 2³¹), and an integer whose lowest bit is that of floor(x · y / 2³⁰),
    from the upper and lower 32 bits of the product.
    """
    high, low = bits(BinaryOp.MUL_HIGH, x, y), cast(x * y, DType.U32)
    last = cast(_right(low, 31), DType.I32)
    return bits(BinaryOp.SHL, high, 1) + last, cast(_right(low, 30), DType.I32)


def _saturating(attrs: Attrs, x: Scalar, y: Scalar) -> Scalar:
    is_over = both(equal(x, _LEAST), equal(y, _LEAST))
    return where(invert(is_over), _high_product(x, y), _MOST)


def _np_saturating(attrs: Attrs, x: Array, y: Array) -> Array:
    product = x.astype(np.int64) * y.astype(np.int64)
    return np.asarray(np.minimum(product + (1 << 30) >> 31, _MOST).astype(np.int32))


def _rounded_shift(x: Scalar, places: Scalar) -> Scalar:
    """Compute x / 2^places, rounded to nearest, with halves away from zero."""
    mask = bits(BinaryOp.SHL, number(1, places.dtype), places) - 1
    rest = bits(BinaryOp.BIT_AND, x, mask)
    threshold = _right(mask, 1) + cast(x < 0, DType.I32)
    return bits(BinaryOp.SHR, x, places) + cast(rest > threshold, DType.I32)


def _np_rounded_shift(x: Array, places: Array) -> Array:
    wide = x.astype(np.int64)
    half = np.where(places > 0, np.int64(1) << np.maximum(places, 1).astype(np.int64) - 1, 0)
    magnitude = np.abs(wide) + half >> places
    return np.asarray(np.where(wide < 0, -magnitude, magnitude).astype(np.int32))


def _requantized(
    attrs: Attrs, x: Scalar, multiplier: Scalar, right: Scalar, left: Scalar | None = None
) -> Scalar:
    """Compute clamp(rounded(x · 2^left · multiplier / 2^(31 + right)) + zero)."""
    right = bits(BinaryOp.BIT_AND, right, _MOST_PLACES)  # Larger shifts may be undefined.
    zero, low, high = _numbers(attrs)
    if left is not None:
        x = bits(BinaryOp.SHL, x, bits(BinaryOp.BIT_AND, left, _MOST_PLACES))
    if attrs.get(IS_SMALL):
        shifted = _small_product(x, multiplier, right, zero)
    elif attrs["rounding"] == TWICE:
        shifted = _rounded_shift(_high_product(x, multiplier), right) + zero
    else:
        shifted = _rounded_product(x, multiplier, right) + zero
    if (low, high) != (_LEAST, _MOST):
        shifted = minimum(maximum(shifted, low), high)
    return cast(shifted, DType(str(attrs["to"])))


def _small_product(x: Scalar, y: Scalar, right: Scalar, zero: int) -> Scalar:
    """Compute x · y · 2^-(31 + right), rounded in mode "twice", plus `zero`, for a node with the
    attribute `IS_SMALL`: no intermediate result exceeds 32 bits, so half of the divisor can be
    added before the shift. Subtracting 1 from a negative product makes its halves round away from
    zero.
    """
    wide = cast(bits(BinaryOp.SHL, x, 1), DType.I64) * cast(y, DType.I64) + (1 << 31)
    high = cast(_right(wide, 32), DType.I32)
    half = _right(bits(BinaryOp.SHL, number(1, DType.I32), right), 1)
    added = half + bits(BinaryOp.SHL, number(zero, DType.I32), right)
    return bits(BinaryOp.SHR, high + _right(high, 31) + added, right)


def _rounded_product(x: Scalar, y: Scalar, right: Scalar) -> Scalar:
    """Compute floor((x · y + 2^(30 + right)) / 2^(31 + right))."""
    high, rest = _wide_product(x, y)
    last = where(equal(right, 0), rest, bits(BinaryOp.SHR, high, right - 1))
    return bits(BinaryOp.SHR, high, right) + bits(BinaryOp.BIT_AND, last, 1)


def _np_requantized(
    attrs: Attrs, x: Array, multiplier: Array, right: Array, left: Array | None = None
) -> Array:
    if left is not None:
        x = np.left_shift(x, left)
    whole = x.astype(np.int64) * multiplier.astype(np.int64)
    if attrs["rounding"] == TWICE:
        product = _np_rounded_shift(whole + (1 << 30) >> 31, right)
    else:
        product = (whole + (np.int64(1) << 30 + right) >> 31 + right).astype(np.int32)
    zero, low, high = (np.array(number, np.int32) for number in _numbers(attrs))
    clamped = np.clip(product + zero, low, high)
    return np.asarray(clamped.astype(DType(str(attrs["to"])).numpy))


def _numbers(attrs: Attrs) -> tuple[int, int, int]:
    """Return the attributes `zero`, `low` and `high`: the zero point and the bounds of a result."""
    zero, low, high = as_ints([attrs["zero"], attrs["low"], attrs["high"]])
    return zero, low, high


def _leading_zeros(x: Scalar) -> Scalar:
    """Count the zero bits above the highest one of a 32-bit word, by binary search."""
    word, count = cast(x, DType.U32), number(0, DType.I32)
    for places in (16, 8, 4, 2, 1):
        is_small = word < 1 << 32 - places
        count = count + where(is_small, number(places, DType.I32), 0)
        word = where(is_small, bits(BinaryOp.SHL, word, places), word)
    return count + where(equal(word, 0), number(1, DType.I32), 0)


def _np_leading_zeros(x: Array) -> Array:
    return np.asarray((32 - np.frexp(x.astype(np.uint32).astype(np.float64))[1]).astype(np.int32))


def _right(x: Scalar, places: int) -> Scalar:
    return bits(BinaryOp.SHR, x, places)


def _words(types: Types, attrs: Attrs) -> DType:
    """Return I32, the dtype of the result, and check that all operands are i32."""
    if first_dtype(types, attrs) is not DType.I32:
        raise Mismatch(f"its operands are {required(types, 0).dtype}, and must be i32")
    return DType.I32


def _narrowed(types: Types, attrs: Attrs) -> DType:
    _words(types, attrs)
    if attrs["rounding"] not in (ONCE, TWICE):
        raise Mismatch(f"it rounds {attrs['rounding']!r}, and must be {ONCE!r} or {TWICE!r}")
    to, (_, low, high) = DType(str(attrs["to"])), _numbers(attrs)
    if not to.is_integer or not to.limits[0] <= low <= high <= to.limits[1]:
        raise Mismatch(f"the bounds {low} and {high} are not those of a {to}")
    return to


REQUANTIZE = pointwise(
    "Requantize",
    _requantized,
    _np_requantized,
    result=_narrowed,
    traits=Trait.TOTAL,
    instructions=24,
)


def rounds_twice(node: Node) -> bool:
    """Check whether a node is a Requantize whose products are rounded twice."""
    return REQUANTIZE.matches(node) and node.attr("rounding") == TWICE


OPERATORS: tuple[Operator, ...] = (
    REQUANTIZE,
    pointwise("HighProduct", _saturating, _np_saturating, result=_words, traits=Trait.TOTAL),
    pointwise(
        "RoundedShift",
        lambda attrs, x, places: _rounded_shift(x, places),
        lambda attrs, x, places: _np_rounded_shift(x, places),
        result=_words,
        traits=Trait.TOTAL,
    ),
    function("LeadingZeros", _leading_zeros, _np_leading_zeros, result=_words, traits=Trait.TOTAL),
)
