"""Activations that multiply their operand by a gate between 0 and 1, and the gate.

Where the gate closes, it is an exponential; its power of two comes last, so that a product that has
all bits is made of factors that do. Where it is closed it is 0, and -inf times it NaN, as the
formulas say.
"""

from __future__ import annotations

from farrier.targets.cpu.codegen.float_code import FloatCode

# Gelu by tanh is x sigmoid(x (linear + cubic x^2)), linear = 2 sqrt(2 / pi), cubic 0.044715 of that
# (D. Hendrycks, K. Gimpel, arXiv:1606.08415), each as a sum: the first part of `linear` has 11
# bits, so that what is left of a sum with it is exact when it is subtracted.
_LINEAR, _LINEAR_REST = 1.595703125, 6.599660573071176e-05
_CUBIC, _CUBIC_REST = {}, {}
_CUBIC[True], _CUBIC_REST[True] = 0.07135481627260025, -6.175149918155315e-19
_CUBIC[False], _CUBIC_REST[False] = 0.07135481387376785, 2.3988323959931355e-09
_LIFT = 64  # more than the 53 binary digits that the smallest normal exponent leaves to others


def sigmoid(c: FloatCode, x: str) -> str:
    """1 / (1 + exp(-|x|)), of negative numbers times exp(-|x|). Where no instruction scales, the
    exponential is 2^64 times as large until the end, and so a normal number."""
    parts = c.reduced(c.at_least(c.neg(c.abs(x)), c.of(-104.0, -746.0)))
    is_negative = c.less(x, 0.0)
    if c.scales:
        decay = parts.times(parts.mantissa)
        return c.div(c.select(is_negative, decay, 1.0), c.add(decay, 1.0))
    decay = c.mul(parts.mantissa, c.power_of_two(parts.exponent(_LIFT)))
    over = c.select(is_negative, decay, 2.0**_LIFT)
    return c.mul(c.div(over, c.fma(decay, 2.0**-_LIFT, 1.0)), 2.0**-_LIFT)


def swish(c: FloatCode, x: str, alpha: str | float) -> str:
    """x * sigmoid(alpha * x)."""
    if alpha == 1.0:
        return _gated(c, x, c.less(x, 0.0), c.neg(c.abs(x)), None)
    z, rest = c.product(x, alpha)
    # Of a positive z the rest has the wrong sign, beside a 1 that hides it.
    return _gated(c, x, c.less(z, 0.0), c.neg(c.abs(z)), rest)


def gelu_tanh(c: FloatCode, x: str) -> str:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), which is x times the sigmoid of
    twice that. The sigmoid's argument is a sum of two numbers, for the sigmoid near 0 is as much
    less exact than it as it is large."""
    near = c.at_least(c.neg(c.abs(x)), c.of(-13.0, -27.0))  # beyond, the sigmoid is 0 or 1
    square, square_rest = c.product(near, near)
    cubic = _CUBIC[c.double]
    factor = c.fma(square, cubic, _LINEAR)
    rest = c.fma(square, cubic, c.neg(c.sub(factor, _LINEAR)))
    rest = c.add(rest, c.fma(square, _CUBIC_REST[c.double], _LINEAR_REST))
    rest = c.fma(square_rest, cubic, rest)
    z, z_rest = c.product(near, factor)
    return _gated(c, x, c.less(x, 0.0), z, c.fma(near, rest, z_rest))


def mish(c: FloatCode, x: str) -> str:
    """x * tanh(log(1 + e^x)) = x * u / (u + 2) with u = e^x * (e^x + 2)."""
    end = c.of(-120.0, -760.0)
    parts = c.reduced(c.at_most(c.at_least(x, end), c.of(20.0, 40.0)))
    grown = parts.times(parts.mantissa)
    more = c.add(grown, 2.0)
    share = c.div(parts.mantissa_times(more), c.fma(grown, more, 2.0))
    return parts.times(c.mul(x, c.select(c.less(x, end), 0.0, share)))


def _gated(c: FloatCode, x: str, is_negative: str, z: str, rest: str | None) -> str:
    """x * sigmoid(z + rest) of a negative x, of others x * sigmoid(-z - rest), with z <= 0 and a
    `rest` far below it: as `sigmoid` is, but the exponential's mantissa is multiplied first and its
    power of two last. Beyond the bound, whose halves are normal powers, the sigmoid is 0 or 1."""
    end = c.of(-174.0, -1416.0)
    is_beyond = c.less(z, end)
    if rest is not None:
        rest = c.select(is_beyond, 0.0, rest)
    parts = c.reduced(c.at_least(z, end), rest)
    decay = parts.times(parts.mantissa)
    near = c.select(is_beyond, 0.0, parts.mantissa)
    share = c.div(c.select(is_negative, near, 1.0), c.add(decay, 1.0))
    return parts.times(c.mul(x, share), is_negative)
