"""exp and expm1, and the exponential of what is at most zero."""

from __future__ import annotations

from farrier.ir.special import EXP_NONPOSITIVE_END
from farrier.targets.cpu.codegen.float_code import FloatCode


def exp_nonpositive(c: FloatCode, x: str) -> str:
    """exp(x) of x <= 0; 0 where that is no normal number, so nothing overflows or underflows."""
    end = EXP_NONPOSITIVE_END[c.double]
    if c.scales:
        parts = c.reduced(x)
        mantissa = parts.mantissa
        kept = c.b.pure(f"fcmp uge {c.kind} {x}, {c.const(end)}")  # a NaN stays
        mask = c.b.pure(f"bitcast {c.mask} {kept} to i{c.lanes}")
        return c.scaled(mantissa, parts.whole, mask)
    below = c.less(x, end)
    parts = c.reduced(c.select(below, end, x))
    mantissa = parts.mantissa
    return c.select(below, 0.0, c.mul(mantissa, c.power_of_two(parts.exponent())))


def exp(c: FloatCode, x: str, rest: str | None = None) -> str:
    """exp(x + rest), of a `rest` far below 1: 2^n * exp(r) with n the nearest integer of x / ln 2.
    The largest error is 0.8 ulp."""
    x = c.at_least(c.at_most(x, c.of(89.0, 710.0)), c.of(-104.0, -746.0))
    parts = c.reduced(x, rest)
    return parts.times(parts.mantissa)


def expm1(c: FloatCode, x: str) -> str:
    """2^n * (exp(r) - 1) + (2^n - 1), halved until the end so that it overflows there alone. Below
    the lower bound it is -1."""
    bounded = c.at_least(c.at_most(x, c.of(89.0, 710.0)), c.of(-18.0, -38.0))
    parts = c.reduced(bounded)
    half = c.power_of_two(parts.exponent(-1))
    far = c.fma(half, parts.excess, c.sub(half, 0.5))
    value = c.select(c.equal(parts.whole, 0.0), parts.excess, c.add(far, far))
    return c.signed_as(value, x)  # of a zero
