"""Elementary functions as straight-line vector code: no table, no branch, no libm.

Each reduces its argument to a short interval, where a polynomial is good to the last bits, and
puts the result together again; see J.-M. Muller, "Elementary Functions" (chapters 10 and 11).
Polynomials with literal coefficients are Chebyshev interpolants of the function named beside them,
quotients minimax fits, computed in f64; the others are Taylor series. Largest errors
(tests/codegen/test_math.py): exp 1e-7, log 2e-7, tanh 2e-7, erf 3e-7 in f32; 1e-13 in f64,
trigonometry below 1e6 radians.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from farrier.ir.special import EXP_NONPOSITIVE_END
from farrier.ir.types import DType
from farrier.targets.cpu.codegen.builder import Builder
from farrier.targets.cpu.codegen.text import Value, literal, type_of, vector

# (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2
_EXP = (0.50000000142862, 0.16666666682534687, 0.041666456809676435,
        0.008333310024155282, 0.001393454192860991, 0.00019891981350687228)  # fmt: skip
# (log(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) <= 1 + f <= sqrt(2)
_LOG = (0.3333333118003176, -0.24999996957953924, 0.2000071574878935, -0.1666780231926027,
        0.14249057647505176, -0.12425687336802481, 0.11685419915841033, -0.11479733811890441,
        0.06971611446083988)  # fmt: skip
# (tanh(x) - x) / x^3 in x^2 <= 0.4
_TANH = (-0.33333333149373706, 0.1333330014615991, -0.05395846162426815,
         0.02176250289236752, -0.008323187026469735, 0.00226950165917333)  # fmt: skip
# erf(x) / x in x^2, as a quotient, on |x| <= 3.925, where erf(x) is 1 in f32
_ERF_OVER = (1.1283791459752892, 0.190576814975049, 0.052767091365321345,
             0.0037718408339770253, 0.00028483040998693163, 2.0461875538986313e-06)  # fmt: skip
_ERF_UNDER = (1.0, 0.502227038119125, 0.11417575150974889, 0.014981765072023638,
              0.001163691764736051, 3.8048766237636246e-05)  # fmt: skip
_ERF_END = 3.925
# log(erfc(x)) in (x - 3.5) / 2.5 on 1 <= x <= 6
_LOG_ERFC_F64 = (
    -14.112437402148169, -18.165248970912632, -6.042206592141246, -0.08165090975349637,
    0.034128411170295414, -0.014384547465644455, 0.005953703144261893, -0.002374006238912759,
    0.0008935866772648408, -0.00030777003258983574, 9.085584394436964e-05,
    -1.8636007885396704e-05, -1.351246253541735e-06, 4.889687150135868e-06,
    -3.649146755549278e-06, 1.5196625518228311e-06, -6.544732536016203e-07,
    6.67748789785062e-07, -3.1045926704477e-07, -6.833229484686136e-08, 6.120087501137137e-08,
)  # fmt: skip

_EXP_F64 = tuple(1 / math.factorial(k + 2) for k in range(17))
_LOG_F64 = tuple(2 / (2 * k + 3) for k in range(11))
_ERF_F64 = tuple(
    2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(19)
)
_SIN = tuple((-1) ** (k + 1) / math.factorial(2 * k + 3) for k in range(8))
_COS = tuple((-1) ** k / math.factorial(2 * k) for k in range(10))
# pi / 2 in parts of 33 bits, so that a product with a small integer is exact
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21)


def expand(b: Builder, name: str, x: Value) -> str:
    """The SSA value of the function `name` of `x`: exp, log, tanh, erf, sin or cos."""
    return _EXPANSIONS[name](_Code(b, x.dtype, x.lanes), x.text)


def power(b: Builder, base: Value, exponent: Value) -> str:
    """`base ** exponent` on floats with C's conventions for zeros, infinities and NaN."""
    code = _Code(b, base.dtype, base.lanes)
    if exponent.const is not None and exponent.const in _SIMPLE_POWERS:
        return _SIMPLE_POWERS[exponent.const](code, base.text)
    if code.double:
        return _power(code, base.text, exponent.text)
    wide = code.as_double()
    result = _power(wide, code.extended(base.text), code.extended(exponent.text))
    return b.pure(f"fptrunc {wide.kind} {result} to {code.kind}")


class _Code:
    """Instructions on values of one float type; operands are SSA names or Python numbers."""

    def __init__(self, b: Builder, dtype: DType, lanes: int) -> None:
        self.b = b
        self.dtype = DType.F32 if dtype.is_narrow_float else dtype  # of the register
        self.lanes = lanes
        self.double = dtype is DType.F64
        self.kind = type_of(dtype, lanes)
        self.bits = vector("i64" if self.double else "i32", lanes)
        self.mask = vector("i1", lanes)
        self.int_dtype = DType.I64 if self.double else DType.I32
        self.mantissa_bits = 52 if self.double else 23
        self.bias = 1023 if self.double else 127
        # Added to a small number, it leaves the nearest integer in the low bits of the mantissa.
        self.magic = 1.5 * 2.0**self.mantissa_bits

    def as_double(self) -> _Code:
        return _Code(self.b, DType.F64, self.lanes)

    def extended(self, x: str) -> str:
        return self.b.pure(f"fpext {self.kind} {x} to {self.as_double().kind}")

    def const(self, x: str | float) -> str:
        return x if isinstance(x, str) else literal(float(x), self.dtype, self.lanes).text

    def integer(self, x: str | int) -> str:
        return x if isinstance(x, str) else literal(x, self.int_dtype, self.lanes).text

    def op(self, name: str, x: str | float, y: str | float) -> str:
        return self.b.pure(f"{name} {self.kind} {self.const(x)}, {self.const(y)}")

    def add(self, x: str | float, y: str | float) -> str:
        return self.op("fadd", x, y)

    def sub(self, x: str | float, y: str | float) -> str:
        return self.op("fsub", x, y)

    def mul(self, x: str | float, y: str | float) -> str:
        return self.op("fmul", x, y)

    def div(self, x: str | float, y: str | float) -> str:
        return self.op("fdiv", x, y)

    def fma(self, x: str | float, y: str | float, z: str | float) -> str:
        return self.b.overloaded("fmuladd", self.kind, self.const(x), self.const(y), self.const(z))

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """By Horner's rule; the constant coefficient first."""
        total = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self.fma(total, x, coefficient)
        return total

    def intrinsic(self, name: str, *values: str | float) -> str:
        return self.b.overloaded(name, self.kind, *map(self.const, values))

    def less(self, x: str | float, y: str | float) -> str:
        return self.b.pure(f"fcmp olt {self.kind} {self.const(x)}, {self.const(y)}")

    def equal(self, x: str | float, y: str | float) -> str:
        return self.b.pure(f"fcmp oeq {self.kind} {self.const(x)}, {self.const(y)}")

    def select(self, condition: str, x: str | float, y: str | float) -> str:
        kind = self.kind
        return self.b.pure(
            f"select {self.mask} {condition}, {kind} {self.const(x)}, {kind} {self.const(y)}"
        )

    def int_op(self, name: str, x: str | int, y: str | int) -> str:
        return self.b.pure(f"{name} {self.bits} {self.integer(x)}, {self.integer(y)}")

    def to_bits(self, x: str) -> str:
        return self.b.pure(f"bitcast {self.kind} {x} to {self.bits}")

    def from_bits(self, x: str) -> str:
        return self.b.pure(f"bitcast {self.bits} {x} to {self.kind}")

    def round(self, x: str) -> tuple[str, str]:
        """The nearest integer of a small number, as a float and in the low bits of an integer."""
        shifted = self.add(x, self.magic)
        return self.sub(shifted, self.magic), self.to_bits(shifted)

    def power_of_two(self, exponent: str) -> str:
        """2 ** exponent of an integer vector within the range of normal exponents."""
        biased = self.int_op("add", exponent, self.bias)
        return self.from_bits(self.int_op("shl", biased, self.mantissa_bits))

    @property
    def scales(self) -> bool:
        """Whether the target multiplies by powers of two with one instruction."""
        known = self.b.instructions
        is_alike = not self.double and known.scale_bits == 32 * self.lanes
        return known.scale is not None and is_alike

    def scaled(self, x: str, exponent: str, mask: str = "-1") -> str:
        """x * 2 ** exponent of whole numbers, by the target's own instruction, rounded once; 0
        where no bit of `mask` is set, an i16."""
        scale = self.b.instructions.scale
        assert scale is not None  # as `scales` says
        return scale(self.b, self.kind, x, exponent, self.lanes, mask)


def _exp_nonpositive(c: _Code, x: str) -> str:
    """exp(x) of x <= 0; 0 where that is no normal number, so nothing overflows or underflows."""
    end = EXP_NONPOSITIVE_END[c.double]
    if c.scales:
        mantissa, whole, _ = _reduced_exp(c, x)
        kept = c.b.pure(f"fcmp uge {c.kind} {x}, {c.const(end)}")  # a NaN stays
        return c.scaled(mantissa, whole, c.b.pure(f"bitcast {c.mask} {kept} to i{c.lanes}"))
    below = c.less(x, end)
    mantissa, _, bits = _reduced_exp(c, c.select(below, end, x))
    n = c.int_op("sub", bits, _bits_of(c.magic, c.double))
    return c.select(below, 0.0, c.mul(mantissa, c.power_of_two(n)))


def _exp(c: _Code, x: str) -> str:
    """2^n * exp(r) with n the nearest integer of x / ln 2. The power is applied in two halves, so
    that results overflow and underflow by degrees."""
    low, high = (-746.0, 710.0) if c.double else (-104.0, 89.0)
    x = c.select(c.less(high, x), high, x)  # a NaN stays
    x = c.select(c.less(x, low), low, x)
    mantissa, whole, bits = _reduced_exp(c, x)
    if c.scales:
        return c.scaled(mantissa, whole)
    n = c.int_op("sub", bits, _bits_of(c.magic, c.double))
    half = c.int_op("ashr", n, 1)
    rest = c.int_op("sub", n, half)
    return c.mul(c.mul(mantissa, c.power_of_two(half)), c.power_of_two(rest))


def _reduced_exp(c: _Code, x: str) -> tuple[str, str, str]:
    """exp(r) with x = n * ln 2 + r, and n, the nearest integer of x / ln 2, as a float and in the
    low bits of an integer."""
    whole, bits = c.round(c.mul(x, 1 / math.log(2)))
    # ln 2 in a part of few bits, whose product with n is exact, and the rest
    high_part = 0.693145751953125 if c.double else 0.693359375
    r = c.fma(whole, -high_part, x)
    r = c.fma(whole, _LN2_REST if c.double else -(math.log(2) - high_part), r)
    series = c.polynomial(r, _EXP_F64[:12] if c.double else _EXP)
    return c.add(c.fma(c.mul(r, r), series, r), 1.0), whole, bits


_LN2_REST = -1.4286068203094172321e-6  # 0.693145751953125 - ln 2


def _log(c: _Code, x: str) -> str:
    """e * ln 2 + log(m) with x = 2^e * m, sqrt(1/2) <= m < sqrt(2)."""
    smallest = 2.0**-1022 if c.double else 2.0**-126
    shift = c.mantissa_bits
    is_tiny = c.less(x, smallest)
    normal = c.select(is_tiny, c.mul(x, 2.0**shift), x)
    bits = c.to_bits(normal)
    # Subtract the bits of sqrt(1/2) so that the exponent field counts from there.
    offset = c.int_op("sub", bits, _bits_of(math.sqrt(0.5), c.double))
    exponent = c.int_op("ashr", offset, c.mantissa_bits)
    m = c.from_bits(c.int_op("sub", bits, c.int_op("shl", exponent, c.mantissa_bits)))
    e = c.b.pure(f"sitofp {c.bits} {exponent} to {c.kind}")
    e = c.sub(e, c.select(is_tiny, float(shift), 0.0))
    f = c.sub(m, 1.0)
    if c.double:
        # log(m) = 2 atanh(f / (2 + f))
        s = c.div(f, c.add(f, 2.0))
        z = c.mul(s, s)
        tail = c.mul(c.mul(s, z), c.polynomial(z, _LOG_F64))
        result = c.fma(e, -_LN2_REST, c.fma(s, 2.0, tail))
        result = c.fma(e, 0.693145751953125, result)
    else:
        square = c.mul(f, f)
        tail = c.mul(c.mul(f, square), c.polynomial(f, _LOG))
        tail = c.fma(e, math.log(2) - 0.693359375, tail)
        result = c.add(c.fma(square, -0.5, tail), f)
        result = c.fma(e, 0.693359375, result)
    result = c.select(c.equal(x, math.inf), math.inf, result)
    result = c.select(c.equal(x, 0.0), -math.inf, result)
    # What is not at least zero, a NaN included, has no logarithm.
    valid = c.b.pure(f"fcmp oge {c.kind} {x}, {c.const(0.0)}")
    return c.select(valid, result, math.nan)


def _tanh(c: _Code, x: str) -> str:
    """An odd polynomial near zero, 1 - 2 / (exp(2 |x|) + 1) elsewhere."""
    size = c.intrinsic("fabs", x)
    twice = c.add(size, size)
    if c.double:
        small = c.fma(c.mul(twice, twice), c.polynomial(twice, _EXP_F64), twice)
        near = c.div(small, c.add(small, 2.0))
        is_near = c.less(twice, 0.69)
    else:
        square = c.mul(x, x)
        near = c.fma(c.mul(size, square), c.polynomial(square, _TANH), size)
        is_near = c.less(size, 0.625)
    far = c.sub(1.0, c.div(2.0, c.add(_exp(c, twice), 1.0)))
    return c.intrinsic("copysign", c.select(is_near, near, far), x)


def _erf(c: _Code, x: str) -> str:
    """A quotient of polynomials in f32; in f64 an odd polynomial near zero and
    1 - exp(log(erfc(|x|))) elsewhere."""
    size = c.intrinsic("fabs", x)
    end = 6.0 if c.double else _ERF_END
    bounded = c.select(c.less(end, size), end, size)  # a NaN stays
    if not c.double:
        square = c.mul(bounded, bounded)
        over = c.mul(bounded, c.polynomial(square, _ERF_OVER))
        quotient = c.div(over, c.polynomial(square, _ERF_UNDER))
        # Its last rounding may exceed one.
        return c.intrinsic("copysign", c.select(c.less(1.0, quotient), 1.0, quotient), x)
    near = c.mul(size, c.polynomial(c.mul(x, x), _ERF_F64))
    exponent = c.polynomial(c.mul(c.sub(bounded, 3.5), 0.4), _LOG_ERFC_F64)
    far = c.sub(1.0, _exp(c, exponent))
    return c.intrinsic("copysign", c.select(c.less(size, 1.0), near, far), x)


def _sine(quadrant: int) -> Callable[[_Code, str], str]:
    """sin for quadrant 0; cos, a quarter turn ahead, for 1."""

    def expand_sine(c: _Code, x: str) -> str:
        if not c.double:
            wide = c.as_double()
            result = expand_sine(wide, c.extended(x))
            return c.b.pure(f"fptrunc {wide.kind} {result} to {c.kind}")
        turns, bits = c.round(c.mul(x, 2 / math.pi))
        r = x
        for part in _HALF_PI:
            r = c.fma(turns, -part, r)
        # Beyond a million turns the reduction fails; the result stays bounded.
        r = c.select(c.less(r, -1.0), -1.0, c.select(c.less(1.0, r), 1.0, r))
        square = c.mul(r, r)
        sine = c.fma(c.mul(square, r), c.polynomial(square, _SIN), r)
        cosine = c.polynomial(square, _COS)
        number = c.int_op("add", bits, quadrant)
        odd = _bit(c, number, 1)
        negative = _bit(c, number, 2)
        value = c.select(odd, cosine, sine)
        return c.select(negative, c.b.pure(f"fneg {c.kind} {value}"), value)

    return expand_sine


def _power(c: _Code, x: str, y: str) -> str:
    """exp(y log |x|), its sign and special values."""
    size = c.intrinsic("fabs", x)
    result = _exp(c, c.mul(y, _log(c, size)))
    whole = c.equal(c.intrinsic("floor", y), y)
    half = c.mul(y, 0.5)
    even = c.equal(c.intrinsic("floor", half), half)
    negative = c.less(x, 0.0)
    flipped = c.select(even, result, c.b.pure(f"fneg {c.kind} {result}"))
    signed = c.select(whole, flipped, math.nan)
    # (-inf) ** y has a value for every y.
    signed = c.select(c.equal(x, -math.inf), c.select(whole, flipped, result), signed)
    result = c.select(negative, signed, result)
    one_or_more = c.b.pure(f"or {c.mask} {c.equal(x, 1.0)}, {c.equal(y, 0.0)}")
    # |x| == 1 with an infinite exponent: 0 * inf is NaN, the power is 1.
    ones = c.b.pure(
        f"and {c.mask} {c.equal(size, 1.0)}, {c.equal(c.intrinsic('fabs', y), math.inf)}"
    )
    return c.select(c.b.pure(f"or {c.mask} {one_or_more}, {ones}"), 1.0, result)


def _bit(c: _Code, number: str, bit: int) -> str:
    return c.b.pure(f"icmp ne {c.bits} {c.int_op('and', number, bit)}, {c.integer(0)}")


def _bits_of(value: float, double: bool) -> int:
    return int.from_bytes(struct.pack("<d" if double else "<f", value), "little")


_EXPANSIONS: dict[str, Callable[[_Code, str], str]] = {
    "exp": _exp,
    "exp_nonpositive": _exp_nonpositive,
    "log": _log,
    "tanh": _tanh,
    "erf": _erf,
    "sin": _sine(0),
    "cos": _sine(1),
}


def _three_quarters(c: _Code, x: str) -> str:
    """x ** 0.75, of local response normalization."""
    root = c.intrinsic("sqrt", x)
    product = c.mul(root, c.intrinsic("sqrt", root))
    return c.select(c.equal(x, -math.inf), math.inf, product)


_SIMPLE_POWERS: dict[Any, Callable[[_Code, str], str]] = {
    0: lambda c, x: c.const(1.0),
    1: lambda c, x: x,
    2: lambda c, x: c.mul(x, x),
    3: lambda c, x: c.mul(c.mul(x, x), x),
    -1: lambda c, x: c.div(1.0, x),
    0.5: lambda c, x: c.select(c.equal(x, -math.inf), math.inf, c.intrinsic("sqrt", x)),
    0.75: _three_quarters,
}
