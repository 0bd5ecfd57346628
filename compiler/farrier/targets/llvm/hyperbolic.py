"""The emission of hyperbolic functions and their inverses."""

from __future__ import annotations

import math

from farrier.ir.instr import Operand
from farrier.targets.llvm.exponentials import exp
from farrier.targets.llvm.float_code import FloatCode
from farrier.targets.llvm.logarithms import log1p

# The Chebyshev interpolant of (tanh(x) - x) / x^3 as a polynomial in x^2 <= 0.4.
_TANH = (-0.33333333149373706, 0.1333330014615991, -0.05395846162426815,
         0.02176250289236752, -0.008323187026469735, 0.00226950165917333)  # fmt: skip
# The Taylor series of (e^x - 1 - x) / x^2: the first term left out is 0.69^18 / 19! < 2^-66.
_EXPM1_F64 = tuple(1 / math.factorial(k + 2) for k in range(17))
# (sinh(x) - x) / x^3 as a polynomial in x^2 on |x| <= 1, to 2^-34 (f32) and to 2^-63 (f64).
_SINH = (0.16666666497562013, 0.008333350059964988, 0.0001983615929752717, 2.816954276296634e-06)
_SINH_F64 = (0.16666666666666669, 0.008333333333333148, 0.00019841269841431748,
             2.755731915710553e-06, 2.5052123132053817e-08, 1.605726009291927e-10,
             7.758739888362032e-13)  # fmt: skip


def tanh(c: FloatCode, x: Operand) -> Operand:
    """Compute tanh(x) by an odd polynomial near zero, and as 1 - 2 / (exp(2 |x|) + 1) elsewhere,
    with the sign of x."""
    size = c.abs(x)
    twice = c.add(size, size)
    if c.double:
        small = c.fma(c.mul(twice, twice), c.polynomial(twice, _EXPM1_F64), twice)
        near = c.div(small, c.add(small, 2.0))
        is_near = c.less(twice, 0.69)
    else:
        square = c.mul(x, x)
        near = c.fma(c.mul(size, square), c.polynomial(square, _TANH), size)
        is_near = c.less(size, 0.625)
    far = c.sub(1.0, c.div(2.0, c.add(exp(c, twice), 1.0)))
    return c.signed_as(c.select(is_near, near, far), x)


def sinh(c: FloatCode, x: Operand) -> Operand:
    """Compute sinh(x) by an odd polynomial for |x| <= 1, and as a difference of exponentials
    elsewhere."""
    size = c.abs(x)
    square = c.mul(size, size)
    series = c.polynomial(square, _SINH_F64 if c.double else _SINH)
    near = c.fma(c.mul(size, square), series, size)
    grown, decayed = _quarters(c, size)
    far = c.sub(grown, decayed)
    return c.signed_as(c.select(c.less(size, 1.0), near, c.add(far, far)), x)


def cosh(c: FloatCode, x: Operand) -> Operand:
    """Compute cosh(x) as a sum of exponentials."""
    grown, decayed = _quarters(c, c.abs(x))
    total = c.add(grown, decayed)
    return c.add(total, total)


def _quarters(c: FloatCode, size: Operand) -> tuple[Operand, Operand]:
    """Return e^size / 4 and e^-size / 4. Twice their sum is cosh, even where e^size itself
    overflows. Beyond the range of cosh they are infinity and 0."""
    parts = c.reduced(c.at_most(size, c.of(90.0, 711.0)))
    grown = c.mul(parts.mantissa, c.power_of_two(parts.exponent(-2)))
    return grown, c.div(0.0625, grown)


def asinh(c: FloatCode, x: Operand) -> Operand:
    """Compute asinh(|x|) as log1p(|x| + x^2 / (1 + sqrt(1 + x^2))), and for large |x| as log(|x|) +
    ln 2, which neglects 1 / (4 x^2). The result has the sign of x."""
    size = c.abs(x)
    square = c.mul(size, size)
    root = c.intrinsic("sqrt", c.add(square, 1.0))
    near = c.add(size, c.div(square, c.add(root, 1.0)))
    return c.signed_as(_log_of_sum(c, size, near), x)


def acosh(c: FloatCode, x: Operand) -> Operand:
    """Compute acosh(x) as log1p(t + sqrt(t^2 + 2 t)) with t = x - 1, and for large x as log(x) + ln
    2."""
    above = c.sub(x, 1.0)
    near = c.add(above, c.intrinsic("sqrt", c.mul(above, c.add(above, 2.0))))
    valid = c.b.fcmp("oge", x, c.const(1.0))
    return c.select(valid, _log_of_sum(c, x, near), math.nan)


def _log_of_sum(c: FloatCode, size: Operand, near: Operand) -> Operand:
    """Compute the logarithm for asinh and acosh of a number `size`: log1p(near) in general.
    Above 2^13 (f32) or 2^28 (f64), where 1 is less than an ulp of size², compute log(2 * size)
    instead."""
    is_large = c.less(c.of(2.0**13, 2.0**28), size)
    value = log1p(c, c.select(is_large, c.sub(size, 1.0), near))
    return c.add(value, c.select(is_large, math.log(2), 0.0))


def atanh(c: FloatCode, x: Operand) -> Operand:
    """Compute atanh(x) as log1p(2 |x| / (1 - |x|)) / 2, with the sign of x."""
    size = c.abs(x)
    ratio = c.div(c.add(size, size), c.sub(1.0, size))
    return c.signed_as(c.mul(log1p(c, ratio), 0.5), x)
