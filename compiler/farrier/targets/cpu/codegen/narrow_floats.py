"""Narrow floats in memory, f32 in registers, by arithmetic on the bits of all lanes."""

from __future__ import annotations

import struct

from farrier.ir.narrow import FORMATS, FloatFormat
from farrier.ir.types import DType
from farrier.targets.cpu.codegen.builder import Builder
from farrier.targets.cpu.codegen.text import Value, literal, vector

_MANTISSA, _BIAS = 23, 127  # of f32
_NAN, _INFINITY, _MAGNITUDE = 0x7FC00000, 0x7F800000, 0x7FFFFFFF


def decode(b: Builder, text: str, dtype: DType, lanes: int) -> str:
    """The f32 that each code stands for."""
    bits = _Bits(b, lanes)
    memory = vector(f"i{8 * dtype.nbytes}", lanes)
    if dtype is DType.F16:
        text = b.pure(f"bitcast {vector('half', lanes)} {text} to {memory}")
    code = b.pure(f"zext {memory} {text} to {bits.kind}")
    if dtype is DType.F8E8M0:
        return bits.as_float(_exponent_to_bits(bits, code))
    form = FORMATS[dtype]
    size = bits.op("and", code, form.sign - 1)
    shifted = bits.op("shl", size, _MANTISSA - form.mantissa_bits)
    normal = bits.op("add", shifted, (_BIAS - form.bias) << _MANTISSA)
    count = b.pure(f"uitofp {bits.kind} {size} to {bits.floats}")
    small = b.pure(f"fmul {bits.floats} {count}, {literal(form.step, DType.F32, lanes).text}")
    is_small = bits.compare("ult", size, 1 << form.mantissa_bits)
    result = bits.select(is_small, bits.of_float(small), normal)
    if form.infinity is not None:
        beyond = bits.op("or", shifted, _INFINITY)
        result = bits.select(bits.compare("uge", size, form.infinity), beyond, result)
    elif form.nan is not None:
        compared = size if form.has_negative_zero else code
        result = bits.select(bits.compare("eq", compared, form.nan), _NAN, result)
    sign = bits.op("sub", code, size)
    sign = bits.op("shl", sign, 32 - form.sign.bit_length())
    return bits.as_float(bits.op("or", result, sign))


def encode(b: Builder, x: Value) -> str:
    """The codes of f32 values rounded to nearest, ties to even; what is too large gives the
    format's `overflow`, NaN in a format without NaN gives zero."""
    bits = _Bits(b, x.lanes)
    whole = bits.of_float(x.text)
    if x.dtype is DType.F8E8M0:
        code = _bits_to_exponent(bits, whole)
    else:
        code = _encode(bits, whole, FORMATS[x.dtype])
    memory = vector(f"i{8 * x.dtype.nbytes}", x.lanes)
    text = b.pure(f"trunc {bits.kind} {code} to {memory}")
    if x.dtype is DType.F16:
        text = b.pure(f"bitcast {memory} {text} to {vector('half', x.lanes)}")
    return text


def _encode(bits: _Bits, whole: str, form: FloatFormat) -> str:
    size = bits.op("and", whole, _MAGNITUDE)
    drop = _MANTISSA - form.mantissa_bits
    odd = bits.op("and", bits.op("lshr", size, drop), 1)
    carried = bits.op("add", bits.op("add", size, odd), (1 << drop - 1) - 1)
    offset = (_BIAS - form.bias) << form.mantissa_bits
    normal = bits.op("sub", bits.op("lshr", carried, drop), offset)
    # Below the normal numbers, what is added makes the last bit of the sum one step.
    added = form.step * 2.0**_MANTISSA
    total = bits.b.pure(
        f"fadd {bits.floats} {bits.as_float(size)}, {literal(added, DType.F32, bits.lanes).text}"
    )
    small = bits.op("sub", bits.of_float(total), _bits_of(added))
    code = bits.select(bits.compare("ult", size, _bits_of(form.least_normal)), small, normal)
    code = bits.select(bits.compare("sgt", code, form.largest), form.overflow, code)
    is_nan = bits.compare("ugt", size, _INFINITY)
    if form.nan is not None:
        code = bits.select(is_nan, form.nan, code)
    sign = bits.op("lshr", bits.op("xor", whole, size), 32 - form.sign.bit_length())
    if not form.has_negative_zero:
        sign = bits.select(bits.compare("eq", code, 0), 0, sign)
    result = bits.op("or", code, sign)
    return result if form.nan is not None else bits.select(is_nan, 0, result)


def _exponent_to_bits(bits: _Bits, code: str) -> str:
    """F8E8M0: 2 ** (code - 127), 255 is NaN; the least is no normal f32."""
    normal = bits.op("shl", code, _MANTISSA)
    result = bits.select(bits.compare("eq", code, 0), _bits_of(2.0**-127), normal)
    return bits.select(bits.compare("eq", code, 255), _NAN, result)


def _bits_to_exponent(bits: _Bits, whole: str) -> str:
    """The nearest power of two, the larger of two that are; zero, what is negative and what is too
    large are NaN."""
    code = bits.op("lshr", bits.op("add", whole, 1 << _MANTISSA - 1), _MANTISSA)
    least = bits.compare("ult", whole, _bits_of(1.5 * 2.0**-127))
    code = bits.select(least, 0, code)
    in_range = bits.compare("ult", bits.op("sub", whole, 1), _INFINITY - 1)
    return bits.select(in_range, code, 255)


class _Bits:
    """Instructions on the bits of f32 values; operands are SSA names or Python integers."""

    def __init__(self, b: Builder, lanes: int) -> None:
        self.b = b
        self.lanes = lanes
        self.kind = vector("i32", lanes)
        self.floats = vector("float", lanes)
        self.mask = vector("i1", lanes)

    def text(self, x: str | int) -> str:
        return x if isinstance(x, str) else literal(x, DType.I32, self.lanes).text

    def op(self, name: str, x: str, y: str | int) -> str:
        return self.b.pure(f"{name} {self.kind} {x}, {self.text(y)}")

    def compare(self, how: str, x: str, y: int) -> str:
        return self.b.pure(f"icmp {how} {self.kind} {x}, {self.text(y)}")

    def select(self, condition: str, x: str | int, y: str | int) -> str:
        chosen = f"{self.kind} {self.text(x)}, {self.kind} {self.text(y)}"
        return self.b.pure(f"select {self.mask} {condition}, {chosen}")

    def of_float(self, x: str) -> str:
        return self.b.pure(f"bitcast {self.floats} {x} to {self.kind}")

    def as_float(self, x: str) -> str:
        return self.b.pure(f"bitcast {self.kind} {x} to {self.floats}")


def _bits_of(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")
