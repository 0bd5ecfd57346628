"""Arithmetic, comparisons, conversions and reductions of every element type."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Load,
    ReduceOp,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.loop import Block, For, Function, LoopKind, Store
from farrier.ir.special import convert
from farrier.ir.types import DType
from farrier.targets import parse_target
from tests.targets.cpu.codegen.differential import run_compiled

INTEGERS = [d for d in DType if d.is_integer and d.bits >= 8]
NUMBERS = [*INTEGERS, DType.F16, DType.F32, DType.F64]
SIZE = 45  # Two vectors of 16 and a tail of 13.


def some(dtype: DType, seed: int) -> np.ndarray:
    """Random values over a useful range, with the extremes of the integers among them."""
    random = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return random.random(SIZE) < 0.5
    if dtype.is_float:
        return (random.normal(size=SIZE) * 4).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    values = random.integers(-9 if dtype.is_signed else 0, 10, SIZE).astype(dtype.numpy)
    values[:4] = [limits.min, limits.max, 0, 1]
    return values


def apply(
    build, out_dtype: DType, *inputs: np.ndarray, kind=LoopKind.VECTORIZED, target=None
) -> np.ndarray:
    """`build(loads)` over SIZE elements: two vectors and a tail, or one serial loop."""
    buffers = [Buffer(f"x{n}", DType.from_numpy(a.dtype), a.shape) for n, a in enumerate(inputs)]
    out = Buffer("out", out_dtype, (SIZE,))

    def nest(name: str, start: int, extent: int) -> For:
        at = (Binary(BinaryOp.ADD, Var(name), Const(start, DType.I64)),)
        return For(name, extent, kind, Store(out, at, build(*(Load(b, at) for b in buffers))))

    body = Block((nest("a", 0, 16), nest("b", 16, 16), nest("c", 32, 13)))
    arrays = {b.name: a for b, a in zip(buffers, inputs, strict=True)}
    function = Function("kernel", (*buffers, out), body)
    return run_compiled(function, arrays, target=target)["out"]


EXACT = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: np.floor_divide,
    BinaryOp.MOD: np.mod,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.LT: np.less,
    BinaryOp.LE: np.less_equal,
    BinaryOp.EQ: np.equal,
    BinaryOp.NE: np.not_equal,
}


@pytest.mark.parametrize("kind", [LoopKind.VECTORIZED, LoopKind.SERIAL])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_binary_operators(dtype, kind):
    x, y = some(dtype, 1), some(dtype, 2)
    y = np.roll(y, 5)
    for op, exact in EXACT.items():
        if op in (BinaryOp.DIV, BinaryOp.MOD) and dtype.is_float:
            continue
        out_dtype = DType.BOOL if op.is_comparison else dtype
        actual = apply(lambda a, b, op=op: Binary(op, a, b), out_dtype, x, y, kind=kind)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(actual, exact(x, y), err_msg=op.value)


@pytest.mark.parametrize(
    ("dtype", "divisor"),
    [(d, n) for d in INTEGERS for n in (1, 2, 3, 7, 16, -1, -5) if n > 0 or d.is_signed],
)
def test_division_by_a_constant_rounds_down(dtype, divisor):
    x = some(dtype, 3)
    if divisor == -1:
        x = x[x != np.iinfo(dtype.numpy).min]
        x = np.resize(x, SIZE)
    by = Const(divisor, dtype)
    for op, exact in ((BinaryOp.DIV, np.floor_divide), (BinaryOp.MOD, np.mod)):
        actual = apply(lambda a, op=op: Binary(op, a, by), dtype, x)
        np.testing.assert_array_equal(actual, exact(x, dtype.numpy.type(divisor)))


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_division_and_remainder_of_floats(dtype):
    x, y = some(dtype, 1), some(dtype, 2)
    np.testing.assert_allclose(apply(lambda a, b: Binary(BinaryOp.DIV, a, b), dtype, x, y), x / y)
    actual = apply(lambda a, b: Binary(BinaryOp.MOD, a, b), dtype, x, y)
    np.testing.assert_allclose(actual, np.mod(x, y), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [DType.I32, DType.I64, DType.U8])
def test_power_of_integers(dtype):
    x = some(dtype, 4)
    exponent = np.abs(some(DType.I32, 5) % 7).astype(dtype.numpy)
    actual = apply(lambda a, b: Binary(BinaryOp.POW, a, b), dtype, x, exponent)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(actual, np.power(x, exponent))


@pytest.mark.parametrize("to", [*NUMBERS, DType.BOOL])
@pytest.mark.parametrize("source", [*NUMBERS, DType.BOOL])
def test_conversions(source, to):
    x = some(source, 6)
    if source.is_float:
        x[:8] = [np.nan, np.inf, -np.inf, 300.7, -300.7, 6e4, -0.0, 0.5]
    with np.errstate(all="ignore"):
        wanted = convert(x, to)
    for kind in (LoopKind.VECTORIZED, LoopKind.SERIAL):
        actual = apply(lambda a: Cast(to, a), to, x, kind=kind)
        np.testing.assert_array_equal(actual, wanted)


def test_boolean_operators():
    x, y = some(DType.BOOL, 1), some(DType.BOOL, 2)
    for op, exact in (
        (BinaryOp.AND, np.logical_and),
        (BinaryOp.OR, np.logical_or),
        (BinaryOp.NE, np.not_equal),
        (BinaryOp.EQ, np.equal),
    ):
        actual = apply(lambda a, b, op=op: Binary(op, a, b), DType.BOOL, x, y)
        np.testing.assert_array_equal(actual, exact(x, y))
    actual = apply(lambda a: Unary(UnaryOp.NOT, a), DType.BOOL, x)
    np.testing.assert_array_equal(actual, ~x)


def test_bfloat_is_rounded_to_nearest_even():
    x = np.random.default_rng(8).normal(size=SIZE).astype(np.float32)
    x[:4] = [1.00390625, 1.01171875, np.nan, np.inf]  # The first two lie half way.
    actual = apply(lambda a: Cast(DType.F32, Cast(DType.BF16, a)), DType.F32, x)
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    np.testing.assert_array_equal(actual, np.where(np.isnan(x), np.nan, rounded))


@pytest.mark.parametrize("op", ReduceOp)
@pytest.mark.parametrize("dtype", [*NUMBERS, DType.BOOL])
@pytest.mark.parametrize("extent", [1, 5, 16, 29, 45])
def test_horizontal_reductions(dtype, op, extent):
    x = some(dtype, 9)
    if dtype is DType.F16:
        x = np.abs(x[:]) / 8 + np.float16(0.5)
    buffer, out = Buffer("x", dtype, (SIZE,)), Buffer("out", dtype, (1,))
    zero = (Const(0, DType.I64),)
    init = Store(out, zero, op.identity(dtype))
    update = Store(out, zero, Binary(op.binary, Load(out, zero), Load(buffer, (Var("i"),))))
    body = Block((init, For("i", extent, LoopKind.VECTORIZED, update)))
    actual = run_compiled(Function("kernel", (buffer, out), body), {"x": x})["out"]
    exact = {ReduceOp.SUM: np.sum, ReduceOp.PROD: np.prod}
    part = x[:extent]
    with np.errstate(all="ignore"):
        if op in (ReduceOp.SUM, ReduceOp.PROD):
            wanted = exact[op](part, dtype=dtype.numpy)
        else:
            wanted = part.max() if op is ReduceOp.MAX else part.min()
    rtol = 2e-2 if dtype is DType.F16 else 1e-4 if dtype.is_float else 0
    np.testing.assert_allclose(actual[0], wanted, rtol=rtol)


def test_a_nan_in_any_lane_is_the_extreme():
    for position in (0, 7, 28):
        x = np.random.default_rng(1).normal(size=SIZE).astype(np.float32)
        x[position] = np.nan
        buffer, out = Buffer("x", DType.F32, (SIZE,)), Buffer("out", DType.F32, (1,))
        zero = (Const(0, DType.I64),)
        init = Store(out, zero, ReduceOp.MAX.identity(DType.F32))
        update = Store(out, zero, Binary(BinaryOp.MAX, Load(out, zero), Load(buffer, (Var("i"),))))
        body = Block((init, For("i", 29, LoopKind.VECTORIZED, update)))
        actual = run_compiled(Function("kernel", (buffer, out), body), {"x": x})["out"]
        assert np.isnan(actual[0])


def test_a_select_does_not_evaluate_the_other_branch():
    """Loads and divisions that the condition excludes neither trap nor touch memory."""
    x = some(DType.I32, 1)
    y = some(DType.I32, 2)
    nonzero = lambda b: Binary(BinaryOp.NE, b, Const(0, DType.I32))  # noqa: E731
    actual = apply(
        lambda a, b: Select(nonzero(b), Binary(BinaryOp.DIV, a, b), Const(7, DType.I32)),
        DType.I32, x, y,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(actual, np.where(y != 0, x // y, 7))


@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
def test_bfloat_in_memory_is_rounded_once_and_copied_as_it_is(target):
    x = some(DType.F32, 11)
    x[:4] = [np.nan, np.inf, -np.inf, -0.0]
    target = parse_target(target)
    narrow = apply(lambda a: Cast(DType.BF16, a), DType.BF16, x, target=target)
    rounded = x.astype(DType.BF16.numpy)
    np.testing.assert_array_equal(narrow.astype(np.float32), rounded.astype(np.float32))
    copied = apply(lambda a: a, DType.BF16, narrow, target=target)
    np.testing.assert_array_equal(copied.view(np.uint16), narrow.view(np.uint16))
    doubled = apply(
        lambda a: Cast(DType.BF16, Binary(BinaryOp.ADD, *[Cast(DType.F32, a)] * 2)),
        DType.BF16,
        narrow,
        target=target,
    )
    sums = (narrow + narrow).astype(np.float32)
    np.testing.assert_array_equal(doubled.astype(np.float32), sums)
