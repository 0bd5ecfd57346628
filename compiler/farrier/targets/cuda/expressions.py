"""Expressions as LLVM text: tables of what each operator writes."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TypeAlias, assert_never

from farrier.errors import CompilerError
from farrier.ir import expr as e
from farrier.ir.dim import Atom, DimOp, Extent, Symbol, bounds
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    ByteTable,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Size,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.types import DType
from farrier.ir.walk import walk
from farrier.targets.cuda import functions
from farrier.targets.cuda.code import Code, memory_type, value_type
from farrier.targets.gpu.inexpressible import InexpressibleError
from farrier.targets.gpu.launches import is_natural

Address: TypeAlias = Callable[[Buffer, tuple[Expr, ...]], tuple[str, str]]

_INTRINSICS = {
    UnaryOp.ABS: "fabs",
    UnaryOp.SQRT: "sqrt",
    UnaryOp.FLOOR: "floor",
    UnaryOp.CEIL: "ceil",
    UnaryOp.ROUND: "roundeven",
}
# A product and a sum may become one instruction, which rounds once.
_OF_FLOATS = {
    BinaryOp.ADD: "fadd contract",
    BinaryOp.SUB: "fsub contract",
    BinaryOp.MUL: "fmul contract",
    BinaryOp.DIV: "fdiv",
    BinaryOp.LT: "fcmp olt",
    BinaryOp.LE: "fcmp ole",
    BinaryOp.EQ: "fcmp oeq",
    BinaryOp.NE: "fcmp une",
}
_OF_INTEGERS = {
    BinaryOp.ADD: "add",
    BinaryOp.SUB: "sub",
    BinaryOp.MUL: "mul",
    BinaryOp.EQ: "icmp eq",
    BinaryOp.NE: "icmp ne",
    BinaryOp.AND: "and",
    BinaryOp.OR: "or",
    BinaryOp.BIT_AND: "and",
    BinaryOp.BIT_OR: "or",
    BinaryOp.BIT_XOR: "xor",
}
_ORDERS = {BinaryOp.LT: "lt", BinaryOp.LE: "le"}
_EXTREMES = {BinaryOp.MIN: "min", BinaryOp.MAX: "max"}
_OF_BOOLS = {BinaryOp.MIN: "and", BinaryOp.MAX: "or"}


class Expressions:
    """Writes expressions as instructions of a function, and returns operands. `address` writes the
    address of an element."""

    def __init__(self, code: Code, address: Address) -> None:
        self._code = code
        self._address = address
        self.variables: dict[str, str] = {}
        self.sizes: dict[str, str] = {}

    # -- sizes

    def extent(self, extent: Extent) -> str:
        """Return an extent as an operand of i64."""
        if isinstance(extent, int):
            return str(extent)
        total = ""
        for monomial, factor in extent.terms:
            term = str(factor)
            for atom in monomial:
                value = self._atom(atom)
                term = value if term == "1" else self._code.value(f"mul i64 {term}, {value}")
            total = self._code.value(f"add i64 {total}, {term}") if total else term
        return total or "0"

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return self.sizes[atom.name]
        left, right = self.extent(atom.left), self.extent(atom.right)
        if atom.op in (DimOp.MIN, DimOp.MAX):
            return self._intrinsic(f"s{atom.op.value}", "i64", left, right)
        op = BinaryOp.DIV if atom.op is DimOp.FLOORDIV else BinaryOp.MOD
        is_natural = bounds(atom.left)[0] >= 0
        return self._divided(op, "i64", left, right, is_natural)

    # -- elements

    def as_stored(self, dtype: DType, value: str) -> str:
        """Return a value as memory holds it."""
        if dtype is DType.BOOL:
            return self._code.value(f"zext i1 {value} to i8")
        if dtype.is_narrow_float:
            return self._code.value(f"fptrunc float {value} to half")
        return value

    def _load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        kind, address = self._address(buffer, indices)
        element = self._code.value(f"load {memory_type(buffer.dtype)}, {kind} {address}")
        if buffer.dtype is DType.BOOL:
            return self._code.value(f"icmp ne i8 {element}, 0")
        if buffer.dtype.is_narrow_float:
            return self._code.value(f"fpext half {element} to float")
        return element

    # -- expressions

    def value(self, expr: Expr) -> str:
        """Write an expression. Raises InexpressibleError."""
        match expr:
            case Const(value, dtype):
                return _constant(value, dtype)
            case Var(name):
                return self.variables[name]
            case Size(extent):
                return self.extent(extent)
            case Load(buffer, indices):
                return self._load(buffer, indices)
            case Unary(op, operand):
                return self._unary(op, operand)
            case Binary(BinaryOp.AND, left, right) if _loads(right):
                return self._select(left, right, Const(False, DType.BOOL))
            case Binary(BinaryOp.OR, left, right) if _loads(right):
                return self._select(left, Const(True, DType.BOOL), right)
            case Binary(op, left, right):
                return self._binary(op, left, right)
            case Select(condition, then, otherwise):
                return self._select(condition, then, otherwise)
            case Cast(dtype, operand):
                return self._cast(dtype, operand)
            case ByteTable():
                raise InexpressibleError("kernels for CUDA have no tables of bytes")
            case Reduce():
                raise CompilerError("a loop function holds no Reduce")
        assert_never(expr)

    def _intrinsic(self, name: str, type_: str, *operands: str) -> str:
        suffix = {"float": "f32", "double": "f64"}.get(type_, type_)
        return self._code.call(type_, f"llvm.{name}.{suffix}", [(type_, x) for x in operands])

    def _own(self, name: str, dtype: DType, *operands: str) -> str:
        """Call a function of Farrier's own."""
        dtype = DType.F32 if dtype.is_narrow_float else dtype
        type_ = value_type(dtype)
        self._code.functions.add((name, dtype))
        listed = ", ".join(f"{type_} {operand}" for operand in operands)
        return self._code.value(f'call {type_} @"{functions.symbol(name, dtype)}"({listed})')

    def _unary(self, op: UnaryOp, operand: Expr) -> str:
        dtype = e.dtype_of(operand)
        type_, x = value_type(dtype), self.value(operand)
        if op is UnaryOp.NOT:
            return self._code.value(f"xor {type_} {x}, {'true' if dtype is DType.BOOL else -1}")
        if op is UnaryOp.NEG:
            return self._code.value(
                f"fneg {type_} {x}" if dtype.is_float else f"sub {type_} 0, {x}"
            )
        if not dtype.is_float:
            if op is not UnaryOp.ABS:
                raise InexpressibleError(f"it has {op} of {dtype}")
            if not dtype.is_signed:
                return x
            return self._code.call(type_, f"llvm.abs.{type_}", [(type_, x), ("i1", "false")])
        if op in _INTRINSICS:
            return self._intrinsic(_INTRINSICS[op], type_, x)
        if op not in functions.UNARY:
            raise InexpressibleError(f"it has the function {op}, which kernels for CUDA lack yet")
        return self._own(op.value, dtype, x)

    def _select(self, condition: Expr, then: Expr, otherwise: Expr) -> str:
        """Write a choice. A branch that loads is run only where it is chosen."""
        code, type_ = self._code, value_type(e.dtype_of(then))
        chosen = self.value(condition)
        if not (_loads(then) or _loads(otherwise)):
            x, y = self.value(then), self.value(otherwise)
            return code.value(f"select i1 {chosen}, {type_} {x}, {type_} {y}")
        taken, passed, after = code.labels("then", "else", "after")
        code.branch(chosen, taken, passed)
        ends = []
        for label, part in ((taken, then), (passed, otherwise)):
            code.start(label)
            ends.append(f"[ {self.value(part)}, %{code.block} ]")
            code.jump(after)
        code.start(after)
        return code.value(f"phi {type_} {', '.join(ends)}")

    def _binary(self, op: BinaryOp, left: Expr, right: Expr) -> str:
        dtype = e.dtype_of(left)
        type_, a, b = value_type(dtype), self.value(left), self.value(right)
        if dtype.is_float:
            return self._of_floats(op, dtype, a, b)
        if op in _OF_INTEGERS:
            return self._code.value(f"{_OF_INTEGERS[op]} {type_} {a}, {b}")
        sign = "s" if dtype.is_signed and dtype is not DType.BOOL else "u"
        if op in _ORDERS:
            return self._code.value(f"icmp {sign}{_ORDERS[op]} {type_} {a}, {b}")
        if op in _EXTREMES and dtype is DType.BOOL:
            return self._code.value(f"{_OF_BOOLS[op]} i1 {a}, {b}")
        if op in _EXTREMES:
            return self._intrinsic(f"{sign}{_EXTREMES[op]}", type_, a, b)
        if op in (BinaryOp.DIV, BinaryOp.MOD):
            if sign == "u":
                return self._code.value(f"u{_DIVISIONS[op]} {type_} {a}, {b}")
            return self._divided(op, type_, a, b, is_natural(left) and is_natural(right))
        if op in (BinaryOp.SHL, BinaryOp.SHR):
            return self._shifted(op, dtype, a, b)
        if op is BinaryOp.MUL_HIGH:
            return self._upper_half(sign, type_, a, b)
        raise InexpressibleError(f"it has {op} of {dtype}, which kernels for CUDA lack yet")

    def _of_floats(self, op: BinaryOp, dtype: DType, a: str, b: str) -> str:
        type_ = value_type(dtype)
        if op in _OF_FLOATS:
            return self._code.value(f"{_OF_FLOATS[op]} {type_} {a}, {b}")
        if op in _EXTREMES:
            return self._intrinsic(f"{_EXTREMES[op]}imum", type_, a, b)
        if op in functions.BINARY:
            return self._own(op.value, dtype, a, b)
        if op is BinaryOp.MOD:
            quotient = self._code.value(f"fdiv {type_} {a}, {b}")
            whole = self._intrinsic("floor", type_, quotient)
            back = self._code.value(f"fmul {type_} {whole}, {b}")
            return self._code.value(f"fsub {type_} {a}, {back}")
        raise InexpressibleError(f"it has {op} of {dtype}, which kernels for CUDA lack yet")

    def _divided(self, op: BinaryOp, type_: str, a: str, b: str, natural: bool) -> str:
        """Divide signed integers towards negative infinity."""
        code = self._code
        if natural:
            return code.value(f"u{_DIVISIONS[op]} {type_} {a}, {b}")
        rest = code.value(f"srem {type_} {a}, {b}")
        is_uneven = code.value(f"icmp ne {type_} {rest}, 0")
        signs = code.value(f"xor {type_} {rest}, {b}")
        differs = code.value(f"icmp slt {type_} {signs}, 0")
        is_below = code.value(f"and i1 {is_uneven}, {differs}")
        if op is BinaryOp.MOD:
            above = code.value(f"add {type_} {rest}, {b}")
            return code.value(f"select i1 {is_below}, {type_} {above}, {type_} {rest}")
        quotient = code.value(f"sdiv {type_} {a}, {b}")
        less = code.value(f"sext i1 {is_below} to {type_}")
        return code.value(f"add {type_} {quotient}, {less}")

    def _shifted(self, op: BinaryOp, dtype: DType, a: str, b: str) -> str:
        """Shift; by the width and more, or less than 0, nothing but the sign is left."""
        code, type_ = self._code, value_type(dtype)
        inside = code.value(f"icmp ult {type_} {b}, {dtype.bits}")
        most = code.value(f"select i1 {inside}, {type_} {b}, {type_} {dtype.bits - 1}")
        if op is BinaryOp.SHR and dtype.is_signed:
            return code.value(f"ashr {type_} {a}, {most}")
        name = "shl" if op is BinaryOp.SHL else "lshr"
        shifted = code.value(f"{name} {type_} {a}, {most}")
        return code.value(f"select i1 {inside}, {type_} {shifted}, {type_} 0")

    def _upper_half(self, sign: str, type_: str, a: str, b: str) -> str:
        code, extend = self._code, f"{'sext' if sign == 's' else 'zext'} {type_}"
        wide = [code.value(f"{extend} {x} to i64") for x in (a, b)]
        product = code.value(f"mul i64 {wide[0]}, {wide[1]}")
        half = code.value(f"lshr i64 {product}, 32")
        return code.value(f"trunc i64 {half} to {type_}")

    def _cast(self, dtype: DType, operand: Expr) -> str:
        source, code = e.dtype_of(operand), self._code
        to, of, x = value_type(dtype), value_type(source), self.value(operand)
        if dtype is source:
            return x
        if dtype is DType.BOOL:
            return code.value(
                f"fcmp une {of} {x}, 0.0" if source.is_float else f"icmp ne {of} {x}, 0"
            )
        if source.is_float and dtype.is_float:
            return self._as_float(dtype, of, x)
        is_signed = source.is_signed and source is not DType.BOOL
        if dtype.is_float:
            whole = code.value(f"{'si' if is_signed else 'ui'}tofp {of} {x} to {to}")
            return self._as_float(dtype, to, whole)
        if source.is_float:
            name = f"llvm.fpto{'si' if dtype.is_signed else 'ui'}.sat.{to}"
            return code.call(to, f"{name}.{'f64' if of == 'double' else 'f32'}", [(of, x)])
        if to == of:
            return x
        is_narrower = dtype.bits < (1 if source is DType.BOOL else source.bits)
        name = "trunc" if is_narrower else "sext" if is_signed else "zext"
        return code.value(f"{name} {of} {x} to {to}")

    def _as_float(self, dtype: DType, of: str, x: str) -> str:
        """Convert a float, rounding once: a narrow float stays in f32 afterwards."""
        to = value_type(dtype)
        if dtype.is_narrow_float:
            half = self._code.value(f"fptrunc {of} {x} to half")
            return self._code.value(f"fpext half {half} to float")
        if to == of:
            return x
        return self._code.value(f"{'fpext' if to == 'double' else 'fptrunc'} {of} {x} to {to}")


_DIVISIONS = {BinaryOp.DIV: "div", BinaryOp.MOD: "rem"}


def _loads(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(expr))


def _constant(value: float, dtype: DType) -> str:
    if dtype is DType.BOOL:
        return "true" if value else "false"
    value_type(dtype)
    if not dtype.is_float:
        return str(value)
    number = float(value)
    if dtype is not DType.F64 and math.isfinite(number):
        number = struct.unpack("f", struct.pack("f", number))[0]  # LLVM wants it exact.
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
