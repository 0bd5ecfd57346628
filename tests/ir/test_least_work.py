"""The products that no code can leave out, against counting them one by one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    ReduceOp,
    Select,
    Var,
    add,
    both,
    index,
    less,
    mul,
    sub,
)
from farrier.ir.least_work import Products, least_products
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType

ZERO = Const(0.0, DType.F32)


def _summed(image: Expr, weights: Buffer, points: int, taps: int) -> Stage:
    factor = Load(weights, (Var("k"),))
    body = Reduce(ReduceOp.SUM, (Axis("k", taps),), Binary(BinaryOp.MUL, image, factor))
    return Stage(Buffer("y", DType.F32, (points,)), (Axis("i", points),), body)


@pytest.mark.parametrize("how", ["in the sum", "by an earlier stage", "as a halo"])
@given(
    size=st.integers(1, 6), taps=st.integers(1, 5), stride=st.integers(1, 3), pad=st.integers(0, 3)
)
def test_padding_is_left_out_however_it_is_written(how, size, taps, stride, pad):
    points = max((size + 2 * pad - taps) // stride + 1, 1)
    x, weights = Buffer("x", DType.F32, (size,)), Buffer("w", DType.F32, (taps,))
    at = add(mul(Var("i"), stride), Var("k"))
    source = sub(at, pad)
    stages = []
    if how == "in the sum":
        inside = both(Binary(BinaryOp.LE, index(0), source), less(source, size))
        image: Expr = Select(inside, Load(x, (source,)), ZERO)
    elif how == "by an earlier stage":
        padded = Buffer("padded", DType.F32, ((points - 1) * stride + taps,))
        place = sub(Var("p"), pad)
        inside = both(Binary(BinaryOp.LE, index(0), place), less(place, size))
        axis = Axis("p", padded.shape[0])
        stages.append(Stage(padded, (axis,), Select(inside, Load(x, (place,)), ZERO)))
        image = Load(padded, (at,))
    else:
        image = Load(x, (source,))
    stages.append(_summed(image, weights, points, taps))
    program = TensorProgram("p", (x, weights), tuple(stages), (stages[-1].buffer,))
    data = sum(
        0 <= i * stride + k - pad < size for i, k in itertools.product(range(points), range(taps))
    )
    assert least_products(program) == [Products(DType.F32, DType.F32, data)]


def test_what_elements_decide_counts_once_a_sum():
    x, weights = Buffer("x", DType.F32, (4,)), Buffer("w", DType.F32, (8,))
    chosen = Binary(BinaryOp.LT, Load(x, (Var("k"),)), ZERO)
    image = Select(chosen, Load(x, (Var("k"),)), ZERO)
    program = TensorProgram("p", (x, weights), (_summed(image, weights, 5, 4),), (x,))
    (actual,) = least_products(program)
    assert actual.count == 5


def test_products_have_the_types_of_what_is_multiplied():
    a, b = Buffer("a", DType.U8, (6,)), Buffer("b", DType.I8, (6,))
    sides = [Cast(DType.I32, Load(operand, (Var("k"),))) for operand in (a, b)]
    total = Buffer("y", DType.I32, ())
    body = Reduce(ReduceOp.SUM, (Axis("k", 6),), Binary(BinaryOp.MUL, *sides))
    largest = Reduce(ReduceOp.MAX, (Axis("k", 6),), Load(b, (Var("k"),)))
    stages = Stage(total, (), body), Stage(Buffer("z", DType.I8, ()), (), largest)
    actual = least_products(TensorProgram("p", (a, b), stages, (total,)))
    assert actual == [Products(DType.U8, DType.I8, 6)]
