"""The conversion between narrow floats in memory and f32 in registers, by integer arithmetic on the
bits of all lanes."""

from __future__ import annotations

import struct

from farrier.ir import instr
from farrier.ir.instr import Operand, Operation, vector
from farrier.ir.narrow import FORMATS, FloatFormat
from farrier.ir.special import TF32_MANTISSA
from farrier.ir.types import DType
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.float_code import FloatCode
from farrier.targets.llvm.values import Value, literal

_MANTISSA, _BIAS = 23, 127  # Those of f32.
_NAN, _INFINITY, _MAGNITUDE = 0x7FC00000, 0x7F800000, 0x7FFFFFFF


def decode(b: Builder, text: Operand, dtype: DType, lanes: int) -> Operand:
    """Return the f32 values that the codes in `text` represent: the elements of the narrow-float
    type `dtype`, in `lanes` lanes."""
    bits = _Bits(b, lanes)
    memory = vector(f"i{8 * dtype.nbytes}", lanes)
    if dtype is DType.F16:
        text = b.bitcast(text, memory)
    code = b.convert(instr.ZEXT, text, bits.kind)
    if dtype is DType.F8E8M0:
        return bits.as_float(_exponent_to_bits(bits, code))
    form = FORMATS[dtype]
    size = bits.op(instr.AND, code, form.sign - 1)
    shifted = bits.op(instr.SHL, size, _MANTISSA - form.mantissa_bits)
    normal = bits.op(instr.ADD, shifted, (_BIAS - form.bias) << _MANTISSA)
    count = b.convert(instr.UITOFP, size, bits.floats)
    small = b.op(instr.FMUL, count, literal(form.step, DType.F32, lanes).operand)
    is_small = bits.compare("ult", size, 1 << form.mantissa_bits)
    result = bits.select(is_small, bits.of_float(small), normal)
    if form.infinity is not None:
        beyond = bits.op(instr.OR, shifted, _INFINITY)
        result = bits.select(bits.compare("uge", size, form.infinity), beyond, result)
    elif form.nan is not None:
        compared = size if form.has_negative_zero else code
        result = bits.select(bits.compare("eq", compared, form.nan), _NAN, result)
    sign = bits.op(instr.SUB, code, size)
    sign = bits.op(instr.SHL, sign, 32 - form.sign.bit_length())
    return bits.as_float(bits.op(instr.OR, result, sign))


def encode(b: Builder, x: Value) -> Operand:
    """Return the narrow-float codes of f32 values, rounded to nearest, ties to even. A value beyond
    the range becomes the format's `overflow`; NaN becomes zero in a format without NaN."""
    bits = _Bits(b, x.lanes)
    whole = bits.of_float(x.operand)
    if x.dtype is DType.F8E8M0:
        code = _bits_to_exponent(bits, whole)
    else:
        code = _encode(bits, whole, FORMATS[x.dtype])
    memory = vector(f"i{8 * x.dtype.nbytes}", x.lanes)
    text = b.convert(instr.TRUNC, code, memory)
    if x.dtype is DType.F16:
        text = b.bitcast(text, vector("f16", x.lanes))
    return text


def round_tf32(b: Builder, x: Value) -> Operand:
    """Return floats rounded to the significant bits of tf32, halves away from zero."""
    code = FloatCode(b, x.dtype, x.lanes)
    drop = code.mantissa_bits - TF32_MANTISSA
    carried = code.int_op(instr.ADD, code.to_bits(x.operand), 1 << (drop - 1))
    near = code.from_bits(code.int_op(instr.AND, carried, -1 << drop))
    return code.select(b.fcmp("uno", x.operand, x.operand), x.operand, near)


def _encode(bits: _Bits, whole: Operand, form: FloatFormat) -> Operand:
    size = bits.op(instr.AND, whole, _MAGNITUDE)
    drop = _MANTISSA - form.mantissa_bits
    odd = bits.op(instr.AND, bits.op(instr.LSHR, size, drop), 1)
    carried = bits.op(instr.ADD, bits.op(instr.ADD, size, odd), (1 << drop - 1) - 1)
    offset = (_BIAS - form.bias) << form.mantissa_bits
    normal = bits.op(instr.SUB, bits.op(instr.LSHR, carried, drop), offset)
    # Below the normal numbers, adding this constant makes the last bit of the sum one step.
    added = form.step * 2.0**_MANTISSA
    step = literal(added, DType.F32, bits.lanes).operand
    total = bits.b.op(instr.FADD, bits.as_float(size), step)
    small = bits.op(instr.SUB, bits.of_float(total), _bits_of(added))
    code = bits.select(bits.compare("ult", size, _bits_of(form.least_normal)), small, normal)
    code = bits.select(bits.compare("sgt", code, form.largest), form.overflow, code)
    is_nan = bits.compare("ugt", size, _INFINITY)
    if form.nan is not None:
        code = bits.select(is_nan, form.nan, code)
    sign = bits.op(instr.LSHR, bits.op(instr.XOR, whole, size), 32 - form.sign.bit_length())
    if not form.has_negative_zero:
        sign = bits.select(bits.compare("eq", code, 0), 0, sign)
    result = bits.op(instr.OR, code, sign)
    return result if form.nan is not None else bits.select(is_nan, 0, result)


def _exponent_to_bits(bits: _Bits, code: Operand) -> Operand:
    """Decode F8E8M0: 2 ** (code - 127), and NaN for code 255. The smallest number is subnormal in
    f32."""
    normal = bits.op(instr.SHL, code, _MANTISSA)
    result = bits.select(bits.compare("eq", code, 0), _bits_of(2.0**-127), normal)
    return bits.select(bits.compare("eq", code, 255), _NAN, result)


def _bits_to_exponent(bits: _Bits, whole: Operand) -> Operand:
    """Encode F8E8M0: return the exponent code of the nearest power of two, the larger one for ties;
    NaN for zero, negative numbers and numbers beyond the range."""
    code = bits.op(instr.LSHR, bits.op(instr.ADD, whole, 1 << _MANTISSA - 1), _MANTISSA)
    least = bits.compare("ult", whole, _bits_of(1.5 * 2.0**-127))
    code = bits.select(least, 0, code)
    in_range = bits.compare("ult", bits.op(instr.SUB, whole, 1), _INFINITY - 1)
    return bits.select(in_range, code, 255)


class _Bits:
    """The emitter of integer instructions on the bits of f32 values. Operands are results of
    instructions, or Python integers."""

    def __init__(self, b: Builder, lanes: int) -> None:
        self.b = b
        self.lanes = lanes
        self.kind = vector("i32", lanes)
        self.floats = vector("f32", lanes)

    def operand(self, x: Operand | int) -> Operand:
        return literal(x, DType.I32, self.lanes).operand if isinstance(x, int) else x

    def op(self, operation: Operation, x: Operand, y: Operand | int) -> Operand:
        return self.b.op(operation, x, self.operand(y))

    def compare(self, how: str, x: Operand, y: int) -> Operand:
        return self.b.icmp(how, x, self.operand(y))

    def select(self, condition: Operand, x: Operand | int, y: Operand | int) -> Operand:
        return self.b.choose(condition, self.operand(x), self.operand(y))

    def of_float(self, x: Operand) -> Operand:
        return self.b.bitcast(x, self.kind)

    def as_float(self, x: Operand) -> Operand:
        return self.b.bitcast(x, self.floats)


def _bits_of(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")
