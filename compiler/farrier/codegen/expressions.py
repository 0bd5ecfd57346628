"""Scalar expressions to values, in all lanes of a vectorized loop at once."""

from __future__ import annotations

from typing import assert_never

from farrier.codegen import arithmetic
from farrier.codegen.builder import Builder
from farrier.codegen.indices import Bindings, Indices
from farrier.codegen.memory import Memory
from farrier.codegen.registers import Registers
from farrier.codegen.text import Value, literal
from farrier.errors import CompilerError
from farrier.ir.addresses import flatten
from farrier.ir.affine import Linear, Simplifier
from farrier.ir.dim import number
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Scope,
    Select,
    Size,
    Unary,
    Var,
)
from farrier.ir.loop import Store
from farrier.ir.types import DType
from farrier.ir.walk import walk

_INDEX_OPS = frozenset(
    (
        BinaryOp.ADD,
        BinaryOp.SUB,
        BinaryOp.MUL,
        BinaryOp.DIV,
        BinaryOp.MOD,
        BinaryOp.MIN,
        BinaryOp.MAX,
    )
)


class Expressions:
    """Evaluates expressions of one function under construction at its current position."""

    def __init__(
        self, builder: Builder, bindings: Bindings, simplifier: Simplifier, registers: int
    ) -> None:
        self.b = builder
        self.bindings = bindings
        self.indices = Indices(builder, bindings, simplifier, self._structural)
        self.memory = Memory(builder, bindings, self.indices, registers)
        self.registers = Registers(builder)
        self._kinds: dict[int, tuple[Expr, bool, bool]] = {}
        self._forms: dict[int, tuple[object, Linear]] = {}

    def evaluate(self, expr: Expr) -> Value:
        """The value of an expression; a scalar where it is the same in every lane."""
        if isinstance(expr, Const):
            return literal(expr.value, expr.dtype)
        if isinstance(expr, Load):
            if expr.buffer.scope is Scope.REGISTER:
                return self._register(expr)
            return self.memory.load(expr)
        if self._is_index(expr):
            value = self.indices.value(expr)
            if value is not None:
                return value
        return self._structural(expr)

    def _structural(self, expr: Expr) -> Value:
        """The operator at the root of `expr`, applied to the values of its operands."""
        match expr:
            case Binary(op, left, right):
                return self._binary(op, left, right)
            case Unary(op, operand):
                return arithmetic.unary(self.b, op, self.evaluate(operand))
            case Select(condition, then, otherwise):
                return self._select(self.evaluate(condition), then, otherwise)
            case Cast(dtype, operand):
                return arithmetic.cast(self.b, dtype, self.evaluate(operand))
            case Var(name):
                return self._variable(name)
            case Size(extent):
                return Value(self.indices.size(extent), DType.I64)
            case Const() | Load():
                return self.evaluate(expr)
            case Reduce():
                raise CompilerError("a Reduce in a loop nest: it was not lowered")
            case _:
                assert_never(expr)

    def register_range(self, node: Load | Store) -> tuple[int, int]:
        """First element and elements a lane of an access to a register buffer."""
        known = self._forms.get(id(node))
        if known is None:
            form = flatten(node.buffer, node.indices, self.indices.simplifier, 1)
            known = self._forms[id(node)] = (node, form)
        offset = self.indices.resolve(known[1])
        if offset.terms or offset.irregular:
            raise CompilerError(
                f"an index of register buffer {node.buffer.name} is not constant",
                hint="unroll or vectorize the loops that index it",
            )
        return number(offset.const), offset.stride

    def _register(self, node: Load) -> Value:
        first, stride = self.register_range(node)
        bindings, registers, name = self.bindings, self.registers, node.buffer.name
        if bindings.lane is not None and stride:
            return registers.read(name, first, bindings.active, stride, bindings.lanes)
        piece = registers.tiles[name].get(first)
        if piece is not None and piece.width == 0:
            return piece.value
        return registers.read(name, first, 1, 1, 1)

    def _variable(self, name: str) -> Value:
        value = self.indices.value(Var(name))
        assert value is not None
        return value

    def _binary(self, op: BinaryOp, left: Expr, right: Expr) -> Value:
        if op is BinaryOp.ADD or op is BinaryOp.SUB:
            fused = self._multiply_add(op, left, right)
            if fused is not None:
                return fused
        a, b = self.evaluate(left), self.evaluate(right)
        if a.const is not None and b.const is not None and a.dtype is DType.I64:
            folded = _fold(op, int(a.const), int(b.const))
            if folded is not None:
                return folded
        return arithmetic.binary(self.b, op, a, b)

    def _multiply_add(self, op: BinaryOp, left: Expr, right: Expr) -> Value | None:
        """`a + b * c` and its like, as one operation; None where there is no product of floats."""
        for product, other, swapped in ((right, left, False), (left, right, True)):
            if not isinstance(product, Binary) or product.op is not BinaryOp.MUL:
                continue
            addend = self.evaluate(other)
            if not addend.dtype.is_float:
                return None
            a, b = self.evaluate(product.left), self.evaluate(product.right)
            if op is BinaryOp.SUB and swapped:
                addend = self._negated(addend)
            elif op is BinaryOp.SUB:
                a = self._negated(a)
            return arithmetic.multiply_add(self.b, a, b, addend)
        return None

    def _negated(self, x: Value) -> Value:
        if x.const is not None:
            return literal(-x.const, x.dtype, x.lanes)
        return Value(self.b.pure(f"fneg {x.type} {x.text}"), x.dtype, x.lanes)

    def _select(self, condition: Value, then: Expr, otherwise: Expr) -> Value:
        if condition.const is not None:
            return self.evaluate(then if condition.const else otherwise)
        first = self._guarded(then, condition)
        if not self._loads(otherwise):
            second = self.evaluate(otherwise)
        else:
            second = self._guarded(otherwise, self.b.negate(condition))
        return self.b.select(condition, first, second)

    def _guarded(self, expr: Expr, condition: Value) -> Value:
        """The value of `expr`, whose loads touch memory only where the condition holds."""
        if not self._loads(expr):
            return self.evaluate(expr)
        memory = self.memory
        outer = memory.guard
        memory.guard = self.b.both(outer, condition)
        try:
            return self.evaluate(expr)
        finally:
            memory.guard = outer

    def _loads(self, expr: Expr) -> bool:
        return self._kind(expr)[2]

    def _is_index(self, expr: Expr) -> bool:
        return self._kind(expr)[1]

    def _kind(self, expr: Expr) -> tuple[Expr, bool, bool]:
        """Whether an expression is arithmetic on loop variables, and whether it loads memory."""
        known = self._kinds.get(id(expr))
        if known is None:
            match expr:
                case Var() | Size():
                    known = (expr, True, False)
                case Const(_, dtype):
                    known = (expr, dtype is DType.I64, False)
                case Binary(op, left, right) if op in _INDEX_OPS:
                    a, b = self._kind(left), self._kind(right)
                    known = (expr, a[1] and b[1], a[2] or b[2])
                case _:
                    loads = any(
                        isinstance(n, Load) and n.buffer.scope is not Scope.REGISTER
                        for n in walk(expr)
                    )
                    known = (expr, False, loads)
            self._kinds[id(expr)] = known
        return known


def _fold(op: BinaryOp, a: int, b: int) -> Value | None:
    match op:
        case BinaryOp.DIV | BinaryOp.MOD if b != 0:
            return literal(a // b if op is BinaryOp.DIV else a % b, DType.I64)
        case BinaryOp.MIN:
            return literal(min(a, b), DType.I64)
        case BinaryOp.MAX:
            return literal(max(a, b), DType.I64)
        case BinaryOp.MUL:
            return literal(a * b, DType.I64)
        case BinaryOp.LT:
            return literal(a < b, DType.BOOL)
        case BinaryOp.LE:
            return literal(a <= b, DType.BOOL)
        case BinaryOp.EQ:
            return literal(a == b, DType.BOOL)
        case BinaryOp.NE:
            return literal(a != b, DType.BOOL)
        case _:
            return None
