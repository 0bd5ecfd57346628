"""Horizontal reductions, which combine all lanes of a vector into one value."""

from __future__ import annotations

import math
from typing import TypeAlias

from farrier.ir.expr import Binary, BinaryOp, Expr, Load, ReduceOp
from farrier.ir.loop import Store
from farrier.ir.types import DType
from farrier.targets.llvm.arithmetic import extended
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.values import Value, literal

Reduction: TypeAlias = tuple[BinaryOp, Expr]

_REDUCTIONS = {op.binary: op for op in ReduceOp}
_FLOAT = {BinaryOp.ADD: "fadd", BinaryOp.MUL: "fmul"}
_INTEGER = {BinaryOp.ADD: "add", BinaryOp.MUL: "mul"}
_BOOLEAN = {BinaryOp.ADD: "or", BinaryOp.MAX: "or", BinaryOp.MUL: "and", BinaryOp.MIN: "and"}


def split_reduction(stmt: Store) -> Reduction | None:
    """Return (op, value) if the statement is `buffer[i] = buffer[i] op value`, else None."""
    value = stmt.value
    if not isinstance(value, Binary) or value.op not in _REDUCTIONS:
        return None
    for old, new in ((value.left, value.right), (value.right, value.left)):
        if isinstance(old, Load) and old.buffer == stmt.buffer and old.indices == stmt.indices:
            return value.op, new
    return None


def horizontal(b: Builder, op: BinaryOp, x: Value, mask: Value | None) -> Value:
    """Return a scalar: the lanes of `x` combined by the operator `op`. Lanes for which `mask` is
    false are left out."""
    dtype = x.dtype
    if mask is not None:
        neutral = _REDUCTIONS[op].identity(dtype)
        x = b.select(b.widen(mask, x.lanes), x, literal(neutral.value, dtype, x.lanes))
    if dtype is DType.BOOL:
        return Value(b.reduce(_BOOLEAN[op], x.operand), dtype)
    if dtype.is_float and op in _FLOAT:
        start = literal(-0.0 if op is BinaryOp.ADD else 1.0, dtype).operand
        return Value(b.reduce(_FLOAT[op], start, x.operand, flags="reassoc "), dtype)
    if dtype.is_float:
        return _float_extreme(b, op, x)
    sign = "s" if dtype.is_signed else "u"
    total = b.reduce(_INTEGER.get(op, f"{sign}{op.value}"), x.operand)
    return Value(extended(b, total, dtype, 1), dtype)


def _float_extreme(b: Builder, op: BinaryOp, x: Value) -> Value:
    """Compute the min or max of all lanes by halving the vector repeatedly; the result is NaN if
    any lane is NaN."""
    any_nan = b.reduce("or", b.fcmp("uno", x.operand, x.operand))
    extreme = b.reduce(f"f{op.value}", x.operand, flags="nnan ")
    not_a_number = literal(math.nan, x.dtype).operand
    return Value(b.choose(any_nan, not_a_number, extreme), x.dtype)
