"""Count the arithmetic operations of a kernel: the numerator of every GFLOP/s."""

from __future__ import annotations

from typing import assert_never

from farrier.ir.dim import Extent, ceildiv, product, typical
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    ByteTable,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    ReduceOp,
    Select,
    Size,
    Unary,
    Var,
    dtype_of,
)
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    Function,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    While,
)
from farrier.ir.operands import operands
from farrier.ir.statements import below
from farrier.ir.substitute import loads
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType

# The dtypes of indices, and of conditions on indices.
_OF_INDICES = frozenset((DType.I64, DType.BOOL))


# Assumed of data that the compiler does not see: the iterations of a while loop, and the share of
# tests of a condition on data that run its block.
USUAL_TRIPS = 4
_USUALLY_TAKEN = 0.25


def arithmetic(kernel: TensorProgram | Function) -> int:
    """Return the number of operations on data at the typical values of dims, over all points of all
    stages.

    A multiply-add counts as two, a function such as exp as one, index arithmetic as none.
    Operations on padding are counted, as is usual; so are both branches of a loop function's
    conditions, and `USUAL_TRIPS` iterations of each while loop.
    """
    if isinstance(kernel, Function):
        return _of_stmt(kernel.body)
    return sum(typical(_of_stage(stage)) for stage in kernel.stages)


def multiply_adds(program: TensorProgram) -> int:
    """Return the number of products that are added up, at the typical values of dims: the number of
    steps of a machine that performs one multiply-add at a time. Products with padding are counted.
    """
    return sum(typical(_products(stage)) for stage in program.stages)


def factors(program: TensorProgram) -> tuple[DType, DType, DType] | None:
    """Return the dtypes of the two factors and of the sum in the stage with the largest number of
    products that `multiply_adds` counts; None if no stage adds up products."""
    counted = [(typical(_products(stage)), stage) for stage in program.stages]
    most, stage = max(counted, key=lambda entry: entry[0], default=(0, None))
    if not most or stage is None:
        return None
    summand = stage.body.body if isinstance(stage.body, Reduce) else stage.body
    product_of = _within(summand)
    assert isinstance(product_of, Binary)
    left, right = (dtype_of(_within(side)) for side in (product_of.left, product_of.right))
    return left, right, stage.buffer.dtype


def statements_run(stmt: Stmt, lanes: int) -> float:
    """Return the number of stores and tests that `stmt` executes; `lanes` iterations of a
    vectorized loop count as one."""
    match stmt:
        case Block() | Alloc():
            return sum(statements_run(part, lanes) for part in below(stmt))
        case For(_, extent, kind, body):
            times = ceildiv(extent, lanes) if kind is LoopKind.VECTORIZED else extent
            return typical(times) * statements_run(body, lanes)
        case If(_, then, otherwise):
            rest = statements_run(otherwise, lanes) if otherwise is not None else 0
            return 1 + usually_taken(stmt) * statements_run(then, lanes) + rest
        case While(_, body):
            return USUAL_TRIPS * (1 + statements_run(body, lanes))
        case Store() | Prefetch() | Intrinsic() | Barrier():
            return 1
        case _:
            assert_never(stmt)


def usually_taken(stmt: If) -> float:
    """Return an estimate of how often the condition of an If holds, as a fraction. It is close to 1
    if the condition depends only on loop variables, as the guard of a partial tile does."""
    return _USUALLY_TAKEN if any(loads(stmt.condition)) else 1.0


def _of_stmt(stmt: Stmt) -> int:
    match stmt:
        case Block() | Alloc():
            return sum(map(_of_stmt, below(stmt)))
        case For(_, extent, _, body):
            return typical(extent) * _of_stmt(body)
        case If(condition, then, otherwise):
            rest = _of_stmt(otherwise) if otherwise is not None else 0
            return _of_value(condition, set()) + _of_stmt(then) + rest
        case While(condition, body):
            return USUAL_TRIPS * (_of_value(condition, set()) + _of_stmt(body))
        case Store(_, _, value):
            return _of_value(value, set())
        case Prefetch() | Intrinsic() | Barrier():
            return 0
        case _:
            assert_never(stmt)


def _of_stage(stage: Stage) -> Extent:
    points = product(axis.extent for axis in stage.axes)
    body, each = stage.body, 0
    if isinstance(body, Reduce):
        points *= product(axis.extent for axis in body.axes)
        body, each = body.body, 1
    return points * (each + _of_value(body, set()))


def _products(stage: Stage) -> Extent:
    body = stage.body
    if not isinstance(body, Reduce) or body.op is not ReduceOp.SUM:
        return 0
    summand = _within(body.body)
    if not isinstance(summand, Binary) or summand.op is not BinaryOp.MUL:
        return 0
    return product(axis.extent for axis in (*stage.axes, *body.axes))


def _within(expr: Expr) -> Expr:
    """Return the expression inside any enclosing casts and Selects (which implement padding)."""
    while isinstance(expr, Select | Cast):
        expr = expr.then if isinstance(expr, Select) else expr.operand
    return expr


def _of_value(expr: Expr, seen: set[int]) -> int:
    """Return the number of operations in the computation of one value; a shared subexpression
    counts once. `seen` holds the ids of the expressions already counted."""
    if id(expr) in seen:
        return 0
    seen.add(id(expr))
    match expr:
        case Load():  # Index arithmetic computes an address, which is not data.
            return 0
        case Unary(_, operand) | Binary(_, operand, _):
            own = _counts(operand)
        case ByteTable():
            own = 1
        case Const() | Var() | Size() | Select() | Cast() | Reduce():
            own = 0
        case _:
            assert_never(expr)
    return own + sum(_of_value(part, seen) for part in operands(expr))


def _counts(operand: Expr) -> int:
    return int(dtype_of(operand) not in _OF_INDICES)
