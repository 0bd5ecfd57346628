"""Operators of the expression grammar on values, lane by lane."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.ir.expr import BinaryOp, UnaryOp
from farrier.ir.types import DType
from farrier.targets.cpu.codegen import math_functions, narrow_floats
from farrier.targets.cpu.codegen.builder import Builder
from farrier.targets.cpu.codegen.text import Value, literal, memory_type, suffix, type_of, vector

_LAST_I32 = 2147483520  # the greatest i32 that is an f32

_COMPARE = {
    # op: (floats, signed integers, unsigned integers); a comparison with NaN fails but for ne
    BinaryOp.LT: ("olt", "slt", "ult"),
    BinaryOp.LE: ("ole", "sle", "ule"),
    BinaryOp.EQ: ("oeq", "eq", "eq"),
    BinaryOp.NE: ("une", "ne", "ne"),
}
_FLOAT = {
    BinaryOp.ADD: "fadd contract",
    BinaryOp.SUB: "fsub contract",
    BinaryOp.MUL: "fmul contract",
    BinaryOp.DIV: "fdiv",
}
_INTEGER = {BinaryOp.ADD: "add", BinaryOp.SUB: "sub", BinaryOp.MUL: "mul"}
_BITWISE = {BinaryOp.BIT_AND: "and", BinaryOp.BIT_OR: "or", BinaryOp.BIT_XOR: "xor"}
_ROUNDING = {
    UnaryOp.FLOOR: "floor",
    UnaryOp.CEIL: "ceil",
    UnaryOp.ROUND: "roundeven",
    UnaryOp.SQRT: "sqrt",
}


def binary(b: Builder, op: BinaryOp, left: Value, right: Value) -> Value:
    """`left op right`; scalars join every lane of the other side."""
    if op is BinaryOp.AND or op is BinaryOp.OR:
        return _logical(b, op, left, right)
    lanes = max(left.lanes, right.lanes)
    left, right = b.widen(left, lanes), b.widen(right, lanes)
    dtype = left.dtype
    if op.is_comparison:
        return _compare(b, op, left, right)
    if dtype is DType.BOOL:
        return _boolean(b, op, left, right)
    if dtype.is_float:
        text = _float_binary(b, op, left, right)
    elif op in _INTEGER:
        text = b.pure(f"{_INTEGER[op]} {left.type} {left.text}, {right.text}")
    else:
        text = _integer_binary(b, op, left, right)
    return Value(extended(b, text, dtype, lanes), dtype, lanes)


def multiply_add(b: Builder, left: Value, right: Value, addend: Value) -> Value:
    """`left * right + addend` on floats, rounded once where the machine can."""
    lanes = max(left.lanes, right.lanes, addend.lanes)
    left, right, addend = b.widen(left, lanes), b.widen(right, lanes), b.widen(addend, lanes)
    kind = left.type
    return Value(
        b.overloaded("fmuladd", kind, left.text, right.text, addend.text), left.dtype, lanes
    )


def unary(b: Builder, op: UnaryOp, x: Value) -> Value:
    """`op x`."""
    if op is UnaryOp.NOT:
        ones = literal(True if x.dtype is DType.BOOL else -1, x.dtype, x.lanes)
        text = b.pure(f"xor {x.type} {x.text}, {ones.text}")
    elif not x.dtype.is_float:
        text = extended(b, _integer_unary(b, op, x), x.dtype, x.lanes)
    elif op is UnaryOp.NEG:
        text = b.pure(f"fneg {x.type} {x.text}")
    elif op is UnaryOp.ABS:
        text = b.overloaded("fabs", x.type, x.text)
    elif op in _ROUNDING:
        text = b.overloaded(_ROUNDING[op], x.type, x.text)
    else:
        text = math_functions.expand(b, op.value, x)
    return Value(text, x.dtype, x.lanes)


def cast(b: Builder, dtype: DType, x: Value) -> Value:
    """`x` as `dtype`: as numpy's astype, but float to integer saturates and NaN becomes 0."""
    if dtype is x.dtype:
        return x
    if x.const is not None and not (x.dtype.is_float and not dtype.is_float):
        return literal(
            bool(x.const) if dtype is DType.BOOL else _as(x.const, dtype), dtype, x.lanes
        )
    to = type_of(dtype, x.lanes)
    zero = literal(0.0 if x.dtype.is_float else 0, x.dtype, x.lanes).text
    if dtype is DType.BOOL:
        compare = "fcmp une" if x.dtype.is_float else "icmp ne"
        return Value(b.pure(f"{compare} {x.type} {x.text}, {zero}"), dtype, x.lanes)
    if x.dtype is DType.BOOL:
        one, none = literal(_as(1, dtype), dtype, x.lanes), literal(_as(0, dtype), dtype, x.lanes)
        return b.select(x, one, none)
    if x.dtype.is_float:
        return _float_to_float(b, dtype, x) if dtype.is_float else _float_to_integer(b, dtype, x)
    if dtype.is_float:
        return _integer_to_float(b, dtype, x)
    text = x.text
    if dtype.nbytes != x.dtype.nbytes:
        name = "trunc" if dtype.nbytes < x.dtype.nbytes else "sext" if x.dtype.is_signed else "zext"
        text = b.pure(f"{name} {x.type} {text} to {to}")
    return Value(extended(b, text, dtype, x.lanes), dtype, x.lanes)


def extended(b: Builder, text: str, dtype: DType, lanes: int) -> str:
    """The low bits of an integer, of its register's type, extended to the register's width."""
    if not dtype.is_integer or dtype.bits >= 8:
        return text
    kind = type_of(dtype, lanes)
    if not dtype.is_signed:
        return b.pure(f"and {kind} {text}, {literal((1 << dtype.bits) - 1, DType.U8, lanes).text}")
    shift = literal(8 - dtype.bits, DType.U8, lanes).text
    upper = b.pure(f"shl {kind} {text}, {shift}")
    return b.pure(f"ashr {kind} {upper}, {shift}")


def rounded(b: Builder, x: Value) -> Value:
    """A narrow float as its memory would hold it; others as they are."""
    if not x.dtype.is_narrow_float:
        return x
    return from_memory(b, to_memory(b, x), x.dtype, x.lanes)


def to_memory(b: Builder, x: Value) -> str:
    """The value as it is stored, of `memory_type`."""
    dtype, lanes = x.dtype, x.lanes
    if dtype is DType.BOOL:
        return b.pure(f"zext {x.type} {x.text} to {vector('i8', lanes)}")
    if dtype.is_narrow_float:
        known = b.in_memory.get((x.text, dtype))
        if known is not None:
            return known
        if dtype is DType.F16 and b.instructions.converts_f16:
            return b.pure(f"fptrunc {x.type} {x.text} to {vector('half', lanes)}")
        return _bfloat_bits(b, x) if dtype is DType.BF16 else narrow_floats.encode(b, x)
    if dtype.bits < 8 and dtype.is_signed:
        mask = literal((1 << dtype.bits) - 1, DType.U8, lanes).text
        return b.pure(f"and {x.type} {x.text}, {mask}")
    return x.text


def joined(b: Builder, elements: Sequence[Value], lanes: int) -> Value:
    """Elements as they lie in memory, the first lowest, as one i32 a lane."""
    kind, total = vector("i32", lanes), ""
    for number, element in enumerate(elements):
        element, width = b.widen(element, lanes), 8 * element.dtype.nbytes
        text, held = to_memory(b, element), memory_type(element.dtype, lanes)
        whole = vector(f"i{width}", lanes)
        text = text if held == whole else b.pure(f"bitcast {held} {text} to {whole}")
        text = b.pure(f"zext {whole} {text} to {kind}")
        if number:
            by = literal(width * number, DType.I32, lanes).text
            text = b.pure(f"or {kind} {total}, {b.pure(f'shl {kind} {text}, {by}')}")
        total = text
    return Value(total, DType.I32, lanes)


def from_memory(b: Builder, text: str, dtype: DType, lanes: int) -> Value:
    """What was loaded, of `memory_type`, as a value."""
    if dtype is DType.BOOL:
        kind = vector("i8", lanes)
        return Value(
            b.pure(f"icmp ne {kind} {text}, {literal(0, DType.I8, lanes).text}"), dtype, lanes
        )
    if not dtype.is_narrow_float:
        return Value(extended(b, text, dtype, lanes), dtype, lanes)
    kind = vector("float", lanes)
    if dtype is DType.F16 and b.instructions.converts_f16:
        value = b.pure(f"fpext {vector('half', lanes)} {text} to {kind}")
    elif dtype is DType.BF16:
        wide = b.pure(f"zext {vector('i16', lanes)} {text} to {vector('i32', lanes)}")
        bits = b.pure(f"shl {vector('i32', lanes)} {wide}, {literal(16, DType.I32, lanes).text}")
        value = b.pure(f"bitcast {vector('i32', lanes)} {bits} to {kind}")
    else:
        value = narrow_floats.decode(b, text, dtype, lanes)
    b.in_memory[value, dtype] = text  # rounding it again would change nothing
    return Value(value, dtype, lanes)


def _bfloat_bits(b: Builder, x: Value) -> str:
    """The upper half of the f32, rounded to nearest even; a NaN stays a NaN."""
    if b.instructions.rounds_bf16:
        half = vector("bfloat", x.lanes)
        rounded = b.pure(f"fptrunc {x.type} {x.text} to {half}")
        return b.pure(f"bitcast {half} {rounded} to {vector('i16', x.lanes)}")
    kind = vector("i32", x.lanes)
    bits = b.pure(f"bitcast {x.type} {x.text} to {kind}")
    upper = b.pure(f"lshr {kind} {bits}, {literal(16, DType.I32, x.lanes).text}")
    odd = b.pure(f"and {kind} {upper}, {literal(1, DType.I32, x.lanes).text}")
    bias = b.pure(f"add {kind} {odd}, {literal(0x7FFF, DType.I32, x.lanes).text}")
    rounded = b.pure(f"add {kind} {bits}, {bias}")
    nan = b.pure(f"fcmp uno {x.type} {x.text}, {x.text}")
    quiet = b.pure(f"or {kind} {bits}, {literal(0x400000, DType.I32, x.lanes).text}")
    mask = vector("i1", x.lanes)
    chosen = b.pure(f"select {mask} {nan}, {kind} {quiet}, {kind} {rounded}")
    high = b.pure(f"lshr {kind} {chosen}, {literal(16, DType.I32, x.lanes).text}")
    return b.pure(f"trunc {kind} {high} to {vector('i16', x.lanes)}")


def _float_to_float(b: Builder, dtype: DType, x: Value) -> Value:
    to = type_of(dtype, x.lanes)
    if to == x.type:
        return rounded(b, Value(x.text, dtype, x.lanes))
    if dtype.is_narrow_float:
        return rounded(b, Value(_to_odd(b, x), dtype, x.lanes))
    name = "fptrunc" if x.dtype is DType.F64 else "fpext"
    return Value(b.pure(f"{name} {x.type} {x.text} to {to}"), dtype, x.lanes)


def _to_odd(b: Builder, x: Value) -> str:
    """An f64 as f32; where it is none, as the neighbour whose last bit is 1: rounded again to fewer
    bits, that is what the f64 would be (S. Boldo, G. Melquiond, "When double rounding is odd")."""
    kind, bits, mask = (vector(name, x.lanes) for name in ("float", "i32", "i1"))
    single = b.pure(f"fptrunc {x.type} {x.text} to {kind}")
    back = b.pure(f"fpext {kind} {single} to {x.type}")
    size, size_back = (b.overloaded("fabs", x.type, text) for text in (x.text, back))
    above = b.pure(f"fcmp ogt {x.type} {size_back}, {size}")
    inexact = b.pure(f"fcmp one {x.type} {back}, {x.text}")
    code = b.pure(f"bitcast {kind} {single} to {bits}")
    one = b.pure(f"zext {mask} {above} to {bits}")
    truncated = b.pure(f"sub {bits} {code}, {one}")
    odd = b.pure(f"or {bits} {truncated}, {literal(1, DType.I32, x.lanes).text}")
    chosen = b.pure(f"select {mask} {inexact}, {bits} {odd}, {bits} {code}")
    return b.pure(f"bitcast {bits} {chosen} to {kind}")


def _float_to_integer(b: Builder, dtype: DType, x: Value) -> Value:
    if x.lanes > 1 and (dtype.bits < 32 or dtype is DType.I32):
        return _floats_to_integers(b, dtype, x)
    to, sign = type_of(dtype, x.lanes), "s" if dtype.is_signed else "u"
    full = f"llvm.fpto{sign}i.sat.{suffix(to)}.{suffix(x.type)}"
    text = b.call(full, to, (x.type, x.text))
    if dtype.bits < 8:
        least, most = (literal(limit, dtype, x.lanes).text for limit in dtype.limits)
        text = b.overloaded(f"{sign}min", to, b.overloaded(f"{sign}max", to, text, least), most)
    return Value(text, dtype, x.lanes)


def _floats_to_integers(b: Builder, dtype: DType, x: Value) -> Value:
    """A vector of floats as integers that i32 holds. LLVM takes a saturating conversion apart, lane
    by lane, so floats are clamped before a plain one."""
    floats, mask, whole = x.type, vector("i1", x.lanes), vector("i32", x.lanes)
    low, high = dtype.limits
    # The last below 2³¹, where the float has fewer bits than i32.
    held = DType.F64 if x.dtype is DType.F64 else DType.F32
    top = _LAST_I32 if dtype is DType.I32 and held is DType.F32 else high
    least, most = (literal(float(limit), held, x.lanes).text for limit in (low, top))
    above = b.pure(f"fcmp ogt {floats} {x.text}, {least}")  # NaN is not
    text = b.pure(f"select {mask} {above}, {floats} {x.text}, {floats} {least}")
    below = b.pure(f"fcmp olt {floats} {text}, {most}")
    text = b.pure(f"select {mask} {below}, {floats} {text}, {floats} {most}")
    text = b.pure(f"fptosi {floats} {text} to {whole}")
    if top != high:
        fits = b.pure(f"fcmp ule {floats} {x.text}, {most}")
        greatest = literal(high, DType.I32, x.lanes).text
        text = b.pure(f"select {mask} {fits}, {whole} {text}, {whole} {greatest}")
    if low:
        known = b.pure(f"fcmp ord {floats} {x.text}, {x.text}")
        text = b.pure(f"select {mask} {known}, {whole} {text}, {whole} zeroinitializer")
    if dtype is not DType.I32:
        text = b.pure(f"trunc {whole} {text} to {type_of(dtype, x.lanes)}")
    return Value(text, dtype, x.lanes)


def _integer_to_float(b: Builder, dtype: DType, x: Value) -> Value:
    if dtype.is_narrow_float and x.dtype.bits >= 32:  # more bits than f32 holds
        return _float_to_float(b, dtype, _integer_to_float(b, DType.F64, _sticky(b, x)))
    name = "sitofp" if x.dtype.is_signed else "uitofp"
    text = b.pure(f"{name} {x.type} {x.text} to {type_of(dtype, x.lanes)}")
    return rounded(b, Value(text, dtype, x.lanes))


def _sticky(b: Builder, x: Value) -> Value:
    """An integer of 64 bits with few enough bits for f64: where it has more, one bit tells whether
    any of the last twelve was set."""
    if x.dtype.bits < 64:
        return x
    kind, mask, lanes = x.type, vector("i1", x.lanes), x.lanes
    zero, tail, bit = (literal(n, x.dtype, lanes).text for n in (0, 0xFFF, 0x800))
    rest = b.pure(f"and {kind} {x.text}, {tail}")
    some = b.pure(f"icmp ne {kind} {rest}, {zero}")
    kept = b.pure(f"sub {kind} {x.text}, {rest}")
    told = b.pure(f"or {kind} {kept}, {bit}")
    coarse = b.pure(f"select {mask} {some}, {kind} {told}, {kind} {kept}")
    negated = b.pure(f"sub {kind} {zero}, {x.text}")
    size = b.overloaded("smax", kind, x.text, negated) if x.dtype.is_signed else x.text
    large = b.pure(f"icmp ugt {kind} {size}, {literal(1 << 53, x.dtype, lanes).text}")
    return Value(b.pure(f"select {mask} {large}, {kind} {coarse}, {kind} {x.text}"), x.dtype, lanes)


def _logical(b: Builder, op: BinaryOp, left: Value, right: Value) -> Value:
    for one, other in ((left, right), (right, left)):
        if one.const is not None and one.dtype is DType.BOOL:
            absorbs = bool(one.const) is (op is BinaryOp.OR)
            return one if absorbs else other
    lanes = max(left.lanes, right.lanes)
    left, right = b.widen(left, lanes), b.widen(right, lanes)
    return Value(b.pure(f"{op.value} {left.type} {left.text}, {right.text}"), left.dtype, lanes)


def _compare(b: Builder, op: BinaryOp, left: Value, right: Value) -> Value:
    floats, signed, unsigned = _COMPARE[op]
    dtype = left.dtype
    if dtype.is_float:
        compare = f"fcmp {floats}"
    else:
        compare = f"icmp {signed if dtype.is_signed else unsigned}"
    text = b.pure(f"{compare} {left.type} {left.text}, {right.text}")
    return Value(text, DType.BOOL, left.lanes)


def _boolean(b: Builder, op: BinaryOp, left: Value, right: Value) -> Value:
    """Arithmetic on booleans, as numpy's: add and max are or, mul and min are and."""
    name = "or" if op in (BinaryOp.ADD, BinaryOp.MAX) else "and"
    return Value(b.pure(f"{name} {left.type} {left.text}, {right.text}"), DType.BOOL, left.lanes)


def _float_binary(b: Builder, op: BinaryOp, left: Value, right: Value) -> str:
    kind = left.type
    if op in _FLOAT:
        return b.pure(f"{_FLOAT[op]} {kind} {left.text}, {right.text}")
    if op is BinaryOp.MIN or op is BinaryOp.MAX:
        return _float_extreme(b, op, left, right)
    if op is BinaryOp.MOD:
        # a - floor(a / b) * b: the result has the sign of b, as in Python.
        ratio = b.pure(f"fdiv {kind} {left.text}, {right.text}")
        whole = b.overloaded("floor", kind, ratio)
        part = b.pure(f"fmul contract {kind} {whole}, {right.text}")
        return b.pure(f"fsub contract {kind} {left.text}, {part}")
    if op is BinaryOp.SWISH:
        return math_functions.swish(b, left, right)
    return math_functions.power(b, left, right)


def _float_extreme(b: Builder, op: BinaryOp, left: Value, right: Value) -> str:
    """min or max that propagates NaN. Where the machine's own returns its second operand if either
    is NaN, an operand that cannot be NaN goes first, and otherwise one more select is needed."""
    if b.instructions.keeps_nan:
        name = "maximum" if op is BinaryOp.MAX else "minimum"
        return b.overloaded(name, left.type, left.text, right.text)
    if right.const is not None and right.const == right.const:
        left, right = right, left
    compare = "ogt" if op is BinaryOp.MAX else "olt"
    kind, mask = left.type, vector("i1", left.lanes)
    beyond = b.pure(f"fcmp {compare} {kind} {left.text}, {right.text}")
    extreme = b.pure(f"select {mask} {beyond}, {kind} {left.text}, {kind} {right.text}")
    if left.const is not None and left.const == left.const:
        return extreme
    nan = b.pure(f"fcmp uno {kind} {left.text}, {left.text}")
    return b.pure(f"select {mask} {nan}, {kind} {left.text}, {kind} {extreme}")


def _integer_unary(b: Builder, op: UnaryOp, x: Value) -> str:
    zero = literal(0, x.dtype, x.lanes).text
    if op is UnaryOp.NEG:
        return b.pure(f"sub {x.type} {zero}, {x.text}")
    if op is UnaryOp.ABS and x.dtype.is_signed and x.dtype is not DType.BOOL:
        negated = b.pure(f"sub {x.type} {zero}, {x.text}")
        return b.overloaded("smax", x.type, x.text, negated)
    if op in (UnaryOp.ABS, UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND):
        return x.text
    # Transcendental functions of integers go through f64.
    wide = unary(b, op, cast(b, DType.F64, x))
    return cast(b, x.dtype, wide).text


def _integer_binary(b: Builder, op: BinaryOp, left: Value, right: Value) -> str:
    sign = "s" if left.dtype.is_signed else "u"
    match op:
        case BinaryOp.MIN | BinaryOp.MAX:
            return b.overloaded(f"{sign}{op.value}", left.type, left.text, right.text)
        case BinaryOp.DIV | BinaryOp.MOD:
            return _integer_division(b, op, left, right)
        case BinaryOp.SHL | BinaryOp.SHR:
            return _shift(b, op, left, right)
        case _ if op in _BITWISE:
            return b.pure(f"{_BITWISE[op]} {left.type} {left.text}, {right.text}")
        case _:
            return _integer_power(b, left, right)


def _shift(b: Builder, op: BinaryOp, left: Value, right: Value) -> str:
    """A shift by any amount, where the machine's own takes those below the width."""
    kind, lanes, dtype = left.type, left.lanes, left.dtype
    width, mask = dtype.nbytes * 8, vector("i1", lanes)
    arithmetic = op is BinaryOp.SHR and dtype.is_signed
    name = "shl" if op is BinaryOp.SHL else "ashr" if arithmetic else "lshr"
    if right.const is not None and 0 <= right.const < width:
        return b.pure(f"{name} {kind} {left.text}, {right.text}")
    most = literal(width - 1, dtype, lanes).text
    beyond = b.pure(f"icmp ugt {kind} {right.text}, {most}")
    amount = b.pure(f"select {mask} {beyond}, {kind} {most}, {kind} {right.text}")
    shifted = b.pure(f"{name} {kind} {left.text}, {amount}")
    if arithmetic:
        return shifted
    zero = literal(0, dtype, lanes).text
    return b.pure(f"select {mask} {beyond}, {kind} {zero}, {kind} {shifted}")


def _integer_division(b: Builder, op: BinaryOp, left: Value, right: Value) -> str:
    """Floor division or its remainder; by zero both give 0, where the machine would trap."""
    kind, lanes, dtype = left.type, left.lanes, left.dtype
    mask = vector("i1", lanes)
    if not dtype.is_signed:
        safe, is_zero = _nonzero(b, right)
        name = "udiv" if op is BinaryOp.DIV else "urem"
        result = b.pure(f"{name} {kind} {left.text}, {safe}")
        return _zero_where(b, is_zero, result, left)
    divisor, is_zero = _nonzero(b, right)
    minus_one, zero = literal(-1, dtype, lanes).text, literal(0, dtype, lanes).text
    if right.const is None:
        # The least integer over -1 traps as well: divide by 1 and negate.
        is_minus = b.pure(f"icmp eq {kind} {right.text}, {minus_one}")
        one = literal(1, dtype, lanes).text
        divisor = b.pure(f"select {mask} {is_minus}, {kind} {one}, {kind} {divisor}")
    quotient = b.pure(f"sdiv {kind} {left.text}, {divisor}")
    product = b.pure(f"mul {kind} {quotient}, {divisor}")
    rest = b.pure(f"sub {kind} {left.text}, {product}")
    inexact = b.pure(f"icmp ne {kind} {rest}, {zero}")
    signs = b.pure(f"xor {kind} {rest}, {divisor}")
    opposite = b.pure(f"icmp slt {kind} {signs}, {zero}")
    below = b.pure(f"and {mask} {inexact}, {opposite}")
    if op is BinaryOp.MOD:
        added = b.pure(f"add {kind} {rest}, {divisor}")
        floored = b.pure(f"select {mask} {below}, {kind} {added}, {kind} {rest}")
    else:
        less = b.pure(f"add {kind} {quotient}, {minus_one}")
        floored = b.pure(f"select {mask} {below}, {kind} {less}, {kind} {quotient}")
        if right.const is None:
            negated = b.pure(f"sub {kind} {zero}, {left.text}")
            floored = b.pure(f"select {mask} {is_minus}, {kind} {negated}, {kind} {floored}")
    return _zero_where(b, is_zero, floored, left)


def _nonzero(b: Builder, divisor: Value) -> tuple[str, str | None]:
    """The divisor with 1 for 0, and where it was 0 (None: nowhere)."""
    if divisor.const:
        return divisor.text, None
    zero = literal(0, divisor.dtype, divisor.lanes).text
    one = literal(1, divisor.dtype, divisor.lanes).text
    is_zero = b.pure(f"icmp eq {divisor.type} {divisor.text}, {zero}")
    mask = vector("i1", divisor.lanes)
    kind = divisor.type
    safe = b.pure(f"select {mask} {is_zero}, {kind} {one}, {kind} {divisor.text}")
    return safe, is_zero


def _zero_where(b: Builder, condition: str | None, text: str, like: Value) -> str:
    if condition is None:
        return text
    zero = literal(0, like.dtype, like.lanes).text
    mask = vector("i1", like.lanes)
    return b.pure(f"select {mask} {condition}, {like.type} {zero}, {like.type} {text}")


def _integer_power(b: Builder, base: Value, exponent: Value) -> str:
    """Square and multiply over the exponent's low six bits, and once more where it has others: of
    odd numbers but 1 and -1 that has overflowed. A negative exponent gives what truncation does: 0,
    but for 1 and -1."""
    dtype, lanes, kind = base.dtype, base.lanes, base.type
    exponent = cast(b, dtype, exponent)
    zero, one = literal(0, dtype, lanes).text, literal(1, dtype, lanes).text
    mask = vector("i1", lanes)
    result, square = one, base.text
    for bit in range(6):
        chosen = b.pure(f"and {kind} {exponent.text}, {literal(1 << bit, dtype, lanes).text}")
        set_bit = b.pure(f"icmp ne {kind} {chosen}, {zero}")
        product = b.pure(f"mul {kind} {result}, {square}")
        result = b.pure(f"select {mask} {set_bit}, {kind} {product}, {kind} {result}")
        square = b.pure(f"mul {kind} {square}, {square}")
    beyond = b.pure(f"icmp ugt {kind} {exponent.text}, {literal(63, dtype, lanes).text}")
    product = b.pure(f"mul {kind} {result}, {square}")
    result = b.pure(f"select {mask} {beyond}, {kind} {product}, {kind} {result}")
    if dtype.is_signed:
        negative = b.pure(f"icmp slt {kind} {exponent.text}, {zero}")
        above = b.pure(f"add {kind} {base.text}, {one}")
        other = b.pure(f"icmp ugt {kind} {above}, {literal(2, dtype, lanes).text}")
        vanishes = b.pure(f"and {mask} {negative}, {other}")
        result = b.pure(f"select {mask} {vanishes}, {kind} {zero}, {kind} {result}")
    return result


def _as(value: int | float | bool, dtype: DType) -> int | float:
    return float(value) if dtype.is_float else int(value)
