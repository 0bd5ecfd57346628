"""The emission of powers of floats, with C's results for zeros, infinities and NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from farrier.ir import instr
from farrier.ir.instr import Operand
from farrier.targets.llvm.exponentials import exp
from farrier.targets.llvm.float_code import LN2_HIGH, LN2_LOW, FloatCode
from farrier.targets.llvm.logarithms import log, split

# The Taylor series of 2 atanh(s) = 2 s + 2/3 s^3 + s^5 (2/5 + 2/7 s^2 + ...), from s^5 on, where
# s^2 is at most 0.0295.
_SERIES = tuple(2 / (2 * k + 5) for k in range(11))
_TWO_THIRDS_LOW = 3.700743415417188e-17  # 2 / 3 minus the f64 nearest to it.
# The difference of ln 2 and the sum of LN2_HIGH and LN2_LOW of f64.
_LN2_LAST = -2.3407938865678234e-23


def power(c: FloatCode, base: Operand, exponent: Operand) -> Operand:
    """Compute `base ** exponent`. Powers of f32 are computed in f64."""
    if c.double:
        return _power(c, base, exponent)
    wide = c.as_double()
    x, y = c.extended(base), c.extended(exponent)
    # An f64 logarithm is precise enough for the 24 bits of the result.
    size = exp(wide, wide.mul(y, log(wide, wide.abs(x))))
    return c.truncated(wide, _signed(wide, x, y, size))


def _power(c: FloatCode, x: Operand, y: Operand) -> Operand:
    """Compute exp(y log |x|) in f64. The product is represented as a sum of two numbers, as the
    relative error of the exponential is the absolute error of its argument."""
    high, low = _logarithm(c, c.abs(x))
    product, rest = c.product(high, y)
    rest = c.fma(low, y, rest)
    # For larger products the exponential is 0 or infinite, and the rest may be NaN.
    is_bounded = c.less(c.abs(product), 2.0**11)
    return _signed(c, x, y, exp(c, product, c.select(is_bounded, rest, 0.0)))


def _signed(c: FloatCode, x: Operand, y: Operand, result: Operand) -> Operand:
    """Return x ** y, given |x| ** y in `result`, by setting the sign and the special values."""
    size = c.abs(x)
    is_integer = c.equal(c.intrinsic("floor", y), y)
    half = c.mul(y, 0.5)
    even = c.equal(c.intrinsic("floor", half), half)
    negative = c.b.icmp("slt", c.to_bits(x), c.integer(0))
    flipped = c.select(even, result, c.neg(result))
    # Zeros and infinities have powers for all exponents, other negative bases for integers only.
    ends = c.either(c.equal(size, math.inf), c.equal(x, 0.0))
    signed = c.select(is_integer, flipped, c.select(ends, result, math.nan))
    result = c.select(negative, signed, result)
    one_or_more = c.either(c.equal(x, 1.0), c.equal(y, 0.0))
    # For |x| = 1 and an infinite y the power is 1, though y log |x| = inf * 0 is NaN.
    is_one, is_infinite = c.equal(size, 1.0), c.equal(c.abs(y), math.inf)
    ones = c.b.op(instr.AND, is_one, is_infinite)
    return c.select(c.either(one_or_more, ones), 1.0, result)


def _logarithm(c: FloatCode, x: Operand) -> tuple[Operand, Operand]:
    """Return log(x) as a sum of two numbers with an error of 2^-63. The first two terms of log(m) =
    2 s + 2/3 s^3 + ... are themselves computed as such sums."""
    tiny = c.less(x, 2.0**-1022)
    exponent, m, _ = split(c, c.select(tiny, c.mul(x, 2.0**52), x))
    e = c.b.convert(instr.SITOFP, exponent, c.kind)
    e = c.sub(e, c.select(tiny, 52.0, 0.0))
    f = c.sub(m, 1.0)
    under = c.add(m, 1.0)
    lost = c.sub(m, c.sub(under, 1.0))
    s = c.div(f, under)
    s_low = c.div(c.fma(c.neg(s), lost, c.less_product(f, s, under)), under)
    z, z_low = c.product(s, s)
    z_low = c.fma(c.add(s, s), s_low, z_low)
    # The factor 2 + 2/3 z + 2/5 z^2 + ..., by which s is multiplied.
    series = c.mul(c.mul(z, z), c.polynomial(z, _SERIES))
    third, third_low = c.product(z, 2 / 3)
    third_low = c.fma(z, _TWO_THIRDS_LOW, c.fma(z_low, 2 / 3, third_low))
    factor, factor_low = _sum(c, 2.0, third)
    factor_low = c.add(factor_low, c.add(third_low, series))
    value, value_low = c.product(s, factor)
    value_low = c.fma(s, factor_low, c.fma(s_low, factor, value_low))
    # The high part of ln 2 times e is exact.
    high, low = _sum(c, c.mul(e, LN2_HIGH[True]), value)
    # Where e is 0 the sum is the value.
    high, low = c.select(c.equal(e, 0.0), value, high), c.select(c.equal(e, 0.0), 0.0, low)
    rest, rest_low = c.product(e, LN2_LOW[True])
    low = c.add(low, c.add(value_low, c.fma(e, _LN2_LAST, rest_low)))
    high, more = _sum(c, high, rest)
    low = c.add(low, more)
    ends = c.either(c.equal(x, math.inf), c.equal(x, 0.0))
    infinite = c.select(c.equal(x, 0.0), -math.inf, math.inf)
    high = c.select(ends, infinite, c.select(c.equal(x, x), high, x))
    return high, c.select(ends, 0.0, low)


def _sum(c: FloatCode, large: Operand | float, small: Operand) -> tuple[Operand, Operand]:
    """Return the rounded sum of two numbers and its rounding error, for |large| >= |small|."""
    total = c.add(large, small)
    return total, c.sub(small, c.sub(total, large))


def _three_quarters(c: FloatCode, x: Operand) -> Operand:
    """Compute x ** 0.75, the most common power in local response normalization."""
    root = c.intrinsic("sqrt", c.add(x, 0.0))
    product = c.mul(root, c.intrinsic("sqrt", root))
    return c.select(c.equal(x, -math.inf), math.inf, product)


def _root(c: FloatCode, x: Operand) -> Operand:
    """Compute x ** 0.5, which for -0 is +0, unlike the square root."""
    return c.select(c.equal(x, -math.inf), math.inf, c.intrinsic("sqrt", c.add(x, 0.0)))


SIMPLE_POWERS: dict[Any, Callable[[FloatCode, Operand], Operand]] = {
    0: lambda c, x: c.const(1.0),
    1: lambda c, x: x,
    2: lambda c, x: c.mul(x, x),
    3: lambda c, x: c.mul(c.mul(x, x), x),
    -1: lambda c, x: c.div(1.0, x),
    0.5: _root,
    0.75: _three_quarters,
}
