"""Horizontal reductions: all lanes of a vector joined into one value."""

from __future__ import annotations

import math
from typing import TypeAlias

from farrier.ir.expr import Binary, BinaryOp, Expr, Load, ReduceOp
from farrier.ir.loop import Store
from farrier.ir.types import DType
from farrier.targets.cpu.codegen.arithmetic import extended
from farrier.targets.cpu.codegen.builder import Builder
from farrier.targets.cpu.codegen.text import Value, literal, suffix, type_of, vector

Reduction: TypeAlias = tuple[BinaryOp, Expr]

_REDUCTIONS = {op.binary: op for op in ReduceOp}
_FLOAT = {BinaryOp.ADD: "fadd", BinaryOp.MUL: "fmul"}
_INTEGER = {BinaryOp.ADD: "add", BinaryOp.MUL: "mul"}
_BOOLEAN = {BinaryOp.ADD: "or", BinaryOp.MAX: "or", BinaryOp.MUL: "and", BinaryOp.MIN: "and"}


def split_reduction(stmt: Store) -> Reduction | None:
    """(op, value) where the statement is `buffer[i] = buffer[i] op value`; None where it is not."""
    value = stmt.value
    if not isinstance(value, Binary) or value.op not in _REDUCTIONS:
        return None
    for old, new in ((value.left, value.right), (value.right, value.left)):
        if isinstance(old, Load) and old.buffer == stmt.buffer and old.indices == stmt.indices:
            return value.op, new
    return None


def horizontal(b: Builder, op: BinaryOp, x: Value, mask: Value | None) -> Value:
    """All lanes of `x` where the mask holds, joined by `op`."""
    dtype = x.dtype
    if mask is not None:
        neutral = _REDUCTIONS[op].identity(dtype)
        x = b.select(b.widen(mask, x.lanes), x, literal(neutral.value, dtype, x.lanes))
    kind = type_of(dtype)
    if dtype is DType.BOOL:
        name = f"llvm.vector.reduce.{_BOOLEAN[op]}.{suffix(x.type)}"
        return Value(b.call(name, kind, (x.type, x.text)), dtype)
    if dtype.is_float and op in _FLOAT:
        start = literal(-0.0 if op is BinaryOp.ADD else 1.0, dtype).text
        name = f"llvm.vector.reduce.{_FLOAT[op]}.{suffix(x.type)}"
        text = b.call(name, kind, (kind, start), (x.type, x.text), flags="reassoc ")
        return Value(text, dtype)
    if dtype.is_float:
        return _float_extreme(b, op, x)
    sign = "s" if dtype.is_signed else "u"
    name = f"llvm.vector.reduce.{_INTEGER.get(op, f'{sign}{op.value}')}.{suffix(x.type)}"
    return Value(extended(b, b.call(name, kind, (x.type, x.text)), dtype, 1), dtype)


def _float_extreme(b: Builder, op: BinaryOp, x: Value) -> Value:
    """min or max by halves, NaN wherever a lane is NaN."""
    kind = type_of(x.dtype)
    nan = b.pure(f"fcmp uno {x.type} {x.text}, {x.text}")
    mask = vector("i1", x.lanes)
    any_nan = b.call(f"llvm.vector.reduce.or.{suffix(mask)}", "i1", (mask, nan))
    name = f"llvm.vector.reduce.f{op.value}.{suffix(x.type)}"
    extreme = b.call(name, kind, (x.type, x.text), flags="nnan ")
    not_a_number = literal(math.nan, x.dtype).text
    text = b.pure(f"select i1 {any_nan}, {kind} {not_a_number}, {kind} {extreme}")
    return Value(text, x.dtype)
