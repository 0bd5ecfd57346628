"""The emission of trigonometric functions and their inverses.

An angle is reduced in f64 to a quadrant and a remainder of at most pi / 4. Multiples of pi / 2 are
subtracted in three parts as long as that is exact; vectors with a larger angle call the function in
`far_angles`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from farrier.ir import instr
from farrier.ir.instr import Branch, Joined, Operand, vector
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.far_angles import far_angles
from farrier.targets.llvm.float_code import FloatCode

# The Taylor series on |r| <= pi / 4: the first terms left out, r^19 / 19! and r^20 / 20!, are below
# 2^-62.
_SIN = tuple((-1) ** (k + 1) / math.factorial(2 * k + 3) for k in range(8))
_COS = tuple((-1) ** k / math.factorial(2 * k) for k in range(10))
# The sum is pi / 2, in parts of 33 bits, whose products with an integer of 20 bits are exact in
# f64.
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21)
_NEAR = 2.0**20  # Angles below it are less than 2^20 quadrants.
# (atan(t) - t) / t^3 in t^2 on |t| <= tan(pi / 8), to 2^-30 (f32) and to 2^-59 (f64).
_ATAN = (-0.33333315222383114, 0.19998471320436695, -0.1424350339376068, 0.10593450688925743,
         -0.06077018263844818)  # fmt: skip
_ATAN_F64 = (
    -0.333333333333332, 0.19999999999953635, -0.1428571428018822, 0.11111110782644948,
    -0.09090897726739426, 0.07692059568942987, -0.06663095901922055, 0.05847825434381598,
    -0.0503900015308233, 0.03805646973540337, -0.017898021569655292,
)  # fmt: skip
# (asin(t) - t) / t^3 in t^2 on |t| <= 1/2, to 2^-27.6 (f32) and to 2^-59 (f64).
_ASIN = (0.16666752047402125, 0.07495312255825998, 0.04546882075245202, 0.024186098886712273,
         0.0421566174579592)  # fmt: skip
_ASIN_F64 = (
    0.16666666666666757, 0.07499999999971313, 0.04464285717420883, 0.030381942724445537,
    0.022372214571549857, 0.017351618767866946, 0.013980746345499203, 0.01139947457235368,
    0.010777308644909908, 0.0037168678567061713, 0.02168337585796995, -0.020966684760505012,
    0.0326092986538815,
)  # fmt: skip
# pi / 2 rounded to the type, and the rounding error. Keys: is f64.
_RIGHT_ANGLE = {True: 1.5707963267948966, False: 1.57079637050628662}
_RIGHT_ANGLE_REST = {True: 6.123233995736766e-17, False: -4.371139000186241e-08}


def sine(quadrants: int) -> Callable[[FloatCode, Operand], Operand]:
    """Return the emitter of sin(x + quadrants * pi / 2): the sine for `quadrants` 0, the cosine for
    1."""

    def expand(c: FloatCode, x: Operand) -> Operand:
        if not c.double:
            wide = c.as_double()
            return c.truncated(wide, expand(wide, c.extended(x)))
        r, quadrant = _reduced(c, x)
        sine, cosine = _both(c, r)
        number = c.int_op(instr.ADD, quadrant, quadrants)
        value = c.select(c.bit(number, 1), cosine, sine)
        value = c.select(c.bit(number, 2), c.neg(value), value)
        # sin(-0) is -0.
        return value if quadrants else c.select(c.equal(x, 0.0), x, value)

    return expand


def tan(c: FloatCode, x: Operand) -> Operand:
    """Compute tan(x) as sine over cosine of the remainder, or as -cosine over sine in odd
    quadrants."""
    if not c.double:
        wide = c.as_double()
        return c.truncated(wide, tan(wide, c.extended(x)))
    r, quadrant = _reduced(c, x)
    sine, cosine = _both(c, r)
    odd = c.bit(quadrant, 1)
    over = c.select(odd, c.neg(cosine), sine)
    value = c.div(over, c.select(odd, sine, cosine))
    return c.select(c.equal(x, 0.0), x, value)


def _both(c: FloatCode, r: Operand) -> tuple[Operand, Operand]:
    square = c.mul(r, r)
    sine = c.fma(c.mul(square, r), c.polynomial(square, _SIN), r)
    return sine, c.polynomial(square, _COS)


def _reduced(c: FloatCode, x: Operand) -> tuple[Operand, Operand]:
    """Return an angle's distance from the nearest multiple of pi / 2, and the number of that
    multiple in the low bits of an integer. The distance is NaN for an infinite angle."""
    turns, bits = c.round(c.mul(x, 2 / math.pi))
    r = x
    for part in _HALF_PI:
        r = c.fma(turns, -part, r)
    b = c.b
    is_far = b.fcmp("oge", c.abs(x), c.const(_NEAR))
    any_far = is_far if c.lanes == 1 else _any(b, is_far, c.lanes)
    number = b.labels(2)
    with b.nested() as far:
        function = far_angles(c.kind, _NEAR)
        both = instr.struct_of(c.kind, c.bits)
        angles = b.emit(instr.CALL, both, (function, x, r, bits))
        parts = b.part(angles, 0), b.part(angles, 1)
    joined = [
        Joined(b.variable(part.type, "joined"), part, near)
        for part, near in zip(parts, (r, bits), strict=True)
    ]
    b.body.append(Branch(any_far, far, [], joined, number))
    remainder, quadrant = joined
    return remainder.variable, quadrant.variable


def _any(b: Builder, mask: Operand, lanes: int) -> Operand:
    bits = b.bitcast(mask, vector(f"i{lanes}"))
    return b.icmp("ne", bits, instr.number_of(bits.type, 0))


def atan(c: FloatCode, x: Operand) -> Operand:
    """Compute atan(x) by a polynomial, after reducing |x| to one of three ranges. Up to tan(pi /
    8), the argument is x itself. Up to 1 / tan(pi / 8), the result is pi / 4 plus a polynomial of
    (|x| - 1) / (|x| + 1). Above, it is pi / 2 plus a polynomial of -1 / |x|."""
    size = c.abs(x)
    is_middle, is_far = c.less(math.tan(math.pi / 8), size), c.less(1 / math.tan(math.pi / 8), size)
    over = c.select(is_far, -1.0, c.select(is_middle, c.sub(size, 1.0), size))
    under = c.select(is_far, size, c.select(is_middle, c.add(size, 1.0), 1.0))
    t = c.div(over, under)
    angle = _odd(c, t, c.mul(t, t), _ATAN_F64 if c.double else _ATAN)
    right, rest = _RIGHT_ANGLE[c.double], _RIGHT_ANGLE_REST[c.double]
    base = c.select(is_far, right, c.select(is_middle, right / 2, 0.0))
    low = c.select(is_far, rest, c.select(is_middle, rest / 2, 0.0))
    return c.signed_as(c.add(base, c.add(angle, low)), x)


def asin(c: FloatCode, x: Operand) -> Operand:
    """Compute asin(x): for |x| up to 1/2 by a polynomial, then as pi / 2 - 2 asin(sqrt((1 - |x|) /
    2))."""
    is_near, angle = _arc(c, x)
    right, rest = _RIGHT_ANGLE[c.double], _RIGHT_ANGLE_REST[c.double]
    far = c.add(c.fma(angle, -2.0, right), rest)
    return c.signed_as(c.select(is_near, angle, far), x)


def acos(c: FloatCode, x: Operand) -> Operand:
    """Compute acos(x) as pi / 2 - asin(x) for |x| up to 1/2; beyond, as 2 asin(sqrt((1 - |x|) / 2))
    for positive x, and as pi minus that for negative x."""
    is_near, angle = _arc(c, x)
    right, rest = _RIGHT_ANGLE[c.double], _RIGHT_ANGLE_REST[c.double]
    near = c.sub(right, c.sub(c.signed_as(angle, x), rest))
    twice = c.add(angle, angle)
    mirrored = c.add(c.sub(2 * right, twice), 2 * rest)
    return c.select(is_near, near, c.select(c.less(x, 0.0), mirrored, twice))


def _arc(c: FloatCode, x: Operand) -> tuple[Operand, Operand]:
    """Return the condition |x| < 1/2, and an angle: asin(|x|) where the condition holds, and
    asin(sqrt((1 - |x|) / 2)) elsewhere."""
    size = c.abs(x)
    is_near = c.less(size, 0.5)
    square = c.select(is_near, c.mul(size, size), c.mul(c.sub(1.0, size), 0.5))
    root = c.select(is_near, size, c.intrinsic("sqrt", square))
    return is_near, _odd(c, root, square, _ASIN_F64 if c.double else _ASIN)


def _odd(c: FloatCode, t: Operand, square: Operand, series: tuple[float, ...]) -> Operand:
    """Compute t + t^3 * series(t^2); `square` is t^2."""
    return c.fma(c.mul(t, square), c.polynomial(square, series), t)
