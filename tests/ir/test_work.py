"""Counting arithmetic, against sums done by hand."""

from __future__ import annotations

from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
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
from farrier.ir.work import arithmetic, factors

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


def test_factors_are_what_is_multiplied_before_it_is_widened():
    wide = [
        Cast(DType.I32, Load(Buffer(name, dtype, (7,)), (Var("k"),)))
        for name, dtype in (("a", DType.U8), ("b", DType.I8))
    ]
    product = Binary(BinaryOp.MUL, *wide)
    sums = Buffer("y", DType.I32, ())
    total = Stage(sums, (), Reduce(ReduceOp.SUM, (Axis("k", 7),), product))
    after = Stage(Buffer("z", DType.I32, ()), (), Unary(UnaryOp.NEG, Load(sums, ())))
    assert factors(program(total, after)) == (DType.U8, DType.I8, DType.I32)
    assert factors(program(after)) is None


def test_stages_add_up_and_a_shared_part_counts_once():
    at = (Var("i"), Var("j"))
    twice = Unary(UnaryOp.EXP, Load(X, at))
    body = Binary(BinaryOp.ADD, Binary(BinaryOp.MUL, twice, twice), Const(1.0, DType.F32))
    axes = (Axis("i", 5), Axis("j", 7))
    first = Stage(Buffer("a", DType.F32, (5, 7)), axes, body)
    second = Stage(Buffer("b", DType.F32, (5, 7)), axes, Unary(UnaryOp.NEG, Load(first.buffer, at)))
    assert arithmetic(program(first, second)) == 35 * 3 + 35
