"""The emission of a thread's expressions as instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, assert_never

from farrier.errors import CompilerError
from farrier.ir.addresses import flatten
from farrier.ir.affine import Simplifier
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
    Var,
    dtype_of,
)
from farrier.ir.instr import Joined, Operand
from farrier.ir.shared_bytes import element, shares_bytes
from farrier.ir.types import DType
from farrier.ir.walk import walk
from farrier.targets.cuda.indices import Indices
from farrier.targets.llvm import arithmetic
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.tables import look_up
from farrier.targets.llvm.values import Value, literal, memory_type

ALIGNMENT = 16  # The bytes of the widest access of a thread. Arrays start at multiples of it.
Base: TypeAlias = Callable[[Buffer], Operand]

_OF_INDICES = frozenset(
    (
        *(BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.MOD),
        *(BinaryOp.MIN, BinaryOp.MAX),
    )
)


class Expressions:
    """The emitter of expressions. `base` is a function that returns the address at which a buffer
    starts."""

    def __init__(self, builder: Builder, simplifier: Simplifier, base: Base) -> None:
        self._b = builder
        self._base = base
        self.indices = Indices(builder, simplifier, self._apply)

    def address(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Operand:
        """Emit the address of an element."""
        form = flatten(buffer, indices, self.indices.simplifier, buffer.dtype.nbytes)
        return self.indices.address(self._base(buffer), form, buffer.nbytes)

    def alignment(self, buffer: Buffer, indices: tuple[Expr, ...]) -> int:
        """Return the largest power of two, up to a limit, that provably divides the address of the
        element `buffer[indices]`. LLVM merges accesses to adjacent elements into one if it knows
        the alignment of the first."""
        form = flatten(buffer, indices, self.indices.simplifier, buffer.dtype.nbytes)
        return max(buffer.dtype.nbytes, self.indices.divisor(form, ALIGNMENT))

    def evaluate(self, expr: Expr) -> Value:
        """Emit an expression, and return its value."""
        return self.indices.value(expr) if _is_index(expr) else self._apply(expr)

    def _apply(self, expr: Expr) -> Value:
        """Emit the operator at the root of an expression, and return its value."""
        match expr:
            case Const(value, dtype):
                return literal(value, dtype)
            case Var():
                return self.indices.value(expr)
            case Size(extent):
                return Value(self.indices.size(extent), DType.I64)
            case Load():
                return self._load(expr)
            case Unary(op, operand):
                return arithmetic.unary(self._b, op, self.evaluate(operand))
            case Binary(BinaryOp.AND, left, right) if _loads(right):
                return self._select(left, right, Const(False, DType.BOOL))
            case Binary(BinaryOp.OR, left, right) if _loads(right):
                return self._select(left, Const(True, DType.BOOL), right)
            case Binary(op, left, right):
                return arithmetic.binary(self._b, op, self.evaluate(left), self.evaluate(right))
            case Select(condition, then, otherwise):
                return self._select(condition, then, otherwise)
            case Cast(dtype, operand):
                return self._cast(dtype, operand)
            case ByteTable():
                return look_up(self._b, None, expr, self.evaluate(expr.operand))
            case Reduce():
                raise CompilerError("a loop function holds no Reduce")
            case _:
                assert_never(expr)

    def _load(self, load: Load) -> Value:
        if shares_bytes(load.buffer):
            return self.evaluate(element(load, self.indices.simplifier))
        dtype = load.buffer.dtype
        address = self.address(load.buffer, load.indices)
        alignment = self.alignment(load.buffer, load.indices)
        kept = self._b.load(memory_type(dtype), address, alignment)
        return arithmetic.from_memory(self._b, kept, dtype, 1)

    def _cast(self, dtype: DType, operand: Expr) -> Value:
        parts = arithmetic.rounding_of(operand) if arithmetic.held_by_i32(dtype) else None
        if parts is not None and dtype_of(parts.rounded) is DType.F32:
            rounded = self.evaluate(parts.rounded)
            return arithmetic.rounded_cast(self._b, dtype, rounded, parts.offset)
        return arithmetic.cast(self._b, dtype, self.evaluate(operand))

    def _select(self, condition: Expr, then: Expr, otherwise: Expr) -> Value:
        """Emit a Select, and return its value. If a branch of it loads from memory, the branch is
        executed only if it is chosen."""
        chosen = self.evaluate(condition)
        if chosen.const is not None:
            return self.evaluate(then if chosen.const else otherwise)
        if not (_loads(then) or _loads(otherwise)):
            return self._b.select(chosen, self.evaluate(then), self.evaluate(otherwise))
        bodies, values = [], []
        for side in (then, otherwise):
            with self._b.nested() as body:
                values.append(self.evaluate(side))
            bodies.append(body)
        first, second = values
        result = self._b.variable(first.type, "chosen")
        joined = Joined(result, first.operand, second.operand)
        self._b.branch(chosen.operand, bodies[0], bodies[1], [joined])
        return Value(result, first.dtype)


def _loads(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(expr))


def _is_index(expr: Expr) -> bool:
    """Check whether an expression consists only of integer arithmetic on loop variables and
    sizes."""
    match expr:
        case Var() | Size():
            return True
        case Const(_, dtype):
            return dtype is DType.I64
        case Binary(op, left, right) if op in _OF_INDICES:
            return _is_index(left) and _is_index(right)
    return False
