"""A lane of the vector unit: its integer and floating-point operations, on 32-bit sums
(`instructions.Alu`).

Float additions, subtractions and products are computed as x · y + z with a single rounding,
including denormal numbers: a sum as x · 1 + z, a product as x · y − 0. The product is at a fixed
position in a word of 78 bits, and the addend is shifted relative to it. Bits of the addend that are
shifted out are combined into one sticky bit; so is the whole product under a far larger addend.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth import Cat, Const, Elaboratable, Mux, Signal, Value, signed
from amaranth import Module as Design

from farrier.targets.dae.instructions import QUANTIZE_BITS, Alu
from farrier.targets.dae.rtl.pipeline import Pipeline, leading_zeros

STAGES = 9
_NAN = 0x7FC00000
_ONE = 0x3F800000
_MINUS_ZERO = 0x80000000
_MANTISSA = 24  # Bits, with the highest one, which a word does not have.
_BELOW = 3  # Bits below the product, and between it and the addend's highest place.
_WIDTH = 2 * _MANTISSA + _MANTISSA + 2 + _BELOW  # 77, below a bit for the carry.
_TOP = _WIDTH - _MANTISSA  # The place of an addend that is far greater than the product.


# The operations whose results do not come from the arithmetic of floats.
_OF_INTEGERS = (
    *(Alu.MOVE, Alu.ADD, Alu.MIN, Alu.MAX, Alu.MULTIPLY, Alu.SHIFT, Alu.TO_FLOAT),
    *(Alu.FLOAT_MIN, Alu.FLOAT_MAX, Alu.QUANTIZE),
)


class Lane(Elaboratable):
    """One lane of the vector unit. `result` is the operation on `a`, `b`, `c` and the immediate,
    `registers` cycles after these were applied."""

    def __init__(self, registers: int) -> None:
        self._registers = registers
        self.operation = Signal(Alu)
        self.is_immediate = Signal()
        self.immediate = Signal(32)
        self.a, self.b, self.c, self.result = (Signal(32) for _ in range(4))

    def _is(self, *operations: Alu) -> Value:
        return Cat(*(self.operation == each for each in operations)).any()

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        pipe = Pipeline(m, STAGES, self._registers)
        b = Mux(self.is_immediate, self.immediate, self.b)
        v = pipe.end(a=self.a, b=b, c=self.c)
        # An integer as an f32: stages 2 and 3.
        magnitude = Signal(32)
        m.d.comb += magnitude.eq(Mux(v["a"][31], -v["a"], v["a"]))
        v = pipe.end(magnitude=magnitude, zeros=leading_zeros(m, magnitude), **v)
        shifted = Signal(32)
        m.d.comb += shifted.eq(v["magnitude"] << v["zeros"])
        sticky, half, odd = shifted[:7].any(), shifted[7], shifted[8]
        exponent = Mux(v["magnitude"] == 0, 0, 158 - v["zeros"])
        packed = Signal(32)
        m.d.comb += packed.eq(Cat(shifted[8:31], exponent[:8]) + (half & (odd | sticky)))
        converted = Cat(packed[:31], v["a"][31])
        x, y, z = self._operands(v, converted)
        v = pipe.end(x=x, y=y, z=z, converted=converted, a=v["a"], b=v["b"])
        v = self._multiply(m, pipe, v)
        v = self._add(m, pipe, v)
        v = self._round(m, pipe, v)
        m.d.comb += self.result.eq(v["result"])
        return m

    def _operands(self, v: Mapping[str, Value], converted: Value) -> tuple[Value, Value, Value]:
        """Return the factors x, y and the addend z of the current floating-point operation."""
        a, b, c, immediate = v["a"], v["b"], v["c"], self.immediate
        x = Mux(self._is(Alu.SCALE, Alu.SCALE_ADD), converted, a)
        x = Mux(self._is(Alu.ACCUMULATE), b, x)
        y = Mux(self._is(Alu.SCALE, Alu.FLOAT_MULTIPLY), b, _ONE)
        y = Mux(self._is(Alu.MULTIPLY_ADD, Alu.SCALE_ADD), immediate, y)
        y = Mux(self._is(Alu.ACCUMULATE), c, y)
        z = Mux(self._is(Alu.SCALE, Alu.FLOAT_MULTIPLY), _MINUS_ZERO, b)
        z = Mux(self._is(Alu.FLOAT_SUBTRACT), b ^ _MINUS_ZERO, z)
        z = Mux(self._is(Alu.ACCUMULATE), a, z)
        # Integers are multiplied by the same multipliers.
        is_product = self._is(Alu.MULTIPLY)
        return Mux(is_product, a, x), Mux(is_product, b, y), z

    def _multiply(self, m: Design, pipe: Pipeline, v: Mapping[str, Value]) -> Mapping[str, Value]:
        """Multiply in parts of 16 bits, and compute the addend's exponent relative to the product's
        in the same stages."""
        is_integer = self._is(Alu.MULTIPLY)
        parts = {name: _Float(v[name]) for name in ("x", "y", "z")}
        x, y, z = parts["x"], parts["y"], parts["z"]
        left = Mux(is_integer, v["x"], x.mantissa)[:32]
        right = Mux(is_integer, v["y"], y.mantissa)[:32]
        # The addend's lowest bit is `distance` places above the product's.
        distance = Signal(signed(11))
        exponent = Signal(signed(11))
        # Of the product's lowest bit. A zero has the least, so that it is below any addend.
        is_zero = x.is_zero | y.is_zero
        m.d.comb += exponent.eq(Mux(is_zero, 2, x.exponent + y.exponent) - 150)
        m.d.comb += distance.eq(z.exponent - exponent)
        is_nan = x.is_nan | y.is_nan | z.is_nan
        is_nan |= (x.is_infinite & y.is_zero) | (y.is_infinite & x.is_zero)
        sign = x.sign ^ y.sign
        infinite = x.is_infinite | y.is_infinite
        is_nan |= infinite & z.is_infinite & (sign != z.sign)
        v = pipe.end(
            low=left[:16] * right[:16],
            cross=left[:16] * right[16:],
            crossed=left[16:] * right[:16],
            high=left[16:24] * right[16:24],
            addend=z.mantissa,
            addend_sign=z.sign,
            addend_exponent=z.exponent,
            sign=sign,
            exponent=exponent,
            distance=distance,
            is_nan=is_nan,
            is_infinite=infinite | z.is_infinite,
            infinite_sign=Mux(infinite, sign, z.sign),
            other=self._other(m, v),
        )
        return v

    def _add(self, m: Design, pipe: Pipeline, v: Mapping[str, Value]) -> Mapping[str, Value]:
        product = Signal(48)
        m.d.comb += product.eq(v["low"] + ((v["cross"] + v["crossed"]) << 16) + (v["high"] << 32))
        # The addend moves down from its highest place, and leaves what falls out in the last bit.
        is_far = v["distance"] > _TOP - _BELOW
        down = Signal(range(128))
        m.d.comb += down.eq(
            Mux(
                is_far,
                0,
                Mux(v["distance"] < -(_WIDTH - _TOP + _BELOW), 127, _TOP - _BELOW - v["distance"]),
            )
        )
        out = 128 - _TOP  # The places below the word: no shift goes further.
        placed = Cat(Const(0, out + _TOP), v["addend"])
        moved = Signal(_WIDTH + out)
        m.d.comb += moved.eq(placed >> down)
        addend = Cat(moved[out] | moved[:out].any(), moved[out + 1 :])
        term = Mux(is_far, product.any(), product << _BELOW)
        base = Mux(is_far, v["addend_exponent"] - _TOP, v["exponent"] - _BELOW)
        kept = ("is_nan", "is_infinite", "infinite_sign", "sign")
        other = Mux(self._is(Alu.MULTIPLY), product[:32], v["other"])
        v = pipe.end(
            addend=addend,
            term=term[:_WIDTH],
            base=base,
            addend_sign=v["addend_sign"],
            other=Mux(self._is(Alu.QUANTIZE), self._bounded(m, v["other"]), other),
            **{name: v[name] for name in kept},
        )
        subtracts = v["sign"] ^ v["addend_sign"]
        total = Signal(signed(_WIDTH + 2))
        # One adder: the lowest bits make the carry that a negative addend needs.
        addend = Cat(v["addend"], Const(0, 2)) ^ subtracts.replicate(_WIDTH + 2)
        m.d.comb += total.eq((Cat(Const(1, 1), v["term"]) + Cat(subtracts, addend))[1:])
        keeps = ("is_nan", "is_infinite", "infinite_sign", "other", "base")
        v = pipe.end(
            total=total,
            sign=v["sign"],
            both_negative=v["sign"] & v["addend_sign"],
            **{name: v[name] for name in keeps},
        )
        magnitude = Signal(_WIDTH + 1)
        is_negative = v["total"][-1]
        m.d.comb += magnitude.eq(Mux(is_negative, -v["total"], v["total"]))
        sign = Mux(v["total"] == 0, v["both_negative"], v["sign"] ^ is_negative)
        # The lowest bit of a result ends up at `_TOP` + 1, and its exponent is 1 at least: a number
        # that is still smaller there is a denormal one.
        room = Signal(range(1024))
        m.d.comb += room.eq(v["base"] + _TOP)
        zeros = leading_zeros(m, magnitude)
        return pipe.end(
            magnitude=magnitude,
            sign=sign,
            zeros=zeros,
            room=room,
            **{name: v[name] for name in keeps if name != "base"},
        )

    def _round(self, m: Design, pipe: Pipeline, v: Mapping[str, Value]) -> Mapping[str, Value]:
        width = _WIDTH + 1
        shift = Signal(range(128))
        m.d.comb += shift.eq(Mux(v["zeros"] < v["room"], v["zeros"], v["room"]))
        shifted = Signal(width)
        m.d.comb += shifted.eq(v["magnitude"] << shift)
        keeps = ("is_nan", "is_infinite", "infinite_sign", "other", "sign")
        v = pipe.end(
            shifted=shifted,
            exponent=(v["room"] - shift + 1)[:10],
            **{name: v[name] for name in keeps},
        )
        cut = width - _MANTISSA
        mantissa, half = v["shifted"][cut:], v["shifted"][cut - 1]
        sticky = v["shifted"][: cut - 1].any()
        is_normal = mantissa[-1]
        up = half & (mantissa[0] | sticky)
        packed = Signal(33)
        m.d.comb += packed.eq(Cat(mantissa[:-1], Mux(is_normal, v["exponent"], 0)[:9]) + up)
        is_infinite = v["is_infinite"] | (is_normal & (v["exponent"] > 254)) | (packed[23:] >= 255)
        of_floats = Signal(32)
        infinity = Cat(Const(0xFF << 23, 31), Mux(v["is_infinite"], v["infinite_sign"], v["sign"]))
        m.d.comb += of_floats.eq(
            Mux(
                v["is_nan"],
                _NAN,
                Mux(is_infinite, infinity, Cat(packed[:31], v["sign"])),
            )
        )
        result = Signal(32)
        m.d.comb += result.eq(Mux(self._is(*_OF_INTEGERS), v["other"], of_floats))
        return pipe.end(result=result)

    def _other(self, m: Design, v: Mapping[str, Value]) -> Value:
        """Return the result of every operation that is neither a floating-point addition nor a
        multiplication. For QUANTIZE, it is the nearest integer, before the zero point is added. For
        MULTIPLY, the result is computed elsewhere, and this value is not used."""
        a, b = v["a"], v["b"]
        is_less = a.as_signed() < b.as_signed()
        x, y = _Float(a), _Float(b)
        below = Mux(x.sign & y.sign, b[:31] < a[:31], a[:31] < b[:31])
        is_below = Mux(x.sign ^ y.sign, x.sign & (a[:31] | b[:31]).any(), below)
        is_above = Mux(
            x.sign ^ y.sign,
            y.sign & (a[:31] | b[:31]).any(),
            Mux(x.sign & y.sign, a[:31] < b[:31], b[:31] < a[:31]),
        )
        results = {
            Alu.ADD: (a + b)[:32],
            Alu.MIN: Mux(is_less, a, b),
            Alu.MAX: Mux(is_less, b, a),
            Alu.SHIFT: _shifted(a, b),
            Alu.TO_FLOAT: v["converted"],
            Alu.FLOAT_MIN: Mux(x.is_nan | y.is_nan, _NAN, Mux(is_below, a, b)),
            Alu.FLOAT_MAX: Mux(x.is_nan | y.is_nan, _NAN, Mux(is_above, a, b)),
            Alu.QUANTIZE: self._nearest(m, a),
        }
        result: Value = b  # As MOVE has it.
        for operation, value in results.items():
            result = Mux(self.operation == operation, value, result)
        return result

    def _nearest(self, m: Design, a: Value) -> Value:
        """Return the nearest integer to a float, within 16 bits and a sign."""
        x = _Float(a)
        # 2¹³ and more are beyond all bounds, and less than a half is 0. All else has 25 bits behind
        # its point.
        beyond = x.raw >= 127 + 13
        up = Signal(range(64))
        m.d.comb += up.eq(x.raw - 125)
        moved = Signal(_MANTISSA + 14)
        m.d.comb += moved.eq(Mux(x.raw < 126, 0, x.mantissa << up))
        whole, half, rest = moved[25:], moved[24], moved[:24].any()
        nearest = Signal(16)
        m.d.comb += nearest.eq(whole + (half & (whole[0] | rest)))
        rounded = Signal(signed(18))
        m.d.comb += rounded.eq(Mux(x.is_nan, 0, Mux(beyond, Mux(x.sign, -(1 << 15), 1 << 15), 0)))
        with m.If(~x.is_nan & ~beyond):
            m.d.comb += rounded.eq(Mux(x.sign, -nearest, nearest))
        wide = Signal(signed(32))
        m.d.comb += wide.eq(rounded)
        return wide.as_unsigned()

    def _bounded(self, m: Design, nearest: Value) -> Value:
        """Return `nearest`, a rounded integer, plus the zero point of QUANTIZE, clamped to the
        bounds of QUANTIZE."""
        bits = QUANTIZE_BITS
        zero, low, high = (self.immediate[bits * n : bits * (n + 1)].as_signed() for n in range(3))
        total = Signal(signed(20))
        m.d.comb += total.eq(nearest[:18].as_signed() + zero)
        at_least = Signal(signed(20))
        m.d.comb += at_least.eq(Mux(total < low, low, total))
        bounded = Signal(signed(32))
        m.d.comb += bounded.eq(Mux(at_least > high, high, at_least))
        return bounded.as_unsigned()


class _Float:
    """The fields of an f32. The exponent of a denormal number is 1."""

    def __init__(self, word: Value) -> None:
        self.sign = word[31]
        self.raw = word[23:31]
        is_normal = self.raw != 0
        self.exponent = Mux(is_normal, self.raw, 1)
        self.mantissa = Cat(word[:23], is_normal)
        self.is_zero = word[:31] == 0
        self.is_infinite = word[:31] == 0xFF << 23
        self.is_nan = word[:31] > 0xFF << 23


def _shifted(a: Value, b: Value) -> Value:
    """Return `a` shifted right arithmetically by `b`, or left by −b if `b` is negative, by at most
    31."""
    is_left = b[31]
    by = Mux(is_left, -b, b)[:32]
    # A shift to the left is one to the right of the bits in reverse.
    turned = Mux(is_left, a[::-1], a)
    wide = Cat(turned, (a[31] & ~is_left).replicate(31))
    moved = (wide >> Mux(by[5:].any(), 31, by[:5])[:5])[:32]
    return Mux(is_left, moved[::-1], moved)
