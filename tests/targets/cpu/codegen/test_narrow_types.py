"""Elements of a byte or less: every code read, every rounding written, bit for bit as ml_dtypes."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.expr import Binary, BinaryOp, Buffer, Cast, Const, Load, Unary, UnaryOp, Var
from farrier.ir.loop import Block, For, Function, LoopKind, Store
from farrier.ir.narrow import FORMATS
from farrier.ir.special import convert
from farrier.ir.types import DType
from farrier.targets import parse_target
from tests.targets.cpu.codegen.differential import run_compiled

NARROW = [dtype for dtype in DType if dtype.is_narrow_float and dtype.nbytes == 1]
SHORT = [dtype for dtype in DType if dtype.is_integer and dtype.bits < 8]
WIDE = [DType.F16, DType.BF16, DType.F32, DType.F64, DType.I8, DType.U8, DType.I32, DType.I64,
        DType.U64, DType.BOOL]  # fmt: skip


def apply(build, out_dtype, *inputs, target="host"):
    """`build(loads)` for every element, in vectors of 16; the last is a tail."""
    size = len(inputs[0])
    out = Buffer("out", out_dtype, (size,))
    buffers = [Buffer(f"x{n}", DType.from_numpy(a.dtype), a.shape) for n, a in enumerate(inputs)]
    full = size // 16
    at = Binary(BinaryOp.ADD, Binary(BinaryOp.MUL, Var("i"), Const(16, DType.I64)), Var("j"))
    store = Store(out, (at,), build(*(Load(b, (at,)) for b in buffers)))
    rest = Binary(BinaryOp.ADD, Var("t"), Const(16 * full, DType.I64))
    tail = Store(out, (rest,), build(*(Load(b, (rest,)) for b in buffers)))
    nests = [For("i", full, LoopKind.SERIAL, For("j", 16, LoopKind.VECTORIZED, store))] * bool(full)
    if size % 16:
        nests.append(For("t", size % 16, LoopKind.VECTORIZED, tail))
    function = Function("kernel", (*buffers, out), Block(tuple(nests)))
    arrays = {b.name: a for b, a in zip(buffers, inputs, strict=True)}
    return run_compiled(function, arrays, target=parse_target(target))["out"]


def codes(dtype):
    """Every number of the type, and NaN where it has one."""
    return np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)


def assert_same(actual, wanted):
    """Bit for bit, but for the sign and the payload of NaN."""
    assert actual.dtype == wanted.dtype
    if DType.from_numpy(actual.dtype).is_float:
        through = np.float64 if actual.dtype.itemsize == 8 else np.float32
        ours, theirs = (a.astype(through) for a in (actual, wanted))
        np.testing.assert_array_equal(ours, theirs)
        signs = np.signbit(ours) == np.signbit(theirs)
        assert (signs | np.isnan(ours)).all()
    else:
        np.testing.assert_array_equal(actual.astype(object), wanted.astype(object))


def test_halves_by_arithmetic_are_those_of_the_machine():
    """x86-64-v2 has no instructions for f16."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = apply(lambda a: Cast(DType.F32, a), DType.F32, x, target="x86-64-v2")
    assert_same(wide, x.astype(np.float32))
    random = np.random.default_rng(2)
    bits = random.integers(0, 1 << 32, 40000, np.uint32).view(np.float32)
    scaled = (random.normal(size=20000) * 10.0 ** random.uniform(-9, 5, 20000)).astype(np.float32)
    with np.errstate(all="ignore"):
        floats = np.concatenate([bits, scaled, wide, np.nextafter(wide, np.float32(np.inf))])
    actual = apply(lambda a: Cast(DType.F16, a), DType.F16, floats, target="x86-64-v2")
    with np.errstate(all="ignore"):
        assert_same(actual, floats.astype(np.float16))


def hard_numbers(dtype):
    """Between any two numbers of the type: the middle, and its neighbours in f64; and what lies
    beyond the largest."""
    numbers = codes(dtype).astype(np.float32).astype(np.float64)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    middles = (numbers[1:] + numbers[:-1]) / 2
    beyond = numbers.max() + (numbers[-1] - numbers[-2]) * np.array([0.25, 0.5, 0.75, 1, 2, 1e6])
    exact = np.concatenate([numbers, middles, beyond, -beyond, [0.0, -0.0, 1e-45, 1e-300, 1e300]])
    around = [np.nextafter(exact, np.inf), np.nextafter(exact, -np.inf)]
    return np.concatenate([exact, *around, [np.nan, np.inf, -np.inf]])


def nearest(x, dtype):
    """The format's rule on f64: the nearest number, of two the one whose code is even."""
    form = FORMATS[dtype]
    table = codes(dtype).astype(np.float32).astype(np.float64)[: form.largest + 1]
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.abs(x)
        above = np.clip(np.searchsorted(table, size), 1, form.largest)
        low, high = table[above - 1], table[above]
        odd = (above - 1) % 2 == 1
        up = (size - low > high - size) | ((size - low == high - size) & odd)
        code = np.where(up, above, above - 1)
        # Numbers are rounded as if there was one more.
        limit = form.maximum + (table[-1] - table[-2]) / 2
        beyond = (size > limit) | ((size == limit) & (form.largest % 2 == 1))
    code = np.where(beyond, form.overflow, code)
    code = np.where(np.isnan(x), form.nan or 0, code)
    signed = np.signbit(x) & (form.has_negative_zero | (code != 0))
    return (code | np.where(signed, form.sign, 0)).astype(np.uint8).view(dtype.numpy)


@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
@pytest.mark.parametrize("dtype", NARROW)
def test_every_code_is_read_and_written_as_it_was(dtype, target):
    x = codes(dtype)
    wide = apply(lambda a: Cast(DType.F32, a), DType.F32, x, target=target)
    assert_same(wide, x.astype(np.float32))
    assert_same(apply(lambda a: Cast(dtype, a), dtype, wide, target=target), x)
    copied = apply(lambda a: a, dtype, x, target=target)
    np.testing.assert_array_equal(copied.view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("dtype", [dtype for dtype in NARROW if dtype in FORMATS])
def test_what_lies_between_two_numbers_is_rounded_once(dtype):
    x = hard_numbers(dtype)
    for source in (DType.F64, DType.F32):
        with np.errstate(all="ignore"):
            numbers = x.astype(source.numpy)
        wanted = nearest(numbers.astype(np.float64), dtype)
        assert_same(apply(lambda a: Cast(dtype, a), dtype, numbers), wanted)
        assert_same(convert(numbers, dtype), wanted)


def test_powers_of_two_are_rounded_to_the_larger():
    x = np.geomspace(1e-38, 3e38, 3001).astype(np.float32)
    x[:9] = [0, -1, np.nan, np.inf, 3e38, 1.5 * 2.0**-127, 2.0**-127, 1e-40, 3]
    actual = apply(lambda a: Cast(DType.F8E8M0, a), DType.F8E8M0, x)
    np.testing.assert_array_equal(actual.view(np.uint8), x.astype(actual.dtype).view(np.uint8))


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_halves_are_rounded_once_from_wider_types(dtype):
    """The middle of two halves and a little more, which f32 does not see."""
    random = np.random.default_rng(3)
    half = random.normal(size=200).astype(dtype.numpy).astype(np.float64)
    ulp = 2.0 ** (np.floor(np.log2(np.abs(half))) - (10 if dtype is DType.F16 else 7))
    x = np.concatenate([half + ulp / 2 * s + ulp * 2.0**-40 * t for s in (1, -1) for t in (1, -1)])
    exact = np.where(np.abs(x) > np.repeat(np.abs(half)[None], 4, 0).reshape(-1), 1, -1)
    actual = apply(lambda a: Cast(dtype, a), dtype, x).astype(np.float64)
    assert np.all(np.abs(actual - x) < np.tile(ulp, 4) / 2), exact
    assert_same(convert(x, dtype).astype(np.float64), actual)


@pytest.mark.parametrize("dtype", [DType.I32, DType.I64, DType.U64])
def test_bfloats_are_rounded_once_from_integers(dtype):
    random = np.random.default_rng(4)
    top = random.integers(128, 256, 64).astype(dtype.numpy)
    half = dtype.numpy.type(1 << dtype.bits - 11)  # This is half of the last place of eight bits.
    x = (top << dtype.numpy.type(dtype.bits - 10)) + half
    x = np.concatenate([x, x + dtype.numpy.type(1), x - dtype.numpy.type(1)])
    actual = apply(lambda a: Cast(DType.BF16, a), DType.BF16, x).astype(np.float64)
    for value, ours in zip(x.tolist(), actual.tolist(), strict=True):
        below = value >> dtype.bits - 10 << dtype.bits - 10
        step = 1 << dtype.bits - 10
        rest = value - below
        up = rest > step / 2 or (rest == step / 2 and (below // step) % 2 == 1)
        assert int(ours) == below + up * step
    np.testing.assert_array_equal(convert(x, DType.BF16).astype(np.float64), actual)


@pytest.mark.parametrize("dtype", [*NARROW, *SHORT])
def test_conversions_to_and_from_other_types(dtype):
    everything = codes(dtype)
    random = np.random.default_rng(5)
    for other in [*WIDE, *NARROW, *SHORT]:
        if other is dtype:
            continue
        if other is DType.BF16 and dtype is DType.F8E8M0:
            # The least is not a normal number, and vcvtneps2bf16 flushes it.
            everything = everything[1:]
        wanted = convert(everything, other)
        assert_same(apply(lambda a, to=other: Cast(to, a), other, everything), wanted)
        if other.is_float or other is DType.BOOL:
            numbers = convert(random.normal(size=45) * 9, other)
        else:
            low, high = other.limits
            numbers = (
                random.integers(low, high, 45, other.numpy) if other.bits >= 8 else codes(other)
            )
        actual = apply(lambda a: Cast(dtype, a), dtype, numbers)
        if other.is_float:
            assert_same(actual, convert(numbers.astype(np.float64), dtype))
        assert_same(actual, convert(numbers, dtype))


@pytest.mark.parametrize("dtype", SHORT)
def test_short_integers_wrap_around_and_saturate(dtype):
    x, y = codes(dtype), np.roll(codes(dtype), 1)
    for op, exact in (
        (BinaryOp.ADD, np.add),
        (BinaryOp.SUB, np.subtract),
        (BinaryOp.MUL, np.multiply),
        (BinaryOp.MIN, np.minimum),
        (BinaryOp.MAX, np.maximum),
    ):
        actual = apply(lambda a, b, op=op: Binary(op, a, b), dtype, x, y)
        wanted = exact(x.astype(np.int8), y.astype(np.int8)).astype(dtype.numpy)
        np.testing.assert_array_equal(actual.view(np.uint8), wanted.view(np.uint8), op.value)
    actual = apply(lambda a: Unary(UnaryOp.NEG, a), dtype, x)
    wanted = (-x.astype(np.int8)).astype(dtype.numpy)
    np.testing.assert_array_equal(actual.view(np.uint8), wanted.view(np.uint8))
    wide = np.array([-300.5, -9, -1.5, -0.0, 1.5, 3, 7.9, 8, 99, np.nan, np.inf, -np.inf])
    actual = apply(lambda a: Cast(dtype, a), dtype, wide).astype(np.int8)
    low, high = dtype.limits
    np.testing.assert_array_equal(actual, np.clip(np.trunc(np.nan_to_num(wide)), low, high))
