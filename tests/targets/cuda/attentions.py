"""Attentions of narrow types, as tensor programs."""

from __future__ import annotations

import numpy as np

from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    MemoryScope,
    Reduce,
    ReduceOp,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from tests.schedule.programs import axes, load, times, total

F32 = DType.F32


def masked(score, row, key):
    """A scaled score, to which a mask is added."""
    mask = Buffer("mask", F32, MASK_SHAPE)
    return Binary(BinaryOp.ADD, score, load(mask, row, key))


MASK_SHAPE = (128, 256)


def causal(score, row, key):
    """A score of a key that is not after the row; others are minus infinity."""
    is_seen = Binary(BinaryOp.LE, Var(key), Var(row))
    return Select(is_seen, score, Const(-np.inf, F32))


def attention(shape, dtype=DType.F16, of_score=None, *, is_transposed=False, divides=True):
    """Return softmax(f(q @ k / 4)) @ v for each head; `shape` has the heads, rows, keys, terms and
    columns. The keys of a head are columns of `k`, or rows if it is transposed."""
    heads, queries, keys, width, columns = shape
    of_keys = (heads, keys, width) if is_transposed else (heads, width, keys)
    q, k = Buffer("q", dtype, (heads, queries, width)), Buffer("k", dtype, of_keys)
    v, y = Buffer("v", dtype, (heads, keys, columns)), Buffer("y", F32, (heads, queries, columns))

    def inner(name, *shape):
        return Buffer(name, F32, shape, scope=MemoryScope.WORKSPACE)

    def score(key):
        scaled = times(load(scores, "h", "m", key), Const(0.25, F32))
        return scaled if of_score is None else of_score(scaled, "m", key)

    scores, powers = inner("s", heads, queries, keys), inner("p", heads, queries, keys)
    most, norm = inner("most", heads, queries), inner("norm", heads, queries)
    points, rows, inside = axes(h=heads, m=queries, n=keys), axes(h=heads, m=queries), axes(k=keys)
    factors = (
        Cast(F32, load(q, "h", "m", "k")),
        Cast(F32, load(k, "h", *"nk" if is_transposed else "kn")),
    )
    whole = load(norm, "h", "m")
    share = times(load(powers, "h", "m", "k"), Binary(BinaryOp.DIV, Const(1.0, F32), whole))
    if divides:
        share = Binary(BinaryOp.DIV, load(powers, "h", "m", "k"), whole)
    term = times(Cast(F32, Cast(dtype, share)), Cast(F32, load(v, "h", "k", "n")))
    lower = Binary(BinaryOp.SUB, score("n"), load(most, "h", "m"))
    stages = (
        Stage(scores, points, total(axes(k=width), times(*factors))),
        Stage(most, rows, Reduce(ReduceOp.MAX, inside, score("k"))),
        Stage(powers, points, Unary(UnaryOp.EXP_NONPOSITIVE, lower)),
        Stage(norm, rows, total(inside, load(powers, "h", "m", "k"))),
        Stage(y, axes(h=heads, m=queries, n=columns), total(inside, term)),
    )
    read = [Buffer("mask", F32, MASK_SHAPE)] if of_score is masked else []
    return TensorProgram("attention", (q, k, v, *read), stages, (y,))
