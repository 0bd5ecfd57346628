"""Accuracy of the elementary functions against float64, in vectors and tails, specials included."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Load,
    Unary,
    UnaryOp,
    Var,
    add,
    mul,
)
from farrier.ir.loop import Block, For, Function, LoopKind, Store
from farrier.ir.types import DType

F32, F64 = DType.F32, DType.F64
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-45, -1e-40, 3e38, -3e38, 0.5]


erf = np.vectorize(math.erf, otypes=[np.float64])


def samples(dtype: DType, low: float, high: float, count: int = 40_001) -> np.ndarray:
    random = np.random.default_rng(7)
    dense = np.concatenate([np.linspace(low, high, count), random.uniform(low, high, count)])
    tiny = 10.0 ** random.uniform(-30, 0, 2000) * random.choice([-1, 1], 2000)
    kept = tiny[(tiny >= low) & (tiny <= high)]
    return np.concatenate([dense, kept, SPECIAL]).astype(dtype.numpy)


def apply(run_function, build, *inputs: np.ndarray) -> np.ndarray:
    """Run `build(loads)` over arrays of one size, in vectors of 16 and a tail."""
    size, dtype = inputs[0].size, DType.from_numpy(inputs[0].dtype)
    buffers = [Buffer(f"x{i}", dtype, (size,)) for i in range(len(inputs))]
    rows, tail = divmod(size, 16)
    bulk = [Load(b, (_at(16),)) for b in buffers]
    end = [Load(b, (_from(rows * 16),)) for b in buffers]
    out = Buffer("out", dtype, (size,))
    vectors = For("l", 16, LoopKind.VECTORIZED, Store(out, (_at(16),), build(*bulk)))
    rest = For("t", tail, LoopKind.VECTORIZED, Store(out, (_from(rows * 16),), build(*end)))
    body = Block((For("i", rows, LoopKind.SERIAL, vectors), rest))
    result = np.zeros(size, dtype.numpy)
    run_function(Function("kernel", (*buffers, out), body), *inputs, result)
    return result


def _at(lanes):
    return add(mul(Var("i"), lanes), Var("l"))


def _from(start):
    return add(Var("t"), start)


def relative_error(actual: np.ndarray, exact: np.ndarray, smallest: float) -> float:
    """The largest error relative to the exact value, or to `smallest` where that is larger; values
    that are not finite must agree."""
    with np.errstate(over="ignore"):
        finite = np.isfinite(exact.astype(actual.dtype))
        np.testing.assert_array_equal(actual[~finite], exact[~finite].astype(actual.dtype))
    assert np.isfinite(actual[finite]).all()
    error = np.abs(actual[finite].astype(np.float64) - exact[finite].astype(np.float64))
    return float(np.max(error / np.maximum(np.abs(exact[finite]), smallest)))


FUNCTIONS = [
    (UnaryOp.EXP, np.exp, -110.0, 95.0, 1.2e-7),
    (UnaryOp.LOG, np.log, 0.0, 20.0, 2e-7),
    (UnaryOp.TANH, np.tanh, -12.0, 12.0, 2.5e-7),
    (UnaryOp.ERF, erf, -6.0, 6.0, 3.2e-7),
    (UnaryOp.SIN, np.sin, -100.0, 100.0, 1.2e-7),
    (UnaryOp.COS, np.cos, -100.0, 100.0, 1.2e-7),
    (UnaryOp.SQRT, np.sqrt, 0.0, 100.0, 1e-7),
]


@pytest.mark.parametrize(("op", "exact", "low", "high", "bound"), FUNCTIONS)
def test_accuracy_in_f32(run_function, op, exact, low, high, bound):
    x = samples(F32, low, high)
    actual = apply(run_function, lambda a: Unary(op, a), x)
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(np.float64))
    assert relative_error(actual, wanted, 2.0**-126) < bound


@pytest.mark.parametrize(("op", "exact", "low", "high", "bound"), FUNCTIONS)
def test_accuracy_in_f64(run_function, op, exact, low, high, bound):
    x = samples(F64, low * 6, high * 6)
    actual = apply(run_function, lambda a: Unary(op, a), x)
    with np.errstate(all="ignore"):
        wanted = exact(x)
    assert relative_error(actual, wanted, 2.0**-1022) < 1e-15


@pytest.mark.parametrize("dtype", [F32, F64])
def test_decay_is_exp_without_subnormal_results(run_function, dtype):
    x = samples(dtype, -110.0, 0.0) * (1 if dtype is F32 else 8)
    x = x[~(x > 0)]
    actual = apply(run_function, lambda a: Unary(UnaryOp.EXP_NONPOSITIVE, a), x)
    limits = np.finfo(dtype.numpy)
    with np.errstate(all="ignore"):
        wanted = np.exp(x.astype(np.float64))
    assert relative_error(actual, wanted, float(limits.tiny)) <= 1
    normal = ~(wanted < limits.tiny * 1.001)
    assert relative_error(actual[normal], wanted[normal], 0) < (1.2e-7 if dtype is F32 else 1e-15)
    assert not actual[wanted < limits.tiny * 0.999].any()
    assert not np.any((actual > 0) & (actual < limits.tiny))


@pytest.mark.parametrize(
    ("op", "exact"),
    [
        (UnaryOp.FLOOR, np.floor),
        (UnaryOp.CEIL, np.ceil),
        (UnaryOp.ROUND, np.rint),
        (UnaryOp.ABS, np.abs),
        (UnaryOp.NEG, np.negative),
    ],
)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_exact_functions(run_function, op, exact, dtype):
    x = np.concatenate([samples(dtype, -50, 50, 1001), np.arange(-5, 5, 0.5, dtype.numpy)])
    actual = apply(run_function, lambda a: Unary(op, a), x)
    np.testing.assert_array_equal(actual, exact(x))


POWERS = [-2.0, -1.0, -0.5, 0.0, 0.5, 0.75, 1.0, 2.0, 3.0, 4.0, 0.3, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", [F32, F64])
def test_rounding_to_tf32(run_function, dtype):
    half = 2.0**-11
    exact = np.array([0, 0.5, math.inf, -math.inf, math.nan, 1, -1, 2])
    near = [0, 0.5 + half / 2.1, math.inf, -math.inf, math.nan, 1 - half / 3, -1 + half / 2, 2]
    halves = np.array([1 + half, -1 - half, 1 + 3 * half, 1.5 - half])  # Away from zero.
    x = np.concatenate([near, halves]).astype(dtype.numpy)
    actual = apply(run_function, lambda a: Unary(UnaryOp.ROUND_TF32, a), x)
    away = halves + np.copysign(half, halves)
    np.testing.assert_array_equal(actual, np.concatenate([exact, away]).astype(dtype.numpy))
    x = samples(dtype, 1, 50, 1001)[:1001]
    actual = apply(run_function, lambda a: Unary(UnaryOp.ROUND_TF32, a), x)
    mantissa, exponent = np.frexp(x.astype(np.float64))
    rounded = np.copysign(np.floor(np.abs(mantissa) * 2**11 + 0.5), mantissa)
    np.testing.assert_array_equal(actual, np.ldexp(rounded, exponent - 11))


@pytest.mark.parametrize("exponent", POWERS)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_power_of_a_constant(run_function, exponent, dtype):
    x = np.concatenate([samples(dtype, -9, 9, 2001), np.arange(-4, 5).astype(dtype.numpy)])
    actual = apply(run_function, lambda a: Binary(BinaryOp.POW, a, Const(exponent, dtype)), x)
    with np.errstate(all="ignore"):
        rounded = np.full(x.shape, exponent, dtype.numpy).astype(np.float64)
        wanted = np.power(x.astype(np.float64), rounded).astype(dtype.numpy)
    bound = 3e-7 if dtype is F32 else 1e-15
    assert relative_error(actual, wanted, 2.0**-126) < bound


def test_power_of_any_pair(run_function):
    random = np.random.default_rng(2)
    x = np.concatenate([random.uniform(-4, 4, 5000), np.repeat(SPECIAL, len(POWERS))])
    y = np.concatenate([random.uniform(-9, 9, 5000), np.tile(POWERS, len(SPECIAL))])
    y[:1000] = np.rint(y[:1000])
    x, y = x.astype(np.float32), y.astype(np.float32)
    actual = apply(run_function, lambda a, b: Binary(BinaryOp.POW, a, b), x, y)
    with np.errstate(all="ignore"):
        wanted = (x.astype(np.float64) ** y.astype(np.float64)).astype(np.float32)
    assert relative_error(actual, wanted, 2.0**-126) < 3e-7


@pytest.mark.parametrize("op", [BinaryOp.MIN, BinaryOp.MAX])
def test_extremes_propagate_nan(run_function, op):
    values = np.array([*SPECIAL, 2.5, -2.5], np.float32)
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    actual = apply(run_function, lambda a, b: Binary(op, a, b), x.copy(), y.copy())
    exact = np.minimum if op is BinaryOp.MIN else np.maximum
    np.testing.assert_array_equal(actual, exact(x, y))
    clipped = apply(run_function, lambda a: Binary(op, a, Const(0.5, F32)), x.copy())
    np.testing.assert_array_equal(clipped, exact(x, np.float32(0.5)))


def test_half_precision_constants_are_rounded(run_function):
    x = np.linspace(-3, 3, 101).astype(np.float32)
    actual = apply(run_function, lambda a: Cast(F32, Cast(DType.F16, a)), x)
    np.testing.assert_array_equal(actual, x.astype(np.float16).astype(np.float32))


NARROW = [
    (UnaryOp.EXP, np.exp),
    (UnaryOp.LOG, np.log),
    (UnaryOp.TANH, np.tanh),
    (UnaryOp.SIN, np.sin),
]


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
@pytest.mark.parametrize(("op", "exact"), NARROW)
def test_functions_of_narrow_floats_are_those_of_f32_rounded(run_function, op, exact, dtype):
    x = np.concatenate([np.linspace(0.01, 9, 99), SPECIAL[:5]]).astype(dtype.numpy)
    actual = apply(run_function, lambda a: Unary(op, a), x).astype(np.float64)
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(np.float64)).astype(dtype.numpy).astype(np.float64)
    step = 2.0**-10 if dtype is DType.F16 else 2.0**-7
    np.testing.assert_allclose(actual, wanted, rtol=step, atol=1e-7)
