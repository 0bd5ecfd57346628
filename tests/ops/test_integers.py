"""Operators on integers whose results or constants are fractions, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph
from tests.ops.conftest import one_node_model, run_kernel

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
    """Indices are truncated; an index out of range, or NaN, is in no class."""
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


COORDINATES = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]


@pytest.mark.parametrize("coordinates", [*COORDINATES, "half_pixel_symmetric"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
@many
@given(data=st.data())
def test_linear_resize_truncates(coordinates, dtype, data):
    """One unit apart at most: ONNX Runtime sums in f32, and of 8-bit channels in fixed point."""
    sides = data.draw(st.tuples(*[st.integers(1, 12)] * 4))
    limits = np.iinfo(np.int8 if dtype is np.int32 else dtype)
    count = sides[0] * sides[1]
    numbers = st.integers(limits.min, limits.max)
    elements = data.draw(st.lists(numbers, min_size=count, max_size=count))
    x = np.array(elements, dtype).reshape(1, 1, *sides[:2])
    attrs = {"mode": "linear", "coordinate_transformation_mode": coordinates}
    assert_resized(x, (1, 1, *sides[2:]), 1, **attrs)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
@pytest.mark.parametrize("sizes", [(4, 3), (11, 5), (3, 17)])
def test_antialiased_resize_rounds(rng, mode, dtype, sizes):
    x = rng.integers(0, 256, (1, 2, 8, 9)).astype(dtype)
    assert_resized(x, (1, 2, *sizes), 1, mode=mode, antialias=1)


def test_cubic_resize_saturates():
    """ONNX Runtime refuses it: the right value is that of floats, truncated."""
    x = np.array([[[[0, 255, 0, 0, 255, 255, 0, 255]]]], np.uint8)
    (real,), _ = resized(x.astype(np.float32), (1, 1, 1, 15), mode="cubic")
    _, ours = resized(x, (1, 1, 1, 15), mode="cubic", is_refused=True)
    assert real.min() < 0
    assert real.max() > 255
    assert np.abs(ours - np.trunc(np.clip(real, 0, 255))).max() <= 1


def resized(x, sizes, is_refused=False, **attrs):
    """The outputs of ONNX Runtime (none where it refuses the model) and of the operator's rules."""
    model = one_node_model("Resize", [x], {3: np.array(sizes)}, 1, 19, attrs)
    theirs = []
    if not is_refused:
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        theirs = session.run(None, {"x0": x})
    graph = import_model(model).graph
    if not graph.nodes:
        return theirs, x.astype(np.float64)
    feeds = {graph.inputs[0].name: x}
    (ours,) = run_graph(graph, feeds).values()
    if len(graph.nodes) == 1 and x.dtype.kind != "f":  # Several nodes have tests of their own.
        (kernel,) = run_kernel(graph, feeds)
        np.testing.assert_array_equal(kernel, ours)
    assert ours.dtype == x.dtype
    return theirs, ours.astype(np.float64)


def assert_resized(x, sizes, units, **attrs):
    (theirs,), ours = resized(x, sizes, **attrs)
    assert np.abs(ours - theirs.astype(np.float64)).max(initial=0) <= units


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_one_scale_keeps_the_ratio(check_operator, rng, policy, mode):
    x = rng.standard_normal((1, 2, 5, 7)).astype(np.float32)
    attrs = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "mode": mode}
    for sizes in ((4, 9), (3, 3), (11, 8)):
        static = {3: np.array(sizes)}
        check_operator("Resize", [x], static=static, opset=18, tolerance=1e-5, **attrs)
