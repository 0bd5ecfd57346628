"""The emission of scalar expressions, for all lanes of a vectorized loop at once."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import TypeAlias, assert_never

from farrier.errors import CompilerError
from farrier.ir.addresses import flatten
from farrier.ir.affine import Simplifier
from farrier.ir.dim import number
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    ByteTable,
    Cast,
    Const,
    Expr,
    Load,
    MemoryScope,
    Reduce,
    Select,
    Size,
    Unary,
    Var,
    dtype_of,
)
from farrier.ir.loop import Store
from farrier.ir.operands import operands
from farrier.ir.shared_bytes import element, shares_bytes
from farrier.ir.types import DType
from farrier.targets.cpu.codegen.indices import AddressExpr, Bindings, Indices
from farrier.targets.cpu.codegen.memory import Memory
from farrier.targets.cpu.codegen.registers import Registers
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.llvm import arithmetic
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.tables import look_up
from farrier.targets.llvm.values import Value, literal

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

_WHOLE = 4  # The i32 lanes of the vectors that `Instructions.rounded_high` takes.

Maker: TypeAlias = Callable[[], Value]  # Emits one expression at the current position.


class _Kind(enum.Enum):
    INDEX = "index"  # Arithmetic on loop variables and sizes only.
    LOADS = "loads"  # A value that loads from memory.
    VALUE = "value"  # A value of constants and registers.


class Expressions:
    """The emitter of expressions at the current position of a function under construction.

    An unrolled loop requests the same expression in each iteration. An expression is therefore
    analysed once, and compiled to a Python closure (a maker) that emits its value from the values
    of its operands.
    """

    def __init__(
        self, builder: Builder, bindings: Bindings, simplifier: Simplifier, target: CpuTarget
    ) -> None:
        self.b = builder
        self._table_lookup = target.table_lookup()
        self.bindings = bindings
        self.indices = Indices(builder, bindings, simplifier, self._apply)
        self.memory = Memory(builder, bindings, self.indices, target.registers)
        self.registers = Registers(builder)
        self._kinds: dict[int, tuple[Expr, _Kind]] = {}
        self._places: dict[int, tuple[object, AddressExpr]] = {}
        self._makers: dict[int, tuple[Expr, Maker]] = {}
        self._operators: dict[int, tuple[Expr, Maker]] = {}

    def close(self) -> None:
        """Drop all references once the function has been converted to text. These objects form
        reference cycles; without the garbage collector, each kernel would leak half a MB."""
        for part in (self.indices, self.memory, self):
            vars(part).clear()

    def evaluate(self, expr: Expr) -> Value:
        """Emit an expression and return its value, a scalar if the value is equal in all lanes."""
        return self._maker(expr)()

    def _maker(self, expr: Expr) -> Maker:
        """Return the closure that emits an expression, from a cache if possible."""
        entry = self._makers.get(id(expr))
        if entry is None:
            entry = self._makers[id(expr)] = (expr, self._maker_of(expr))
        return entry[1]

    def _maker_of(self, expr: Expr) -> Maker:
        if isinstance(expr, Const):
            value = literal(expr.value, expr.dtype)
            return lambda: value
        if isinstance(expr, Load):
            if expr.buffer.scope is MemoryScope.REGISTER:
                return self._register(expr)
            if shares_bytes(expr.buffer):
                return self._maker(element(expr, self.indices.simplifier))
            return functools.partial(self.memory.load, expr)
        if not self._is_index(expr):
            return self._operator(expr)
        indices, place = self.indices, self.indices.place(self.indices.simplifier.linear(expr))

        def index() -> Value:
            value = indices.value_at(place)
            return self._apply(expr) if value is None else value

        return index

    def _apply(self, expr: Expr) -> Value:
        """Emit the operator at the root of `expr`, and return its value."""
        return self._operator(expr)()

    def _operator(self, expr: Expr) -> Maker:
        """Return a closure that evaluates the operands of `expr` and emits the operator at its
        root."""
        entry = self._operators.get(id(expr))
        if entry is None:
            entry = self._operators[id(expr)] = (expr, self._operator_of(expr))
        return entry[1]

    def _operator_of(self, expr: Expr) -> Maker:
        match expr:
            case Binary():
                return self._product_sum(expr) or self._binary(expr)
            case Unary(op, operand):
                x = self._maker(operand)
                return lambda: arithmetic.unary(self.b, op, x())
            case Select():
                return self._select(expr)
            case Cast(dtype, operand):
                x = self._maker(operand)
                plain = self._rounded_cast(expr, lambda: arithmetic.cast(self.b, dtype, x()))
                return self._rounded_high(expr, plain)
            case ByteTable():
                x = self._maker(expr.operand)
                return lambda: look_up(self.b, self._table_lookup, expr, x())
            case Size(extent):
                return lambda: Value(self.indices.size(extent), DType.I64)
            case Var() | Const() | Load():
                return self._maker(expr)
            case Reduce():
                raise CompilerError("a Reduce in a loop nest: it was not lowered")
            case _:
                assert_never(expr)

    def _rounded_cast(self, cast: Cast, otherwise: Maker) -> Maker:
        """Return a closure that rounds an f32 to an integer by a single instruction of the target;
        return `otherwise` if the target has none."""
        parts = arithmetic.rounding_of(cast.operand)
        rounds = self.b.instructions.to_nearest_i32 is not None
        if parts is None or not rounds or not arithmetic.held_by_i32(cast.dtype):
            return otherwise
        x = self._maker(parts.rounded)

        def rounded() -> Value:
            value = x()
            if value.dtype is not DType.F32 or value.lanes > 1:
                return otherwise()
            return arithmetic.rounded_cast(self.b, cast.dtype, value, parts.offset)

        return rounded

    def _rounded_high(self, cast: Cast, otherwise: Maker) -> Maker:
        """Return a closure that computes the rounded upper half of a product by a single
        instruction of the target; return `otherwise` if the target has none."""
        factors = arithmetic.rounded_high_of(cast)
        multiply = self.b.instructions.rounded_high
        if factors is None or multiply is None:
            return otherwise
        left, right = map(self._maker, factors)

        def upper() -> Value:
            x, y, lanes = left(), right(), self.bindings.lanes
            if lanes != _WHOLE or max(x.lanes, y.lanes) != lanes:
                return otherwise()
            sides = (self.b.widen(side, lanes).operand for side in (x, y))
            return Value(multiply(self.b, *sides), DType.I32, lanes)

        return upper

    def register_range(self, node: Load | Store) -> tuple[int, int]:
        """Return two numbers for an access to a register buffer in a vectorized loop: the element
        that lane 0 accesses, and the distance in elements from one lane to the next."""
        entry = self._places.get(id(node))
        if entry is None:
            form = flatten(node.buffer, node.indices, self.indices.simplifier, 1)
            entry = self._places[id(node)] = (node, self.indices.place(form))
        offset, const = entry[1].resolve()
        if offset.terms or offset.irregular:
            raise CompilerError(
                f"an index of register buffer {node.buffer.name} is not constant",
                hint="unroll or vectorize the loops that index it",
            )
        return const if type(const) is int else number(const), offset.stride

    def _register(self, node: Load) -> Maker:
        bindings, registers, name = self.bindings, self.registers, node.buffer.name

        def register() -> Value:
            first, stride = self.register_range(node)
            if bindings.lane is not None and stride:
                return registers.read(name, first, bindings.active, stride, bindings.lanes)
            return registers.read(name, first, 1, 1, 1)

        return register

    def _binary(self, expr: Binary) -> Maker:
        op, left, right = expr.op, self._maker(expr.left), self._maker(expr.right)

        def binary() -> Value:
            a, b = left(), right()
            if a.const is not None and b.const is not None and a.dtype is DType.I64:
                folded = _fold(op, int(a.const), int(b.const))
                if folded is not None:
                    return folded
            return arithmetic.binary(self.b, op, a, b)

        return binary

    def _product_sum(self, expr: Binary) -> Maker | None:
        """Return a closure that emits `a + b * c` or a similar form as one fused operation; None if
        `expr` contains no floating-point product of that form."""
        if expr.op is not BinaryOp.ADD and expr.op is not BinaryOp.SUB:
            return None
        subtracts, left, right = expr.op is BinaryOp.SUB, expr.left, expr.right
        if isinstance(right, Binary) and right.op is BinaryOp.MUL:
            return self._multiply_add(right, left, negates_product=subtracts)
        if isinstance(left, Binary) and left.op is BinaryOp.MUL:
            return self._multiply_add(left, right, negates_other=subtracts)
        return None

    def _multiply_add(
        self,
        product: Binary,
        other: Expr,
        *,
        negates_product: bool = False,
        negates_other: bool = False,
    ) -> Maker | None:
        if not dtype_of(other).is_float:
            return None
        added, left, right = map(self._maker, (other, product.left, product.right))

        def multiply_add() -> Value:
            addend, a, b = added(), left(), right()
            if negates_other:
                addend = self._negated(addend)
            elif negates_product:
                a = self._negated(a)
            return arithmetic.multiply_add(self.b, a, b, addend)

        return multiply_add

    def _negated(self, x: Value) -> Value:
        if x.const is not None:
            return literal(-x.const, x.dtype, x.lanes)
        return Value(self.b.fneg(x.operand), x.dtype, x.lanes)

    def _select(self, expr: Select) -> Maker:
        condition = self._maker(expr.condition)
        then, otherwise = self._maker(expr.then), self._maker(expr.otherwise)
        loads = self._loads(expr.then), self._loads(expr.otherwise)

        def select() -> Value:
            chosen = condition()
            if chosen.const is not None:
                return then() if chosen.const else otherwise()
            first = self._guarded(then, chosen) if loads[0] else then()
            if loads[1]:
                second = self._guarded(otherwise, self.b.negate(chosen))
            else:
                second = otherwise()
            return self.b.select(chosen, first, second)

        return select

    def _guarded(self, maker: Maker, condition: Value) -> Value:
        """Call `maker`, which emits an expression, under an additional guard: its loads access
        memory only in lanes in which `condition` holds."""
        memory = self.memory
        outer = memory.guard
        memory.guard = self.b.both(outer, condition)
        try:
            return maker()
        finally:
            memory.guard = outer

    def _loads(self, expr: Expr) -> bool:
        return self._kind(expr) is _Kind.LOADS

    def _is_index(self, expr: Expr) -> bool:
        return self._kind(expr) is _Kind.INDEX

    def _kind(self, expr: Expr) -> _Kind:
        entry = self._kinds.get(id(expr))
        if entry is None:
            entry = self._kinds[id(expr)] = (expr, self._kind_of(expr))
        return entry[1]

    def _kind_of(self, expr: Expr) -> _Kind:
        match expr:
            case Var() | Size():
                return _Kind.INDEX
            case Const(_, dtype):
                return _Kind.INDEX if dtype is DType.I64 else _Kind.VALUE
            case Load(buffer, _) if buffer.scope is not MemoryScope.REGISTER:
                return _Kind.LOADS
            case Binary(op, left, right) if op in _INDEX_OPS:
                sides = self._kind(left), self._kind(right)
                if _Kind.LOADS in sides:
                    return _Kind.LOADS
                return _Kind.VALUE if _Kind.VALUE in sides else _Kind.INDEX
            case Load() | Unary() | Binary() | Select() | Cast() | ByteTable() | Reduce():
                return _Kind.LOADS if any(map(self._loads, operands(expr))) else _Kind.VALUE
            case _:
                assert_never(expr)


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
