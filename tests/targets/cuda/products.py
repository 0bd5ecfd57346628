"""Products of matrices of narrow types, as tensor programs."""

from __future__ import annotations

import numpy as np

from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Load,
    MemoryScope,
    Reduce,
    ReduceOp,
    Unary,
    Var,
)
from farrier.ir.tensor import Stage, TensorProgram
from farrier.lower.loops import to_loops
from farrier.lower.lower_threads import lower_threads
from farrier.schedule import Schedule
from farrier.targets.gpu.fragments import keep_apart


def product(m, n, k, product, *, is_transposed=False):
    """Return max(x @ w, 0) of the types of a declared product, of a transposed w if asked."""
    left, right, total = product.left, product.right, product.total
    shape = (n, k) if is_transposed else (k, n)
    x, w = Buffer("x", left, (m, k)), Buffer("w", right, shape)
    t = Buffer("t", total, (m, n), None, MemoryScope.WORKSPACE)
    y = Buffer("y", left if total.is_float else total, (m, n))
    row, column, term = Var("m"), Var("n"), Var("k")
    at = (column, term) if is_transposed else (term, column)
    factors = [_multiplied(product, Load(x, (row, term))), _multiplied(product, Load(w, at))]
    sums = Reduce(ReduceOp.SUM, (Axis("k", k),), Binary(BinaryOp.MUL, *factors))
    zero = Const(0.0 if total.is_float else 0, total)
    result = Binary(BinaryOp.MAX, Load(t, (row, column)), zero)
    axes = (Axis("m", m), Axis("n", n))
    stored = Stage(y, axes, Cast(y.dtype, result) if total.is_float else result)
    return TensorProgram("f", (x, w), (Stage(t, axes, sums), stored), (y,))


def _multiplied(product, element):
    wide = element if element.buffer.dtype is product.total else Cast(product.total, element)
    return wide if product.rounding is None else Unary(product.rounding, wide)


def lowered(program, product, subgroups=(2, 2), each=(1, 2), steps=2, stages=1):
    """Return the kernel of a program whose subgroups multiply fragments."""
    schedule = Schedule(to_loops(program))
    depth = steps * product.depth
    schedule.subgroup_product("t", "y", product.name, subgroups, each, depth, stages)
    for factor in ("t_rows", "t_columns"):
        keep_apart(schedule, factor)
    return lower_threads(schedule.function)


def inputs_of(program):
    rng = np.random.default_rng(0)
    return {
        buffer.name: _random(rng, buffer.shape, buffer.dtype.numpy) for buffer in program.inputs
    }


def _random(rng, shape, dtype):
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)
