"""The emission of exp and expm1, and of a shorter exp for arguments that are not positive."""

from __future__ import annotations

from farrier.ir.instr import Operand, vector
from farrier.ir.special import EXP_NONPOSITIVE_END
from farrier.targets.llvm.float_code import FloatCode


def exp_nonpositive(c: FloatCode, x: Operand) -> Operand:
    """Compute exp(x) for x <= 0. A result below the normal range is flushed to 0."""
    end = EXP_NONPOSITIVE_END[c.double]
    if c.scales:
        parts = c.reduced(x)
        mantissa = parts.mantissa
        # An unordered comparison, so that a NaN stays.
        kept = c.b.fcmp("uge", x, c.const(end))
        mask = c.b.bitcast(kept, vector(f"i{c.lanes}"))
        return c.scaled(mantissa, parts.whole, mask)
    below = c.less(x, end)
    parts = c.reduced(c.select(below, end, x))
    mantissa = parts.mantissa
    return c.select(below, 0.0, c.mul(mantissa, c.power_of_two(parts.exponent())))


def exp(c: FloatCode, x: Operand, rest: Operand | None = None) -> Operand:
    """Compute exp(x + rest), |rest| far below 1, as 2^n * exp(r) with n the integer nearest to
    x / ln 2. The largest error is 0.8 ulp."""
    # Beyond these bounds the result overflows (88.7 and 709.8) or is 0 (-103.97 and -745.1).
    x = c.at_least(c.at_most(x, c.of(89.0, 710.0)), c.of(-104.0, -746.0))
    parts = c.reduced(x, rest)
    return parts.times(parts.mantissa)


def expm1(c: FloatCode, x: Operand) -> Operand:
    """Compute exp(x) - 1 as 2^n * (exp(r) - 1) + (2^n - 1). The sum is formed at half its size, so
    that only the last step can overflow."""
    # Above, the result overflows (88.7 and 709.8); below, exp(x) is under half an ulp of 1.
    bounded = c.at_least(c.at_most(x, c.of(89.0, 710.0)), c.of(-18.0, -38.0))
    parts = c.reduced(bounded)
    half = c.power_of_two(parts.exponent(-1))
    far = c.fma(half, parts.excess, c.sub(half, 0.5))
    value = c.select(c.equal(parts.whole, 0.0), parts.excess, c.add(far, far))
    return c.signed_as(value, x)  # The result of -0 is -0.
