"""Operators on integers whose results or constants are fractions, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
many = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize(
    "op", ["ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd", "ReduceLogSumExp"]
)
@many
@given(st.data())
def test_reductions_truncate(check_operator, op, data):
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    shape = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 5)))
    count = shape[0] * shape[1]
    elements = data.draw(st.lists(st.integers(-30, 30), min_size=count, max_size=count))
    x = np.array(elements, dtype).reshape(shape)
    check_operator(op, [x], opset=13, axes=[1])


def test_reductions_in_float64_do_not_overflow(check_operator):
    highest = np.iinfo(np.int32).max
    x = np.array([[highest, highest], [100_000, 100_000], [2, 5]], np.int32)
    for op in ("ReduceMean", "ReduceLogSum"):
        check_operator(op, [x], opset=13, axes=[1])
    check_operator("ReduceL2", [x[1:]], opset=13, axes=[1])


@many
@given(st.data())
def test_shrink(check_operator, data):
    dtype = data.draw(st.sampled_from([*SIGNED, *UNSIGNED]))
    limits = np.iinfo(dtype)
    numbers = st.integers(max(limits.min, -300), min(limits.max, 300))
    x = np.array(data.draw(st.lists(numbers, min_size=6, max_size=6)), dtype)
    lambd, bias = (data.draw(st.integers(-12, 12)) / 8 for _ in range(2))
    check_operator("Shrink", [x], lambd=lambd, bias=bias)


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 0.5), (1.5, -0.25), (1.0, 0.75), (-0.5, 1.0)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("is_added", [True, False])
def test_gemm_of_fractions(check_operator, rng, alpha, beta, dtype, is_added):
    """ONNX Runtime has no Gemm of integers: the right value is that of exact arithmetic."""
    a, b, c = (rng.integers(-20, 20, shape).astype(dtype) for shape in ((3, 5), (5, 4), (4,)))
    real = alpha * (a.astype(object) @ b.astype(object)) + (beta * c.astype(object)) * is_added
    expected = np.array([[int(v) for v in row] for row in real], dtype)
    operands = [a, b, c] if is_added else [a, b]
    check_operator("Gemm", operands, expected=[expected], alpha=alpha, beta=beta)


@many
@given(st.data())
def test_powers(check_operator, data):
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    x = np.array(data.draw(st.lists(st.integers(-9, 9), min_size=5, max_size=5)), dtype)
    halves = data.draw(st.lists(st.integers(-6, 12), min_size=5, max_size=5))
    check_operator("Pow", [x, np.array(halves, np.float32) / 2], opset=15)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot_of_floats(check_operator, axis):
    """Indices are truncated; what is out of range, or NaN, is in no class."""
    lost = [np.nan, np.inf, -np.inf, 1e20, 4.0, -5.0]
    x = np.array([[0, 1.9, -1, -4, 3.99, -0.5], lost], np.float32)
    depth, values = np.array([4], np.float32), np.array([0.5, 2], np.float32)
    check_operator("OneHot", [x, None, values], static={1: depth}, opset=11, axis=axis)


@pytest.mark.parametrize("dtype", SIGNED)
def test_the_least_integer(check_operator, dtype):
    least = np.iinfo(dtype).min
    x, y = np.array([least, least, -7, 7], dtype), np.array([-1, 1, 3, -3], dtype)
    for op in ("Abs", "Neg", "Sign"):
        check_operator(op, [x])
    for op in ("Sub", "Mul", "Mod"):
        check_operator(op, [x, y])
    check_operator("Mod", [x, y], fmod=1)
    # ONNX Runtime's division of the least integer by -1 kills the process.
    check_operator("Div", [x, y], expected=[np.array([least, least, -2, -2], dtype)])
