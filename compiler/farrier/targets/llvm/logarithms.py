"""The emission of log and log1p, as e * ln 2 + log(m) for arguments 2^e * m with sqrt(1/2) <= m <
sqrt(2)."""

from __future__ import annotations

import math

from farrier.ir import instr
from farrier.ir.instr import Operand
from farrier.targets.llvm.float_code import LN2_HIGH, LN2_LOW, FloatCode

# The Chebyshev interpolant of (log(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) <= 1 + f <= sqrt(2).
_LOG = (0.3333333118003176, -0.24999996957953924, 0.2000071574878935, -0.1666780231926027,
        0.14249057647505176, -0.12425687336802481, 0.11685419915841033, -0.11479733811890441,
        0.06971611446083988)  # fmt: skip
# The Taylor series of log(m) = 2 atanh(s), s = (m - 1) / (m + 1): with s² <= 0.0295 its error is
# 0.0295^11 / 25.
_LOG_F64 = tuple(2 / (2 * k + 3) for k in range(11))


def log(c: FloatCode, x: Operand) -> Operand:
    """Compute log(x). The largest error is 1 ulp in f32 and 1.5 ulp in f64."""
    smallest = c.of(2.0**-126, 2.0**-1022)
    is_tiny = c.less(x, smallest)
    normal = c.select(is_tiny, c.mul(x, 2.0**c.mantissa_bits), x)
    exponent, m, _ = split(c, normal)
    e = c.sub(_number(c, exponent), c.select(is_tiny, float(c.mantissa_bits), 0.0))
    result = _joined(c, e, c.sub(m, 1.0))
    result = c.select(c.equal(x, math.inf), math.inf, result)
    result = c.select(c.equal(x, 0.0), -math.inf, result)
    # The logarithm of a negative number or a NaN is NaN.
    valid = c.b.fcmp("oge", x, c.const(0.0))
    return c.select(valid, result, math.nan)


def log1p(c: FloatCode, x: Operand) -> Operand:
    """Compute log(1 + x) from the rounded sum 1 + x = 2^e m. The rounding error of the sum is added
    back to m, so that m - 1 is x itself if e is 0."""
    total = c.add(x, 1.0)
    exponent, m, shifted = split(c, total)
    lost = c.sub(x, c.sub(total, 1.0))
    # This is 2^-e. For larger e the rounding error does not matter.
    last = (c.bias - 1) << c.mantissa_bits
    bounded = c.b.math("smin", shifted, c.integer(last))
    scale = c.from_bits(c.int_op(instr.SUB, c.bits_of(1.0), bounded))
    result = _joined(c, _number(c, exponent), c.fma(lost, scale, c.sub(m, 1.0)))
    result = c.select(c.equal(x, math.inf), math.inf, result)
    result = c.select(c.equal(x, -1.0), -math.inf, result)
    valid = c.b.fcmp("oge", x, c.const(-1.0))
    return c.signed_as(c.select(valid, result, math.nan), x)  # The result of -0 is -0.


def split(c: FloatCode, x: Operand) -> tuple[Operand, Operand, Operand]:
    """Split a normal number 2^e * m into three parts: e as an integer, m, and e shifted to the
    position of the exponent bits."""
    bits = c.to_bits(x)
    # Subtract the bits of sqrt(1/2) so that the exponent field counts from there.
    offset = c.int_op(instr.SUB, bits, c.bits_of(math.sqrt(0.5)))
    exponent = c.int_op(instr.ASHR, offset, c.mantissa_bits)
    shifted = c.int_op(instr.SHL, exponent, c.mantissa_bits)
    return exponent, c.from_bits(c.int_op(instr.SUB, bits, shifted)), shifted


def _number(c: FloatCode, exponent: Operand) -> Operand:
    return c.b.convert(instr.SITOFP, exponent, c.kind)


def _joined(c: FloatCode, e: Operand, f: Operand) -> Operand:
    """Compute e * ln 2 + log(1 + f)."""
    if c.double:
        s = c.div(f, c.add(f, 2.0))
        z = c.mul(s, s)
        tail = c.mul(c.mul(s, z), c.polynomial(z, _LOG_F64))
        result = c.fma(e, LN2_LOW[True], c.fma(s, 2.0, tail))
        return c.fma(e, LN2_HIGH[True], result)
    square = c.mul(f, f)
    tail = c.mul(c.mul(f, square), c.polynomial(f, _LOG))
    tail = c.fma(e, LN2_LOW[False], tail)
    result = c.add(c.fma(square, -0.5, tail), f)
    return c.fma(e, LN2_HIGH[False], result)
