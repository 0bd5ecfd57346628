"""The emitter of floating-point instructions from which elementary functions are built.

It includes steps that many functions share: the reduction of an exponential's argument, and the
multiplication by a power of two.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from farrier.ir import instr
from farrier.ir.instr import Operand, Operation, vector
from farrier.ir.types import DType
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.values import literal, type_of

# The Chebyshev interpolant of (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2; exp is good to 2^-27.
_EXP = (0.50000000142862, 0.16666666682534687, 0.041666456809676435,
        0.008333310024155282, 0.001393454192860991, 0.00019891981350687228)  # fmt: skip
# The Taylor series of the same for f64: the first term left out is r^14 / 14! < 2^-57.
_EXP_F64 = tuple(1 / math.factorial(k + 2) for k in range(12))
# The sum of the two is ln 2; the high part has few bits, so that its product with n is exact. Keys:
# is f64.
LN2_HIGH = {True: 0.693145751953125, False: 0.693359375}
LN2_LOW = {True: 1.4286068203094172321e-6, False: math.log(2) - 0.693359375}


class FloatCode:
    """The emitter of instructions on scalars or vectors of one float type. Operands are results of
    instructions, or Python numbers."""

    def __init__(self, b: Builder, dtype: DType, lanes: int) -> None:
        self.b = b
        # Registers hold narrow floats as f32.
        self.dtype = DType.F32 if dtype.is_narrow_float else dtype
        self.lanes = lanes
        self.double = dtype is DType.F64
        self.kind = type_of(dtype, lanes)
        self.bits = vector("i64" if self.double else "i32", lanes)
        self.mask = vector("i1", lanes)
        self.int_dtype = DType.I64 if self.double else DType.I32
        self.mantissa_bits = 52 if self.double else 23
        self.bias = 1023 if self.double else 127
        # Adding it to a small number rounds that to an integer, in the low bits of the mantissa.
        self.magic = 1.5 * 2.0**self.mantissa_bits

    def as_double(self) -> FloatCode:
        return FloatCode(self.b, DType.F64, self.lanes)

    def extended(self, x: Operand) -> Operand:
        return self.b.convert(instr.FPEXT, x, self.as_double().kind)

    def truncated(self, wide: FloatCode, x: Operand) -> Operand:
        """Emit the conversion of `x`, a value of the wider float type of `wide`, to this emitter's
        type, rounded to nearest."""
        return self.b.convert(instr.FPTRUNC, x, self.kind)

    def const(self, x: Operand | float) -> Operand:
        if isinstance(x, float | int):
            return literal(float(x), self.dtype, self.lanes).operand
        return x

    def integer(self, x: Operand | int) -> Operand:
        return literal(x, self.int_dtype, self.lanes).operand if isinstance(x, int) else x

    def of(self, single: float, double: float) -> float:
        """Return the constant for this type: `single` for f32, `double` for f64."""
        return double if self.double else single

    def op(self, operation: Operation, x: Operand | float, y: Operand | float) -> Operand:
        return self.b.pure(operation, self.kind, (self.const(x), self.const(y)))

    def add(self, x: Operand | float, y: Operand | float) -> Operand:
        return self.op(instr.FADD, x, y)

    def sub(self, x: Operand | float, y: Operand | float) -> Operand:
        return self.op(instr.FSUB, x, y)

    def mul(self, x: Operand | float, y: Operand | float) -> Operand:
        return self.op(instr.FMUL, x, y)

    def div(self, x: Operand | float, y: Operand | float) -> Operand:
        return self.op(instr.FDIV, x, y)

    def neg(self, x: Operand) -> Operand:
        return self.b.fneg(x)

    def abs(self, x: Operand) -> Operand:
        return self.intrinsic("fabs", x)

    def signed_as(self, x: Operand, sign: Operand) -> Operand:
        """Return `x` with the sign of `sign`."""
        return self.intrinsic("copysign", x, sign)

    def fma(self, x: Operand | float, y: Operand | float, z: Operand | float) -> Operand:
        return self.b.math("fmuladd", self.const(x), self.const(y), self.const(z))

    def product(self, x: Operand | float, y: Operand | float) -> tuple[Operand, Operand]:
        """Return x · y rounded, and its rounding error. Without fused multiply-add, the error is
        computed from the exact products of the factors' halves (T. J. Dekker, "A Floating-Point
        Technique for Extending the Available Precision", 1971)."""
        rounded = self.mul(x, y)
        if self.b.instructions.fuses:
            return rounded, self.fma(x, y, self.neg(rounded))
        (high, low), (other_high, other_low) = self._halves(x), self._halves(y)
        rest = self.sub(self.mul(high, other_high), rounded)
        rest = self.add(rest, self.mul(high, other_low))
        rest = self.add(rest, self.mul(low, other_high))
        return rounded, self.add(rest, self.mul(low, other_low))

    def sum_of_product(self, x: Operand, y: Operand | float, z: float) -> tuple[Operand, Operand]:
        """Return x · y + z rounded, and its rounding error, for |x · y| < |z|."""
        if self.b.instructions.fuses:
            total = self.fma(x, y, z)
            return total, self.fma(x, y, self.neg(self.sub(total, z)))
        product, rest = self.product(x, y)
        total = self.add(product, z)
        return total, self.add(self.sub(product, self.sub(total, z)), rest)

    def less_product(self, z: Operand, x: Operand, y: Operand) -> Operand:
        """Return z - x · y rounded once, for x · y so close to z that the difference between z and
        the rounded product is exact."""
        if self.b.instructions.fuses:
            return self.fma(self.neg(x), y, z)
        product, rest = self.product(x, y)
        return self.sub(self.sub(z, product), rest)

    def _halves(self, x: Operand | float) -> tuple[Operand, Operand]:
        """Return a number with the lower half of its mantissa bits cleared, and the remaining part
        of the number."""
        number = self.const(x)
        upper = -1 << self.mantissa_bits // 2 + 1
        high = self.from_bits(self.int_op(instr.AND, self.to_bits(number), upper))
        return high, self.sub(number, high)

    def polynomial(self, x: Operand, coefficients: Sequence[float]) -> Operand:
        """Evaluate a polynomial by Horner's rule. `coefficients` start with the constant term."""
        total = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self.fma(total, x, coefficient)
        return total

    def by_pairs(self, x: Operand, coefficients: Sequence[float]) -> Operand:
        """Evaluate a polynomial with an even number of coefficients: pairs of terms, combined by
        Horner's rule in x². The dependency chain is half as long as with Horner's rule alone, and
        rounding errors are smaller."""
        pairs = [
            self.fma(high, x, low)
            for low, high in zip(coefficients[::2], coefficients[1::2], strict=True)
        ]
        square = self.mul(x, x)
        total = pairs[-1]
        for pair in reversed(pairs[:-1]):
            total = self.fma(total, square, pair)
        return total

    def intrinsic(self, name: str, *values: Operand | float) -> Operand:
        return self.b.math(name, *map(self.const, values))

    def less(self, x: Operand | float, y: Operand | float) -> Operand:
        return self.b.fcmp("olt", self.const(x), self.const(y))

    def equal(self, x: Operand | float, y: Operand | float) -> Operand:
        return self.b.fcmp("oeq", self.const(x), self.const(y))

    def select(self, condition: Operand, x: Operand | float, y: Operand | float) -> Operand:
        return self.b.choose(condition, self.const(x), self.const(y))

    def either(self, left: Operand, right: Operand) -> Operand:
        return self.b.op(instr.OR, left, right)

    def at_least(self, x: Operand, bound: float) -> Operand:
        """Return the greater of `x` and `bound`; NaN if `x` is NaN."""
        return self.select(self.less(x, bound), bound, x)

    def at_most(self, x: Operand, bound: float) -> Operand:
        """Return the smaller of `x` and `bound`; NaN if `x` is NaN."""
        return self.select(self.less(bound, x), bound, x)

    def int_op(self, operation: Operation, x: Operand | int, y: Operand | int) -> Operand:
        return self.b.pure(operation, self.bits, (self.integer(x), self.integer(y)))

    def to_bits(self, x: Operand) -> Operand:
        return self.b.bitcast(x, self.bits)

    def from_bits(self, x: Operand) -> Operand:
        return self.b.bitcast(x, self.kind)

    def bit(self, number: Operand, bit: int) -> Operand:
        """Return the condition that the bit with value `bit` is set in an integer."""
        masked = self.int_op(instr.AND, number, bit)
        return self.b.icmp("ne", masked, self.integer(0))

    def bits_of(self, value: float) -> int:
        """Return the bit pattern of a constant of this type."""
        return int.from_bytes(struct.pack("<d" if self.double else "<f", value), "little")

    def round(self, x: Operand) -> tuple[Operand, Operand]:
        """Round `x`, which must be small, to the nearest integer by adding the constant `magic`
        (1.5 times a power of two, at which floats are one apart) and subtracting it again.
        Return the integer as a float, and the bits of the sum `x + magic`, whose low bits are
        the integer."""
        shifted = self.add(x, self.magic)
        return self.sub(shifted, self.magic), self.to_bits(shifted)

    def power_of_two(self, exponent: Operand) -> Operand:
        """Return 2 ** exponent for an integer vector within the range of normal exponents."""
        biased = self.int_op(instr.ADD, exponent, self.bias)
        return self.from_bits(self.int_op(instr.SHL, biased, self.mantissa_bits))

    @property
    def scales(self) -> bool:
        """Check whether the target multiplies these vectors by powers of two in one instruction."""
        instructions = self.b.instructions
        has_vectors = not self.double and instructions.scale_bits == 32 * self.lanes
        return instructions.scale is not None and has_vectors

    def scaled(self, x: Operand, exponent: Operand, mask: Operand | None = None) -> Operand:
        """Compute x * 2 ** exponent by the target's instruction, rounded once. `exponent` is a
        float vector with integral values; lanes whose bit in the i16 `mask` is not set become 0."""
        scale = self.b.instructions.scale
        assert scale is not None  # Callers check `scales`.
        return scale(self.b, x, exponent, mask or instr.number_of(instr.I16, -1))

    def reduced(self, x: Operand, rest: Operand | None = None) -> Reduced:
        """Return the reduced form of exp(x + rest), for |rest| far below 1 and a bounded x."""
        n, bits = self.round(self.mul(x, 1 / math.log(2)))
        r = self.fma(n, -LN2_HIGH[self.double], x)
        r = self.fma(n, -LN2_LOW[self.double], r)
        if rest is not None:
            r = self.add(r, rest)
        series = self.polynomial(r, _EXP_F64 if self.double else _EXP)
        return Reduced(self, self.fma(self.mul(r, r), series, r), n, bits)


class Reduced:
    """An exponential in reduced form: exp(x) = 2 ** n * (1 + excess), where n is the integer
    nearest to x / ln 2. `whole` is n as a float. `bits` is an integer vector with n in its low
    bits, as `FloatCode.round` returns it."""

    def __init__(self, code: FloatCode, excess: Operand, whole: Operand, bits: Operand) -> None:
        self.code, self.excess, self.whole, self._bits = code, excess, whole, bits

    @property
    def mantissa(self) -> Operand:
        return self.code.add(self.excess, 1.0)

    def exponent(self, more: int = 0) -> Operand:
        """Return n + more as an integer."""
        return self.code.int_op(instr.SUB, self._bits, self.code.bits_of(self.code.magic) - more)

    def mantissa_times(self, x: Operand) -> Operand:
        """Compute x * (1 + excess), rounded once."""
        return self.code.fma(x, self.excess, x)

    def times(self, x: Operand, where: Operand | None = None) -> Operand:
        """Compute x * 2 ** n in lanes where the condition `where` is true, and x in the others.

        If the target has no instruction for that, the power is applied in two halves, so that
        results overflow and underflow gradually. Each half is a normal number if n is within twice
        the range of normal exponents.
        """
        c = self.code
        if c.scales:
            exponent = self.whole if where is None else c.select(where, self.whole, 0.0)
            return c.scaled(x, exponent)
        n = self.exponent()
        half = c.int_op(instr.ASHR, n, 1)
        for exponent in (half, c.int_op(instr.SUB, n, half)):
            factor = c.power_of_two(exponent)
            x = c.mul(x, factor if where is None else c.select(where, factor, 1.0))
        return x
