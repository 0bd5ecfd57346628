"""Counting arithmetic, against sums done by hand."""

from __future__ import annotations

from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Load,
    Reduce,
    ReduceOp,
    Select,
    Unary,
    UnaryOp,
    Var,
    add,
    less,
)
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from farrier.ir.work import arithmetic

X = Buffer("x", DType.F32, (5, 7))
W = Buffer("w", DType.F32, (7, 3))


def program(*stages: Stage) -> TensorProgram:
    return TensorProgram("p", (X, W), stages, (stages[-1].buffer,))


def test_a_multiply_add_counts_two_at_every_point_and_its_indices_nothing():
    shifted = Select(
        less(Var("k"), 6), Load(X, (Var("m"), add(Var("k"), 1))), Const(0.0, DType.F32)
    )
    product = Binary(BinaryOp.MUL, shifted, Load(W, (Var("k"), Var("n"))))
    axes = (Axis("m", 5), Axis("n", 3))
    total = Stage(
        Buffer("y", DType.F32, (5, 3)), axes, Reduce(ReduceOp.SUM, (Axis("k", 7),), product)
    )
    assert arithmetic(program(total)) == 2 * 5 * 3 * 7


def test_stages_add_up_and_a_shared_part_counts_once():
    at = (Var("i"), Var("j"))
    twice = Unary(UnaryOp.EXP, Load(X, at))
    body = Binary(BinaryOp.ADD, Binary(BinaryOp.MUL, twice, twice), Const(1.0, DType.F32))
    axes = (Axis("i", 5), Axis("j", 7))
    first = Stage(Buffer("a", DType.F32, (5, 7)), axes, body)
    second = Stage(Buffer("b", DType.F32, (5, 7)), axes, Unary(UnaryOp.NEG, Load(first.buffer, at)))
    assert arithmetic(program(first, second)) == 35 * 3 + 35
