"""Scalar expressions, shared by the tensor and the loop grammar.

    expr   = Const(value, dtype) | Var(name) | Size(dim) | Load(buffer, [expr])
           | Unary(op, expr) | Binary(op, expr, expr) | Select(expr, expr, expr) | Cast(dtype, expr)
           | ByteTable(entries, dtype, expr)
           | Reduce(op, [axis], expr)                       (tensor grammar only, at a stage's root)
    unary  = neg | abs | not | sqrt | floor | ceil | round | round_tf32
           | exp | exp_nonpositive | expm1 | log | log1p | erf
           | sin | cos | tan | asin | acos | atan | sinh | cosh | tanh | asinh | acosh | atanh
           | sigmoid | gelu | gelu_tanh | mish
    binary = add | sub | mul | div | mod | min | max | pow | lt | le | eq | ne | and | or
           | swish                                             (x * sigmoid(alpha * x))
           | bit_and | bit_or | bit_xor | shl | shr | mul_high  (integers)
    reduce = sum | max | min | prod
    axis   = Axis(name, extent)
    buffer = name : dtype[extent, ...] [@layout] in scope
    scope  = param | constant | workspace | workgroup | subgroup | warpgroup | local | register

Indices are expressions of dtype i64 over loop variables, logical axes of the buffer; `div` and
`mod` on integers round towards negative infinity. `round` is half to even, and `round_tf32` rounds
a float to 11 significant bits, half away from zero. min and max propagate NaN. `shr` of a signed
integer copies its sign; by less than 0 or by the width and more, nothing of the operand is left: 0,
or its sign. A function is an operator of its own where a composition of others would lose digits:
each is within 4 units in the last place.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import TypeAlias, final

from farrier.ir.dim import Dim, Extent
from farrier.ir.interned import Interned
from farrier.ir.types import DType, Layout, Shape, TensorType

BYTES = 256  # The number of values of a byte.


class MemoryScope(enum.StrEnum):
    """The kind of memory in which a buffer is stored."""

    PARAM = "param"  # An argument of the kernel.
    CONSTANT = "constant"  # An argument with content known at compile time, so it can be packed.
    WORKSPACE = "workspace"  # Scratch memory shared by all threads of one call.
    WORKGROUP = "workgroup"  # Scratch memory shared by the threads of one block of a launch.
    SUBGROUP = "subgroup"  # Fragments in the registers of a subgroup's 32 threads.
    WARPGROUP = "warpgroup"  # Fragments in the registers of four subgroups' 128 threads.
    LOCAL = "local"  # Scratch memory of one thread, allocated where the statement stands.
    REGISTER = "register"  # Values only: every index must be constant after unrolling.


@dataclasses.dataclass(frozen=True, slots=True)
class Buffer:
    """A named tensor that expressions load from and statements store to."""

    name: str
    dtype: DType
    shape: Shape
    layout: Layout | None = None
    scope: MemoryScope = MemoryScope.PARAM

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.shape, self.layout)

    @property
    def nbytes(self) -> Extent:
        return self.type.nbytes

    @property
    def element_layout(self) -> Layout:
        """The layout in memory with at least one byte per element, ignoring packing of several
        elements in a byte."""
        return (self.layout or Layout.plain(len(self.shape))).by_element

    @property
    def is_plain(self) -> bool:
        """Check whether the elements are stored in row-major order, without padding or halo."""
        return self.layout is None or self.layout.is_plain


@dataclasses.dataclass(frozen=True, slots=True)
class Axis:
    """A named iteration range `[0, extent)` of a stage or of a reduction."""

    name: str
    extent: Extent


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Const:
    value: int | float | bool
    dtype: DType

    def __eq__(self, other: object) -> bool:
        # NaN equals itself and 0.0 differs from -0.0: constants are bit patterns here.
        if not isinstance(other, Const) or self.dtype is not other.dtype:
            return False
        first, second = self.value, other.value
        if type(first) is not type(second):
            return False
        if first == second:
            return first != 0 or math.copysign(1, first) == math.copysign(1, second)
        return first != first and second != second

    def __hash__(self) -> int:
        return hash(self.value) if self.value == self.value else 0


@final
@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Var(metaclass=Interned):
    """A loop variable: an i64."""

    name: str


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """A symbolic size whose value is known when the kernel is called: an i64."""

    extent: Dim


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    buffer: Buffer
    indices: tuple[Expr, ...]


class UnaryOp(enum.StrEnum):
    NEG = "neg"
    ABS = "abs"
    EXP = "exp"
    EXP_NONPOSITIVE = (
        # The exponential of an operand up to 0; a result below the smallest normal number is 0.
        "exp_nonpositive"
    )
    EXPM1 = "expm1"
    LOG = "log"
    LOG1P = "log1p"
    SQRT = "sqrt"
    ERF = "erf"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"
    ROUND_TF32 = "round_tf32"
    NOT = "not"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    SIGMOID = "sigmoid"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    MISH = "mish"


class BinaryOp(enum.StrEnum):
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MOD = "mod"
    MIN = "min"
    MAX = "max"
    POW = "pow"
    SWISH = "swish"
    LT = "lt"
    LE = "le"
    EQ = "eq"
    NE = "ne"
    AND = "and"
    OR = "or"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    SHL = "shl"
    SHR = "shr"
    MUL_HIGH = "mul_high"  # The upper 32 bits of the 64-bit product of two 32-bit integers.

    @property
    def is_comparison(self) -> bool:
        return self in _COMPARISONS


_COMPARISONS = frozenset((BinaryOp.LT, BinaryOp.LE, BinaryOp.EQ, BinaryOp.NE))


class ReduceOp(enum.StrEnum):
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PROD = "prod"

    @property
    def binary(self) -> BinaryOp:
        """The binary operator that combines two partial results."""
        return _COMBINE[self]

    def identity(self, dtype: DType) -> Const:
        """Return the identity of the reduction, which is its value over no elements."""
        if self is ReduceOp.SUM or self is ReduceOp.PROD:
            one_or_zero = int(self is ReduceOp.PROD)
            return Const(float(one_or_zero) if dtype.is_float else one_or_zero, dtype)
        lowest = self is ReduceOp.MAX
        if dtype.is_float:
            return Const(-math.inf if lowest else math.inf, dtype)
        if dtype is DType.BOOL:
            return Const(not lowest, dtype)
        low, high = dtype.limits
        return Const(low if lowest else high, dtype)


_COMBINE = {
    ReduceOp.SUM: BinaryOp.ADD,
    ReduceOp.MAX: BinaryOp.MAX,
    ReduceOp.MIN: BinaryOp.MIN,
    ReduceOp.PROD: BinaryOp.MUL,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Unary:
    op: UnaryOp
    operand: Expr


@dataclasses.dataclass(frozen=True, slots=True)
class Binary:
    op: BinaryOp
    left: Expr
    right: Expr


@dataclasses.dataclass(frozen=True, slots=True)
class Select:
    """The value `then` if `condition` holds, else `otherwise`. Only the chosen branch is evaluated,
    so a Select may guard a Load that would be out of bounds."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclasses.dataclass(frozen=True, slots=True)
class Cast:
    """A conversion like numpy's astype, except that float to integer saturates, NaN becomes 0, and
    a float of 16 bits or less is rounded once. A number above the largest of such a format becomes
    infinity, or NaN in a format without infinity, or the largest number in a format without either.
    """

    dtype: DType
    operand: Expr


@dataclasses.dataclass(frozen=True, slots=True)
class ByteTable:
    """A table lookup: the entry of `entries`, 256 bytes that represent values of `dtype`, at the
    position `operand`. The operand is a byte, whose bits are read as an unsigned number."""

    entries: bytes
    dtype: DType
    operand: Expr

    def values(self) -> tuple[int, ...]:
        """Return the 256 entries as numbers of `dtype`."""
        return tuple(memoryview(self.entries).cast("b" if self.dtype is DType.I8 else "B"))


@dataclasses.dataclass(frozen=True, slots=True)
class Reduce:
    op: ReduceOp
    axes: tuple[Axis, ...]
    body: Expr


Expr: TypeAlias = Const | Var | Size | Load | Unary | Binary | Select | Cast | ByteTable | Reduce


def dtype_of(expr: Expr) -> DType:
    """Return the element type of an expression's value; comparisons are bool, indices i64."""
    while True:
        if isinstance(expr, Binary):
            if expr.op in _COMPARISONS:
                return DType.BOOL
            expr = expr.left
        elif isinstance(expr, _INDICES):
            return DType.I64
        elif isinstance(expr, _TYPED):
            return expr.dtype
        elif isinstance(expr, Load):
            return expr.buffer.dtype
        elif isinstance(expr, Unary):
            expr = expr.operand
        elif isinstance(expr, Select):
            expr = expr.then
        else:
            expr = expr.body


# As tuples, because a union is constructed anew wherever it stands in code.
_INDICES = (Var, Size)
_TYPED = (Const, Cast, ByteTable)


Index: TypeAlias = Extent | Expr


def index(value: Index) -> Expr:
    """Return a value as an index expression: an integer becomes an i64 constant, a dim becomes a
    Size."""
    if isinstance(value, int):
        return _number(value)
    return Size(value) if isinstance(value, Dim) else value


@functools.lru_cache(maxsize=4096, typed=True)
def _number(value: int) -> Const:
    """Return an i64 constant; cached, because few numbers occur, each of them often."""
    return Const(value, DType.I64)


def add(left: Index, right: Index) -> Expr:
    """Return `left + right` as an index expression; constants are folded."""
    return _fold(BinaryOp.ADD, index(left), index(right))


def sub(left: Index, right: Index) -> Expr:
    return _fold(BinaryOp.SUB, index(left), index(right))


def mul(left: Index, right: Index) -> Expr:
    return _fold(BinaryOp.MUL, index(left), index(right))


def floordiv(left: Index, right: Extent) -> Expr:
    return _fold(BinaryOp.DIV, index(left), index(right))


def mod(left: Index, right: Extent) -> Expr:
    return _fold(BinaryOp.MOD, index(left), index(right))


def less(left: Index, right: Index) -> Expr:
    return Binary(BinaryOp.LT, index(left), index(right))


def both(left: Expr, right: Expr) -> Expr:
    return Binary(BinaryOp.AND, left, right)


_FOLD: Mapping[BinaryOp, Callable[[Extent, Extent], Extent]] = {
    BinaryOp.ADD: operator.add,
    BinaryOp.SUB: operator.sub,
    BinaryOp.MUL: operator.mul,
    BinaryOp.DIV: operator.floordiv,
    BinaryOp.MOD: operator.mod,
}


def extent_of(expr: Expr) -> Extent | None:
    """Return the extent that a Const or Size holds, or None for any other expression."""
    if isinstance(expr, Const):
        return int(expr.value) if expr.dtype is DType.I64 else None
    return expr.extent if isinstance(expr, Size) else None


def _fold(op: BinaryOp, left: Expr, right: Expr) -> Expr:
    a, b = extent_of(left), extent_of(right)
    if a is not None and b is not None:
        return index(_FOLD[op](a, b))
    match op, left, right:
        case BinaryOp.ADD, Const(0), other:
            return other
        case BinaryOp.ADD | BinaryOp.SUB, other, Const(0):
            return other
        case (BinaryOp.MUL, Const(1), other) | (BinaryOp.MUL | BinaryOp.DIV, other, Const(1)):
            return other
        case (
            (BinaryOp.MUL, Const(0), _) | (BinaryOp.MUL, _, Const(0)) | (BinaryOp.MOD, _, Const(1))
        ):
            return index(0)
        case _:
            return Binary(op, left, right)
