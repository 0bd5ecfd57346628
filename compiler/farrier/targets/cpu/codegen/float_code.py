"""Instructions on vectors of one float type, from which elementary functions are put together.

What every function begins or ends with is here as well: the reduction of an exponential's argument,
and the multiplication by a power of two.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from farrier.ir.types import DType
from farrier.targets.cpu.codegen.builder import Builder
from farrier.targets.cpu.codegen.text import literal, type_of, vector

# (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2, its Chebyshev interpolant; exp is good to 2^-27
_EXP = (0.50000000142862, 0.16666666682534687, 0.041666456809676435,
        0.008333310024155282, 0.001393454192860991, 0.00019891981350687228)  # fmt: skip
_EXP_F64 = tuple(1 / math.factorial(k + 2) for k in range(12))  # Taylor's: r^14 / 14! < 2^-57
LN2_HIGH = {True: 0.693145751953125, False: 0.693359375}  # few bits: n times it is exact
LN2_LOW = {True: 1.4286068203094172321e-6, False: math.log(2) - 0.693359375}  # the rest


class FloatCode:
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

    def as_double(self) -> FloatCode:
        return FloatCode(self.b, DType.F64, self.lanes)

    def extended(self, x: str) -> str:
        return self.b.pure(f"fpext {self.kind} {x} to {self.as_double().kind}")

    def truncated(self, wide: FloatCode, x: str) -> str:
        """A value of `wide`, rounded to this type."""
        return self.b.pure(f"fptrunc {wide.kind} {x} to {self.kind}")

    def const(self, x: str | float) -> str:
        return x if isinstance(x, str) else literal(float(x), self.dtype, self.lanes).text

    def integer(self, x: str | int) -> str:
        return x if isinstance(x, str) else literal(x, self.int_dtype, self.lanes).text

    def of(self, single: float, double: float) -> float:
        """The constant of f32, or that of f64."""
        return double if self.double else single

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

    def neg(self, x: str) -> str:
        return self.b.pure(f"fneg {self.kind} {x}")

    def abs(self, x: str) -> str:
        return self.intrinsic("fabs", x)

    def signed_as(self, x: str, sign: str) -> str:
        """`x` with the sign of `sign`."""
        return self.intrinsic("copysign", x, sign)

    def fma(self, x: str | float, y: str | float, z: str | float) -> str:
        return self.b.overloaded("fmuladd", self.kind, self.const(x), self.const(y), self.const(z))

    def product(self, x: str | float, y: str | float) -> tuple[str, str]:
        """x · y rounded, and its rounding error: 0 on a machine without multiply-add."""
        rounded = self.mul(x, y)
        return rounded, self.fma(x, y, self.neg(rounded))

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """By Horner's rule; the constant coefficient first."""
        total = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self.fma(total, x, coefficient)
        return total

    def by_pairs(self, x: str, coefficients: Sequence[float]) -> str:
        """A polynomial of an even number of coefficients, two at a time and then by Horner's rule
        in x²: half as long a chain, which adds up less rounding."""
        pairs = [
            self.fma(high, x, low)
            for low, high in zip(coefficients[::2], coefficients[1::2], strict=True)
        ]
        square = self.mul(x, x)
        total = pairs[-1]
        for pair in reversed(pairs[:-1]):
            total = self.fma(total, square, pair)
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

    def either(self, left: str, right: str) -> str:
        return self.b.pure(f"or {self.mask} {left}, {right}")

    def at_least(self, x: str, bound: float) -> str:
        """The greater of both; a NaN stays."""
        return self.select(self.less(x, bound), bound, x)

    def at_most(self, x: str, bound: float) -> str:
        """The smaller of both; a NaN stays."""
        return self.select(self.less(bound, x), bound, x)

    def int_op(self, name: str, x: str | int, y: str | int) -> str:
        return self.b.pure(f"{name} {self.bits} {self.integer(x)}, {self.integer(y)}")

    def to_bits(self, x: str) -> str:
        return self.b.pure(f"bitcast {self.kind} {x} to {self.bits}")

    def from_bits(self, x: str) -> str:
        return self.b.pure(f"bitcast {self.bits} {x} to {self.kind}")

    def bit(self, number: str, bit: int) -> str:
        """Whether an integer has a bit."""
        masked = self.int_op("and", number, bit)
        return self.b.pure(f"icmp ne {self.bits} {masked}, {self.integer(0)}")

    def bits_of(self, value: float) -> int:
        """A constant's bits."""
        return int.from_bytes(struct.pack("<d" if self.double else "<f", value), "little")

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

    def reduced(self, x: str, rest: str | None = None) -> Reduced:
        """exp(x + rest) in parts, of a `rest` far below 1 and a bounded x."""
        whole, bits = self.round(self.mul(x, 1 / math.log(2)))
        r = self.fma(whole, -LN2_HIGH[self.double], x)
        r = self.fma(whole, -LN2_LOW[self.double], r)
        if rest is not None:
            r = self.add(r, rest)
        series = self.polynomial(r, _EXP_F64 if self.double else _EXP)
        return Reduced(self, self.fma(self.mul(r, r), series, r), whole, bits)


class Reduced:
    """exp(n ln 2 + r) = 2 ** n * (1 + excess), with |r| <= ln(2) / 2, and n a float and in the low
    bits of an integer."""

    def __init__(self, code: FloatCode, excess: str, whole: str, bits: str) -> None:
        self.code, self.excess, self.whole, self._bits = code, excess, whole, bits

    @property
    def mantissa(self) -> str:
        return self.code.add(self.excess, 1.0)

    def exponent(self, more: int = 0) -> str:
        """n + more, as an integer."""
        return self.code.int_op("sub", self._bits, self.code.bits_of(self.code.magic) - more)

    def mantissa_times(self, x: str) -> str:
        """x * (1 + excess), rounded once."""
        return self.code.fma(x, self.excess, x)

    def times(self, x: str, where: str | None = None) -> str:
        """x * 2 ** n, or x where a condition does not hold. The power is applied in two halves
        where no instruction does, so that results overflow and underflow by degrees; each is
        normal if n is within twice the range of normal exponents."""
        c = self.code
        if c.scales:
            whole = self.whole if where is None else c.select(where, self.whole, 0.0)
            return c.scaled(x, whole)
        n = self.exponent()
        half = c.int_op("ashr", n, 1)
        for exponent in (half, c.int_op("sub", n, half)):
            factor = c.power_of_two(exponent)
            x = c.mul(x, factor if where is None else c.select(where, factor, 1.0))
        return x
