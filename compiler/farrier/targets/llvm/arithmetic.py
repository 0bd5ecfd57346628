"""The emission of the expression grammar's operators on scalars and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from farrier.ir import instr
from farrier.ir.expr import Binary, BinaryOp, Cast, Const, Expr, Unary, UnaryOp, dtype_of
from farrier.ir.instr import I32, Constant, Instruction, Operand, vector
from farrier.ir.types import DType
from farrier.targets.llvm import math_functions, narrow_floats
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.values import Value, literal, memory_type, type_of

_LAST_I32 = 2147483520  # The greatest i32 that f32 can represent.

_COMPARE = {
    # By operator: floats, signed integers, unsigned integers. A comparison with NaN is false except
    # for ne.
    BinaryOp.LT: ("olt", "slt", "ult"),
    BinaryOp.LE: ("ole", "sle", "ule"),
    BinaryOp.EQ: ("oeq", "eq", "eq"),
    BinaryOp.NE: ("une", "ne", "ne"),
}
_CONTRACT = "contract"  # A product and a sum may be rounded once.
_FLOAT = {
    BinaryOp.ADD: (instr.FADD, _CONTRACT),
    BinaryOp.SUB: (instr.FSUB, _CONTRACT),
    BinaryOp.MUL: (instr.FMUL, _CONTRACT),
    BinaryOp.DIV: (instr.FDIV, None),
}
_INTEGER = {BinaryOp.ADD: instr.ADD, BinaryOp.SUB: instr.SUB, BinaryOp.MUL: instr.MUL}
_BITWISE = {
    BinaryOp.BIT_AND: instr.AND,
    BinaryOp.BIT_OR: instr.OR,
    BinaryOp.BIT_XOR: instr.XOR,
}
_LOGICAL = {BinaryOp.AND: instr.AND, BinaryOp.OR: instr.OR}
_ROUNDING = {
    UnaryOp.FLOOR: "floor",
    UnaryOp.CEIL: "ceil",
    UnaryOp.ROUND: "roundeven",
    UnaryOp.SQRT: "sqrt",
}


def binary(b: Builder, op: BinaryOp, left: Value, right: Value) -> Value:
    """Emit `left op right`, and return the result. If one operand is a vector and the other a
    scalar, the scalar is combined with each lane."""
    if op is BinaryOp.AND or op is BinaryOp.OR:
        return _logical(b, op, left, right)
    lanes = left.lanes
    if lanes != right.lanes:
        lanes = max(lanes, right.lanes)
        left, right = b.widen(left, lanes), b.widen(right, lanes)
    dtype = left.dtype
    if op.is_comparison:
        return _compare(b, op, left, right)
    if dtype is DType.BOOL:
        return _boolean(b, op, left, right)
    if dtype.is_float:
        text = _float_binary(b, op, left, right)
    elif op in _INTEGER:
        text = b.op(_INTEGER[op], left.operand, right.operand)
    else:
        text = _integer_binary(b, op, left, right)
    return Value(extended(b, text, dtype, lanes), dtype, lanes)


def multiply_add(b: Builder, left: Value, right: Value, addend: Value) -> Value:
    """Emit `left * right + addend` on floats, fused with a single rounding if the machine can."""
    lanes = left.lanes
    if not lanes == right.lanes == addend.lanes:
        lanes = max(lanes, right.lanes, addend.lanes)
        left, right, addend = b.widen(left, lanes), b.widen(right, lanes), b.widen(addend, lanes)
    total = b.math("fmuladd", left.operand, right.operand, addend.operand)
    return Value(total, left.dtype, lanes)


def unary(b: Builder, op: UnaryOp, x: Value) -> Value:
    """Emit `op x`, and return the result."""
    if op is UnaryOp.NOT:
        ones = literal(True if x.dtype is DType.BOOL else -1, x.dtype, x.lanes)
        text = b.op(instr.XOR, x.operand, ones.operand)
    elif not x.dtype.is_float:
        text = extended(b, _integer_unary(b, op, x), x.dtype, x.lanes)
    elif op is UnaryOp.NEG:
        text = b.fneg(x.operand)
    elif op is UnaryOp.ABS:
        text = b.math("fabs", x.operand)
    elif op in _ROUNDING:
        text = b.math(_ROUNDING[op], x.operand)
    elif op is UnaryOp.ROUND_TF32:
        text = narrow_floats.round_tf32(b, x)
    else:
        text = math_functions.expand(b, op.value, x)
    return Value(text, x.dtype, x.lanes)


def cast(b: Builder, dtype: DType, x: Value) -> Value:
    """Emit the conversion of `x` to `dtype`, like numpy's astype, except that float to integer
    saturates and NaN becomes 0."""
    if dtype is x.dtype:
        return x
    if x.const is not None and not (x.dtype.is_float and not dtype.is_float):
        return literal(
            bool(x.const) if dtype is DType.BOOL else _as(x.const, dtype), dtype, x.lanes
        )
    to = type_of(dtype, x.lanes)
    zero = literal(0.0 if x.dtype.is_float else 0, x.dtype, x.lanes).operand
    if dtype is DType.BOOL:
        is_set = (
            b.fcmp("une", x.operand, zero) if x.dtype.is_float else b.icmp("ne", x.operand, zero)
        )
        return Value(is_set, dtype, x.lanes)
    if x.dtype is DType.BOOL:
        true_value, none = (
            literal(_as(1, dtype), dtype, x.lanes),
            literal(_as(0, dtype), dtype, x.lanes),
        )
        return b.select(x, true_value, none)
    if x.dtype.is_float:
        return _float_to_float(b, dtype, x) if dtype.is_float else _float_to_integer(b, dtype, x)
    if dtype.is_float:
        return _integer_to_float(b, dtype, x)
    text = x.operand
    if dtype.nbytes != x.dtype.nbytes:
        wider = instr.SEXT if x.dtype.is_signed else instr.ZEXT
        operation = instr.TRUNC if dtype.nbytes < x.dtype.nbytes else wider
        text = b.convert(operation, text, to)
    return Value(extended(b, text, dtype, x.lanes), dtype, x.lanes)


class Rounding(NamedTuple):
    """A float expression that is rounded to the nearest integer, ties to even, and the integer that
    is then added to it."""

    rounded: Expr
    offset: int


def rounding_of(expr: Expr) -> Rounding | None:
    """Return the parts of an expression of the form round(x) + integer; None for any other
    expression."""
    offset: Expr = Const(0.0, DType.F32)
    if isinstance(expr, Binary) and expr.op is BinaryOp.ADD:
        offset = expr.right
        expr = expr.left
    if not isinstance(expr, Unary) or expr.op is not UnaryOp.ROUND:
        return None
    if not isinstance(offset, Const):
        return None
    # Sums of floats below 2^24 are exact, as those of the integers are.
    if abs(offset.value) >= 1 << 24 or not float(offset.value).is_integer():
        return None
    return Rounding(expr.operand, int(offset.value))


def rounded_high_of(expr: Cast) -> tuple[Expr, Expr] | None:
    """Return x and y of an expression of the form i32((i64(x) · i64(y) + 2³¹) >> 32), which is the
    rounded upper half of a product of i32; None for any other expression."""
    half, places = Const(1 << 31, DType.I64), Const(32, DType.I64)
    match expr:
        case Cast(
            DType.I32,
            Binary(
                BinaryOp.SHR,
                Binary(
                    BinaryOp.ADD,
                    Binary(BinaryOp.MUL, Cast(DType.I64, x), Cast(DType.I64, y)),
                    added,
                ),
                right,
            ),
        ) if (added, right) == (half, places) and {dtype_of(x), dtype_of(y)} == {DType.I32}:
            return x, y
    return None


def held_by_i32(dtype: DType) -> bool:
    """Check whether all values of a dtype are values of i32: whether it is an integer type of fewer
    than 32 bits."""
    return dtype.is_integer and dtype.bits < 32


def rounded_cast(b: Builder, dtype: DType, x: Value, offset: int) -> Value:
    """Emit the conversion of round(x) + offset to an integer type of fewer than 32 bits. The result
    equals that of `cast`."""
    assert b.instructions.to_nearest_i32 is not None
    nearest = b.instructions.to_nearest_i32(b, x.operand)
    low, high = (instr.number_of(I32, int(limit) - offset) for limit in dtype.limits)
    text: Operand = b.math("smin", b.math("smax", nearest, low), high)
    if offset:
        text = b.op(instr.ADD, text, instr.number_of(I32, offset))
        is_number = b.fcmp("ord", x.operand, x.operand)  # NaN becomes 0.
        text = b.choose(is_number, text, instr.number_of(I32, 0))
    narrow = type_of(dtype, 1)
    return Value(text if narrow is I32 else b.convert(instr.TRUNC, text, narrow), dtype, 1)


def extended(b: Builder, text: Operand, dtype: DType, lanes: int) -> Operand:
    """Return `text`, which holds an integer of fewer than 8 bits in the low bits of each byte, with
    the upper bits of the byte set: to the sign for signed dtypes, else to zero. Other dtypes are
    returned unchanged."""
    if not dtype.is_integer or dtype.bits >= 8:
        return text
    if not dtype.is_signed:
        return b.op(instr.AND, text, literal((1 << dtype.bits) - 1, DType.U8, lanes).operand)
    shift = literal(8 - dtype.bits, DType.U8, lanes).operand
    upper = b.op(instr.SHL, text, shift)
    return b.op(instr.ASHR, upper, shift)


def rounded(b: Builder, x: Value) -> Value:
    """Emit the rounding of a narrow float, which registers hold as f32, to the precision that its
    dtype has in memory. Return values of other dtypes unchanged."""
    if not x.dtype.is_narrow_float:
        return x
    return from_memory(b, to_memory(b, x), x.dtype, x.lanes)


def to_memory(b: Builder, x: Value) -> Operand:
    """Emit the conversion of a value from its register type to `memory_type`, for a store."""
    dtype, lanes = x.dtype, x.lanes
    if dtype is DType.BOOL:
        return b.convert(instr.ZEXT, x.operand, vector("i8", lanes))
    if dtype.is_narrow_float:
        memory_value = b.in_memory.get((x.operand, dtype))
        if memory_value is not None:
            return memory_value
        if dtype is DType.F16 and b.instructions.converts_f16:
            return b.convert(instr.FPTRUNC, x.operand, vector("f16", lanes))
        return _bfloat_bits(b, x) if dtype is DType.BF16 else narrow_floats.encode(b, x)
    if dtype.bits < 8 and dtype.is_signed:
        mask = literal((1 << dtype.bits) - 1, DType.U8, lanes).operand
        return b.op(instr.AND, x.operand, mask)
    return x.operand


def joined(b: Builder, elements: Sequence[Value], lanes: int) -> Value:
    """Emit the concatenation of `elements` to one i32 for each of `lanes` lanes: each element
    contributes the bits that it has in memory, and the first element is in the lowest bits."""
    kind = vector("i32", lanes)
    total: Operand = instr.zero(kind)
    for number, element in enumerate(elements):
        element, width = b.widen(element, lanes), 8 * element.dtype.nbytes
        text, held = to_memory(b, element), memory_type(element.dtype, lanes)
        whole = vector(f"i{width}", lanes)
        text = text if held == whole else b.bitcast(text, whole)
        text = b.convert(instr.ZEXT, text, kind)
        if number:
            by = literal(width * number, DType.I32, lanes).operand
            text = b.op(instr.OR, total, b.op(instr.SHL, text, by))
        total = text
    return Value(total, DType.I32, lanes)


def from_memory(b: Builder, text: Operand, dtype: DType, lanes: int) -> Value:
    """Emit the conversion of a loaded operand from `memory_type` to the register type of its
    dtype."""
    if dtype is DType.BOOL:
        kind = vector("i8", lanes)
        return Value(b.icmp("ne", text, literal(0, DType.I8, lanes).operand), dtype, lanes)
    if not dtype.is_narrow_float:
        return Value(extended(b, text, dtype, lanes), dtype, lanes)
    kind = vector("f32", lanes)
    if dtype is DType.F16 and b.instructions.converts_f16:
        value = b.convert(instr.FPEXT, text, kind)
    elif dtype is DType.BF16:
        wide = b.convert(instr.ZEXT, text, vector("i32", lanes))
        bits = b.op(instr.SHL, wide, literal(16, DType.I32, lanes).operand)
        value = b.bitcast(bits, kind)
    else:
        value = narrow_floats.decode(b, text, dtype, lanes)
    b.in_memory[value, dtype] = text  # Rounding it again would change nothing.
    return Value(value, dtype, lanes)


def _bfloat_bits(b: Builder, x: Value) -> Operand:
    """Emit the bf16 bits of an f32, rounded to nearest even: the upper half of its bits. A NaN
    stays a NaN."""
    if b.instructions.rounds_bf16:
        half = vector("bf16", x.lanes)
        rounded = b.convert(instr.FPTRUNC, x.operand, half)
        return b.bitcast(rounded, vector("i16", x.lanes))
    kind = vector("i32", x.lanes)
    bits = b.bitcast(x.operand, kind)
    upper = b.op(instr.LSHR, bits, literal(16, DType.I32, x.lanes).operand)
    odd = b.op(instr.AND, upper, literal(1, DType.I32, x.lanes).operand)
    bias = b.op(instr.ADD, odd, literal(0x7FFF, DType.I32, x.lanes).operand)
    rounded = b.op(instr.ADD, bits, bias)
    nan = b.fcmp("uno", x.operand, x.operand)
    quiet = b.op(instr.OR, bits, literal(0x400000, DType.I32, x.lanes).operand)
    chosen = b.choose(nan, quiet, rounded)
    high = b.op(instr.LSHR, chosen, literal(16, DType.I32, x.lanes).operand)
    return b.convert(instr.TRUNC, high, vector("i16", x.lanes))


def _float_to_float(b: Builder, dtype: DType, x: Value) -> Value:
    to = type_of(dtype, x.lanes)
    if to == x.type:
        return rounded(b, Value(x.operand, dtype, x.lanes))
    if dtype.is_narrow_float:
        return rounded(b, Value(_to_odd(b, x), dtype, x.lanes))
    operation = instr.FPTRUNC if x.dtype is DType.F64 else instr.FPEXT
    return Value(b.convert(operation, x.operand, to), dtype, x.lanes)


def _to_odd(b: Builder, x: Value) -> Operand:
    """Emit the conversion of an f64 to f32 with rounding to odd: a number that f32 cannot represent
    becomes the neighbour whose last bit is 1. Rounding the result again to fewer bits then equals a
    single rounding of the f64 (S. Boldo, G. Melquiond, "When double rounding is odd")."""
    kind, bits = vector("f32", x.lanes), vector("i32", x.lanes)
    single = b.convert(instr.FPTRUNC, x.operand, kind)
    back = b.convert(instr.FPEXT, single, x.type)
    size, size_back = (b.math("fabs", text) for text in (x.operand, back))
    above = b.fcmp("ogt", size_back, size)
    inexact = b.fcmp("one", back, x.operand)
    code = b.bitcast(single, bits)
    unit = b.convert(instr.ZEXT, above, bits)
    truncated = b.op(instr.SUB, code, unit)
    odd = b.op(instr.OR, truncated, literal(1, DType.I32, x.lanes).operand)
    chosen = b.choose(inexact, odd, code)
    return b.bitcast(chosen, kind)


def _float_to_integer(b: Builder, dtype: DType, x: Value) -> Value:
    if x.lanes > 1 and (dtype.bits < 32 or dtype is DType.I32):
        return _floats_to_integers(b, dtype, x)
    to, sign = type_of(dtype, x.lanes), "s" if dtype.is_signed else "u"
    text: Operand = b.pure(instr.SATURATE, to, (x.operand,), dtype.is_signed)
    if dtype.bits < 8:
        least, most = (literal(limit, dtype, x.lanes).operand for limit in dtype.limits)
        text = b.math(f"{sign}min", b.math(f"{sign}max", text, least), most)
    return Value(text, dtype, x.lanes)


def _floats_to_integers(b: Builder, dtype: DType, x: Value) -> Value:
    """Emit the conversion of a vector of floats to an integer type of fewer than 32 bits. The
    floats are first clamped to the range of the type and then converted without saturation, because
    LLVM splits saturating conversions of vectors into scalars."""
    whole = vector("i32", x.lanes)
    low, high = dtype.limits
    # The last number below 2³¹, if the float has fewer bits than i32.
    held = DType.F64 if x.dtype is DType.F64 else DType.F32
    top = _LAST_I32 if dtype is DType.I32 and held is DType.F32 else high
    least, most = (literal(float(limit), held, x.lanes).operand for limit in (low, top))
    above = b.fcmp("ogt", x.operand, least)  # This is false for NaN.
    text = b.choose(above, x.operand, least)
    below = b.fcmp("olt", text, most)
    text = b.choose(below, text, most)
    text = b.convert(instr.FPTOSI, text, whole)
    if top != high:
        fits = b.fcmp("ule", x.operand, most)
        greatest = literal(high, DType.I32, x.lanes).operand
        text = b.choose(fits, text, greatest)
    if low:
        is_number = b.fcmp("ord", x.operand, x.operand)
        text = b.choose(is_number, text, instr.zero(whole))
    if dtype is not DType.I32:
        text = b.convert(instr.TRUNC, text, type_of(dtype, x.lanes))
    return Value(text, dtype, x.lanes)


def _integer_to_float(b: Builder, dtype: DType, x: Value) -> Value:
    if dtype.is_narrow_float and x.dtype.bits >= 32:  # An integer with more bits than f32 holds.
        return _float_to_float(b, dtype, _integer_to_float(b, DType.F64, _sticky(b, x)))
    operation = instr.SITOFP if x.dtype.is_signed else instr.UITOFP
    text = b.convert(operation, x.operand, type_of(dtype, x.lanes))
    return rounded(b, Value(text, dtype, x.lanes))


def _sticky(b: Builder, x: Value) -> Value:
    """Emit an integer close to `x` that f64 represents exactly, such that a conversion from f64 to
    f32 rounds it as it would round `x`. Integers of fewer than 64 bits, and those up to 2^53, are
    returned unchanged. For larger integers, the last twelve bits are replaced by a single bit (a
    sticky bit), which is set if any of the twelve was."""
    if x.dtype.bits < 64:
        return x
    lanes = x.lanes
    zero, tail, bit = (literal(n, x.dtype, lanes).operand for n in (0, 0xFFF, 0x800))
    rest = b.op(instr.AND, x.operand, tail)
    some = b.icmp("ne", rest, zero)
    kept = b.op(instr.SUB, x.operand, rest)
    with_sticky_bit = b.op(instr.OR, kept, bit)
    coarse = b.choose(some, with_sticky_bit, kept)
    negated = b.op(instr.SUB, zero, x.operand)
    size = b.math("smax", x.operand, negated) if x.dtype.is_signed else x.operand
    large = b.icmp("ugt", size, literal(1 << 53, x.dtype, lanes).operand)
    return Value(b.choose(large, coarse, x.operand), x.dtype, lanes)


def _logical(b: Builder, op: BinaryOp, left: Value, right: Value) -> Value:
    for side, other in ((left, right), (right, left)):
        if side.const is not None and side.dtype is DType.BOOL:
            absorbs = bool(side.const) is (op is BinaryOp.OR)
            return side if absorbs else other
    lanes = max(left.lanes, right.lanes)
    left, right = b.widen(left, lanes), b.widen(right, lanes)
    return Value(b.op(_LOGICAL[op], left.operand, right.operand), left.dtype, lanes)


def _compare(b: Builder, op: BinaryOp, left: Value, right: Value) -> Value:
    floats, signed, unsigned = _COMPARE[op]
    sides = left.operand, right.operand
    if left.dtype.is_float:
        holds = b.fcmp(floats, *sides)
    else:
        holds = b.icmp(signed if left.dtype.is_signed else unsigned, *sides)
    return Value(holds, DType.BOOL, left.lanes)


def _boolean(b: Builder, op: BinaryOp, left: Value, right: Value) -> Value:
    """Emit arithmetic on booleans with numpy's meaning: add and max are or, mul and min are and."""
    operation = instr.OR if op in (BinaryOp.ADD, BinaryOp.MAX) else instr.AND
    return Value(b.op(operation, left.operand, right.operand), DType.BOOL, left.lanes)


def _float_binary(b: Builder, op: BinaryOp, left: Value, right: Value) -> Operand:
    if op in _FLOAT:
        operation, flags = _FLOAT[op]
        return b.pure(operation, left.type, (left.operand, right.operand), flags)
    if op is BinaryOp.MIN or op is BinaryOp.MAX:
        return _float_extreme(b, op, left, right)
    if op is BinaryOp.MOD:
        # The result a - floor(a / b) * b has the sign of b, as in Python.
        ratio = b.op(instr.FDIV, left.operand, right.operand)
        whole = b.math("floor", ratio)
        part = b.pure(instr.FMUL, left.type, (whole, right.operand), _CONTRACT)
        return b.pure(instr.FSUB, left.type, (left.operand, part), _CONTRACT)
    if op is BinaryOp.SWISH:
        return math_functions.swish(b, left, right)
    return math_functions.power(b, left, right)


def _float_extreme(b: Builder, op: BinaryOp, left: Value, right: Value) -> Operand:
    """Emit a min or max that returns NaN if an operand is NaN. Some machines' instructions return
    their second operand in this case. An operand that cannot be NaN is then passed first; if there
    is none, an additional select is emitted."""
    if b.instructions.keeps_nan:
        name = "maximum" if op is BinaryOp.MAX else "minimum"
        return b.math(name, left.operand, right.operand)
    if right.const is not None and right.const == right.const:
        left, right = right, left
    compare = "ogt" if op is BinaryOp.MAX else "olt"
    beyond = b.fcmp(compare, left.operand, right.operand)
    extreme = b.choose(beyond, left.operand, right.operand)
    if left.const is not None and left.const == left.const:
        return extreme
    nan = b.fcmp("uno", left.operand, left.operand)
    return b.choose(nan, left.operand, extreme)


def _integer_unary(b: Builder, op: UnaryOp, x: Value) -> Operand:
    zero = literal(0, x.dtype, x.lanes).operand
    if op is UnaryOp.NEG:
        return b.op(instr.SUB, zero, x.operand)
    if op is UnaryOp.ABS and x.dtype.is_signed and x.dtype is not DType.BOOL:
        negated = b.op(instr.SUB, zero, x.operand)
        return b.math("smax", x.operand, negated)
    if op in (UnaryOp.ABS, UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND):
        return x.operand
    # Transcendental functions of integers use f64.
    wide = unary(b, op, cast(b, DType.F64, x))
    return cast(b, x.dtype, wide).operand


def _integer_binary(b: Builder, op: BinaryOp, left: Value, right: Value) -> Operand:
    sign = "s" if left.dtype.is_signed else "u"
    match op:
        case BinaryOp.MIN | BinaryOp.MAX:
            return b.math(f"{sign}{op.value}", left.operand, right.operand)
        case BinaryOp.DIV | BinaryOp.MOD:
            return _integer_division(b, op, left, right)
        case BinaryOp.SHL | BinaryOp.SHR:
            return _shift(b, op, left, right)
        case BinaryOp.MUL_HIGH:
            return _upper_half(b, left, right)
        case _ if op in _BITWISE:
            return b.op(_BITWISE[op], left.operand, right.operand)
        case _:
            return _integer_power(b, left, right)


def _upper_half(b: Builder, left: Value, right: Value) -> Operand:
    """Emit the upper 32 bits of the 64-bit product of two 32-bit integers."""
    wide = vector("i64", left.lanes)
    extend = instr.SEXT if left.dtype.is_signed else instr.ZEXT
    factors = (b.convert(extend, side.operand, wide) for side in (left, right))
    product = b.op(instr.MUL, *factors)
    upper = b.op(instr.LSHR, product, literal(32, DType.I64, left.lanes).operand)
    return b.convert(instr.TRUNC, upper, left.operand.type)


def _is_below(x: Value, width: int) -> bool:
    """Check whether a value is certainly less than `width`: it is the result of a bitwise and with
    a constant from 0 to `width` - 1. Return False if the value has any other form."""
    masked = x.operand
    if not isinstance(masked, Instruction) or masked.operation is not instr.AND:
        return False
    mask = masked.operands[1]
    return isinstance(mask, Constant) and 0 <= mask.number < width


def _shift(b: Builder, op: BinaryOp, left: Value, right: Value) -> Operand:
    """Emit a shift by any amount. The machine's shifts are undefined for amounts of the bit width
    or more."""
    lanes, dtype = left.lanes, left.dtype
    width = dtype.nbytes * 8
    arithmetic = op is BinaryOp.SHR and dtype.is_signed
    right_shift = instr.ASHR if arithmetic else instr.LSHR
    operation = instr.SHL if op is BinaryOp.SHL else right_shift
    if (right.const is not None and 0 <= right.const < width) or _is_below(right, width):
        return b.op(operation, left.operand, right.operand)
    most = literal(width - 1, dtype, lanes).operand
    beyond = b.icmp("ugt", right.operand, most)
    amount = b.choose(beyond, most, right.operand)
    shifted = b.op(operation, left.operand, amount)
    if arithmetic:
        return shifted
    zero = literal(0, dtype, lanes).operand
    return b.choose(beyond, zero, shifted)


def _integer_division(b: Builder, op: BinaryOp, left: Value, right: Value) -> Operand:
    """Emit floor division or its remainder. A division by zero, which would trap, results in 0."""
    lanes, dtype = left.lanes, left.dtype
    if not dtype.is_signed:
        safe, is_zero = _nonzero(b, right)
        operation = instr.UDIV if op is BinaryOp.DIV else instr.UREM
        result = b.op(operation, left.operand, safe)
        return _zero_where(b, is_zero, result, left)
    divisor, is_zero = _nonzero(b, right)
    minus_one, zero = literal(-1, dtype, lanes).operand, literal(0, dtype, lanes).operand
    if right.const is None:
        # The least integer over -1 traps as well: divide by 1 and negate.
        is_minus = b.icmp("eq", right.operand, minus_one)
        unit = literal(1, dtype, lanes).operand
        divisor = b.choose(is_minus, unit, divisor)
    quotient = b.op(instr.SDIV, left.operand, divisor)
    product = b.op(instr.MUL, quotient, divisor)
    rest = b.op(instr.SUB, left.operand, product)
    inexact = b.icmp("ne", rest, zero)
    signs = b.op(instr.XOR, rest, divisor)
    opposite = b.icmp("slt", signs, zero)
    below = b.op(instr.AND, inexact, opposite)
    if op is BinaryOp.MOD:
        added = b.op(instr.ADD, rest, divisor)
        floored = b.choose(below, added, rest)
    else:
        less = b.op(instr.ADD, quotient, minus_one)
        floored = b.choose(below, less, quotient)
        if right.const is None:
            negated = b.op(instr.SUB, zero, left.operand)
            floored = b.choose(is_minus, negated, floored)
    return _zero_where(b, is_zero, floored, left)


def _nonzero(b: Builder, divisor: Value) -> tuple[Operand, Operand | None]:
    """Return the divisor with 0 replaced by 1, and the condition that it was 0 (None if it is a
    nonzero constant)."""
    if divisor.const:
        return divisor.operand, None
    zero = literal(0, divisor.dtype, divisor.lanes).operand
    unit = literal(1, divisor.dtype, divisor.lanes).operand
    is_zero = b.icmp("eq", divisor.operand, zero)
    safe = b.choose(is_zero, unit, divisor.operand)
    return safe, is_zero


def _zero_where(b: Builder, condition: Operand | None, text: Operand, like: Value) -> Operand:
    if condition is None:
        return text
    zero = literal(0, like.dtype, like.lanes).operand
    return b.choose(condition, zero, text)


def _integer_power(b: Builder, base: Value, exponent: Value) -> Operand:
    """Emit an integer power. Square-and-multiply processes the low six bits of the exponent. For an
    exponent above 63, the result is multiplied once more: the power of an odd base other than 1 and
    -1 has then overflowed already, and the powers of 1, -1, 0 and even bases are correct. For a
    negative exponent, the result is truncated to an integer: 0 for all bases except 1 and -1."""
    dtype, lanes = base.dtype, base.lanes
    exponent = cast(b, dtype, exponent)
    zero, unit = literal(0, dtype, lanes).operand, literal(1, dtype, lanes).operand
    result: Operand = unit
    square = base.operand
    for bit in range(6):
        chosen = b.op(instr.AND, exponent.operand, literal(1 << bit, dtype, lanes).operand)
        set_bit = b.icmp("ne", chosen, zero)
        product = b.op(instr.MUL, result, square)
        result = b.choose(set_bit, product, result)
        square = b.op(instr.MUL, square, square)
    beyond = b.icmp("ugt", exponent.operand, literal(63, dtype, lanes).operand)
    product = b.op(instr.MUL, result, square)
    result = b.choose(beyond, product, result)
    if dtype.is_signed:
        negative = b.icmp("slt", exponent.operand, zero)
        above = b.op(instr.ADD, base.operand, unit)
        other = b.icmp("ugt", above, literal(2, dtype, lanes).operand)
        vanishes = b.op(instr.AND, negative, other)
        result = b.choose(vanishes, zero, result)
    return result


def _as(value: int | float | bool, dtype: DType) -> int | float:
    return float(value) if dtype.is_float else int(value)
