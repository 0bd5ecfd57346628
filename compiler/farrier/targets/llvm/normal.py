"""The emission of the error function, and of Gelu, which is defined by it."""

from __future__ import annotations

import math

from farrier.ir.instr import Operand
from farrier.targets.llvm.exponentials import exp
from farrier.targets.llvm.float_code import FloatCode

# erf(x) / x as a quotient of polynomials in x^2 - 0.4, to 2^-25.6 on |x| <= 3.925; beyond, erf(x)
# is 1 in f32. The center 0.4 and a common factor of both polynomials were chosen among some
# thousand, as those at which rounding adds least.
_ERF_OVER = (
    1.947556972503662, 0.3820228576660156, 0.09320525079965591, 0.006997145712375641,
    0.00046593855950050056, 3.2183254461415345e-06,
)  # fmt: skip
_ERF_UNDER = (
    1.9585469961166382, 0.9701679348945618, 0.21636895835399628, 0.027602413669228554,
    0.0020338096655905247, 6.050216325093061e-05,
)  # fmt: skip
_ERF_CENTER, _ERF_END = 0.4, 3.925
# erf(x) / x as a polynomial in x^2, to 2^-62 on |x| <= 1.
_ERF_F64 = (
    1.1283791670955126, -0.3761263890318375, 0.11283791670954858, -0.02686617064507296,
    0.00522397762478137, -0.0008548326978765149, 0.00012055331037551108, -1.4925593518728226e-05,
    1.6460972954153765e-06, -1.635002619207727e-07, 1.4657883530919653e-08, -1.136567067182716e-09,
    5.945255584223488e-11,
)  # fmt: skip
_ERF_END_F64 = 6.0  # erf(6) differs from 1 by 2e-17, less than half an ulp.
# e^(a^2 / 2) times the upper tail of the standard normal distribution from a on, as a quotient of
# polynomials: to 2^-27 on 0 <= a <= 14.5 (f32), and to 2^-59 on 0 <= a <= 39 (f64).
_TAIL_OVER = (0.500000002931499, 0.43832057976449035, 0.1832537655178401, 0.04063939065844584,
              0.0041171834430222525)  # fmt: skip
_TAIL_UNDER = (1.0, 1.6745261385890267, 1.2025813047743703, 0.46951967616979856,
               0.10187428340802263, 0.010320128907350245)  # fmt: skip
_TAIL_OVER_F64 = (
    0.5, 0.8279749169109896, 0.6796863875390373, 0.357403923782122, 0.13207477206735885,
    0.0356773749105822, 0.00712515821534904, 0.001040102108262984, 0.00010661765690681307,
    6.979240606103514e-06, 2.242976663982973e-07,
)  # fmt: skip
_TAIL_UNDER_F64 = (
    1.0, 2.453834394624845, 2.817249353316276, 2.0016919334624697, 0.9802694827484577,
    0.34839359451160334, 0.09200207763601981, 0.018126249406456758, 0.0026246437151171607,
    0.0002678130642469073, 1.74943618387415e-05, 5.622308725275963e-07,
)  # fmt: skip


def erf(c: FloatCode, x: Operand) -> Operand:
    """Compute erf(x).

    In f32 it is a quotient of polynomials, with an error of at most 4.4 ulp (more than 4 at five of
    a million arguments). In f64 it is an odd polynomial near zero, and elsewhere 1 minus twice the
    tail of the normal distribution.
    """
    size = c.abs(x)
    bounded = c.at_most(size, c.of(_ERF_END, _ERF_END_F64))
    if not c.double:
        t = c.fma(bounded, bounded, -_ERF_CENTER)
        over = c.mul(bounded, c.by_pairs(t, _ERF_OVER))
        quotient = c.div(over, c.by_pairs(t, _ERF_UNDER))
        # Rounding may take the quotient above 1.
        return c.signed_as(c.at_most(quotient, 1.0), x)
    near = c.mul(size, c.polynomial(c.mul(x, x), _ERF_F64))
    square, rest = c.product(bounded, bounded)
    decay = exp(c, c.neg(square), c.neg(rest))
    tail = c.mul(decay, _tail(c, c.mul(bounded, math.sqrt(2))))
    return c.signed_as(c.select(c.less(size, 1.0), near, c.fma(tail, -2.0, 1.0)), x)


def gelu(c: FloatCode, x: Operand) -> Operand:
    """Compute max(x, 0) - |x| * tail(|x|), with the upper tail of the normal distribution, so that
    no digits cancel.

    The tail is exp(-x^2 / 2), with an exactly represented argument, times a quotient of
    polynomials. The power of two is applied last, so that a normal result does not lose bits to a
    subnormal tail. For large negative x, where 1 + erf(x / sqrt(2)) rounds to 0, the error grows to
    4.6 ulp in f32 and 7 ulp in f64.
    """
    size = c.at_most(c.abs(x), c.of(15.0, 39.5))  # Beyond, the product with the tail is 0.
    square, rest = c.product(size, size)
    parts = c.reduced(c.mul(square, -0.5), c.mul(rest, -0.5))
    lost = parts.times(parts.mantissa_times(c.mul(size, _tail(c, size))))
    value = c.sub(c.select(c.less(x, 0.0), -0.0, x), lost)
    return c.select(c.equal(x, -math.inf), math.nan, value)  # The formula has infinity times 0.


def _tail(c: FloatCode, size: Operand) -> Operand:
    over, under = (_TAIL_OVER_F64, _TAIL_UNDER_F64) if c.double else (_TAIL_OVER, _TAIL_UNDER)
    return c.div(c.polynomial(size, over), c.polynomial(size, under))
