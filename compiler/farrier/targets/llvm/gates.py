"""The emission of sigmoid, and of activations that multiply their operand by a sigmoid or a similar
gate.

A gate that tends to 0 does so exponentially. Its power of two is applied last, after the
multiplication by the operand, so that a normal result does not lose bits to a subnormal gate. At
-inf the gate is 0 and the product NaN, as the formulas define it.
"""

from __future__ import annotations

from farrier.ir.instr import Operand
from farrier.targets.llvm.float_code import FloatCode

# Gelu by tanh is x sigmoid(x (linear + cubic x^2)) with linear = 2 sqrt(2 / pi) and
# cubic = 0.044715 linear (D. Hendrycks, K. Gimpel, arXiv:1606.08415). Each constant is the sum of
# two; the high part of `linear` has 11 bits, so that subtracting it from a sum with it is exact.
_LINEAR, _LINEAR_REST = 1.595703125, 6.599660573071176e-05
_CUBIC, _CUBIC_REST = {}, {}
_CUBIC[True], _CUBIC_REST[True] = 0.07135481627260025, -6.175149918155315e-19
_CUBIC[False], _CUBIC_REST[False] = 0.07135481387376785, 2.3988323959931355e-09
# The smallest exponential has 53 binary digits below the normal range; 2^64 lifts it above.
_LIFT = 64


def sigmoid(c: FloatCode, x: Operand) -> Operand:
    """Compute sigmoid(x) as 1 / (1 + exp(-|x|)), multiplied by exp(-|x|) for negative x.

    If the target has no instruction that multiplies by powers of two, the exponential is kept
    scaled by 2^64 until the end, which makes it a normal number.
    """
    # The result of exp is 0 below -103.97 in f32 and -745.1 in f64.
    parts = c.reduced(c.at_least(c.neg(c.abs(x)), c.of(-104.0, -746.0)))
    is_negative = c.less(x, 0.0)
    if c.scales:
        decay = parts.times(parts.mantissa)
        return c.div(c.select(is_negative, decay, 1.0), c.add(decay, 1.0))
    decay = c.mul(parts.mantissa, c.power_of_two(parts.exponent(_LIFT)))
    over = c.select(is_negative, decay, 2.0**_LIFT)
    return c.mul(c.div(over, c.fma(decay, 2.0**-_LIFT, 1.0)), 2.0**-_LIFT)


def swish(c: FloatCode, x: Operand, alpha: Operand | float) -> Operand:
    """Compute x * sigmoid(alpha * x)."""
    if alpha == 1.0:
        return _gated(c, x, c.less(x, 0.0), c.neg(c.abs(x)), None)
    z, rest = c.product(x, alpha)
    # For a positive z the rest has the wrong sign, but the gate is near 1 then and hides it.
    return _gated(c, x, c.less(z, 0.0), c.neg(c.abs(z)), rest)


def gelu_tanh(c: FloatCode, x: Operand) -> Operand:
    """Compute x / 2 * (1 + tanh(u)) with u = sqrt(2 / pi) * (x + 0.044715 * x^3), as x * sigmoid(2
    u).

    The argument of the sigmoid is represented as a sum of two numbers, because where the sigmoid is
    small, its relative error is the argument's relative error times the argument.
    """
    near = c.at_least(c.neg(c.abs(x)), c.of(-13.0, -27.0))  # Beyond, the sigmoid is 0 or 1.
    square, square_rest = c.product(near, near)
    cubic = _CUBIC[c.double]
    factor, rest = c.sum_of_product(square, cubic, _LINEAR)
    rest = c.add(rest, c.fma(square, _CUBIC_REST[c.double], _LINEAR_REST))
    rest = c.fma(square_rest, cubic, rest)
    z, z_rest = c.product(near, factor)
    return _gated(c, x, c.less(x, 0.0), z, c.fma(near, rest, z_rest))


def mish(c: FloatCode, x: Operand) -> Operand:
    """Compute x * tanh(log(1 + e^x)) = x * u / (u + 2) with u = e^x * (e^x + 2)."""
    # x * e^x is 0 below the first bounds; the quotient rounds to 1 above the second.
    end = c.of(-120.0, -760.0)
    parts = c.reduced(c.at_most(c.at_least(x, end), c.of(20.0, 40.0)))
    grown = parts.times(parts.mantissa)
    more = c.add(grown, 2.0)
    share = c.div(parts.mantissa_times(more), c.fma(grown, more, 2.0))
    return parts.times(c.mul(x, c.select(c.less(x, end), 0.0, share)))


def _gated(
    c: FloatCode, x: Operand, is_negative: Operand, z: Operand, rest: Operand | None
) -> Operand:
    """Compute x * sigmoid(z + rest) where `is_negative`, else x * sigmoid(-z - rest), for z <= 0
    and |rest| far below |z|.

    It is computed as in `sigmoid`, except that x is multiplied first by the exponential's mantissa
    and last by its power of two. For z below a bound, the sigmoid is 0 or 1; for z above the bound,
    both halves of the power are normal numbers.
    """
    end = c.of(-174.0, -1416.0)
    is_beyond = c.less(z, end)
    if rest is not None:
        rest = c.select(is_beyond, 0.0, rest)
    parts = c.reduced(c.at_least(z, end), rest)
    decay = parts.times(parts.mantissa)
    near = c.select(is_beyond, 0.0, parts.mantissa)
    share = c.div(c.select(is_negative, near, 1.0), c.add(decay, 1.0))
    return parts.times(c.mul(x, share), is_negative)
