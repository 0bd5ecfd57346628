"""Pools, reductions, softmax, and normalizations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

QUIET = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


def f32(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    ("x", "attrs"),
    [
        ((1, 3, 7, 11), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ((2, 1, 5, 5), {"kernel_shape": [5, 5]}),
        ((1, 2, 9), {"kernel_shape": [2], "strides": [2]}),
        ((1, 2, 4, 5, 6), {"kernel_shape": [2, 3, 1]}),
        ((1, 2, 8, 7), {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((1, 2, 1, 1), {"kernel_shape": [1, 1]}),
    ],
)
def test_pools(check_operator, rng, op, x, attrs):
    check_operator(op, [f32(rng, *x)], tolerance=1e-5, **attrs)


@QUIET
@given(data=st.data(), op=st.sampled_from(["MaxPool", "AveragePool"]))
def test_pools_of_any_parameters(check_operator, data, op):
    def pick(low, high):
        return data.draw(st.integers(low, high))

    extents, kernel = (pick(1, 9), pick(1, 9)), [pick(1, 4), pick(1, 4)]
    pads = [pick(0, kernel[a % 2] - 1) for a in range(4)]
    assume(all(extents[a] + pads[a] + pads[a + 2] >= kernel[a] for a in range(2)))
    attrs = {"strides": [pick(1, 3), pick(1, 3)], "ceil_mode": pick(0, 1)}
    if op == "AveragePool":
        attrs["count_include_pad"] = pick(0, 1)
    rng = np.random.default_rng(pick(0, 999))
    x = f32(rng, pick(1, 2), pick(1, 3), *extents)
    check_operator(op, [x], kernel_shape=kernel, pads=pads, opset=19, tolerance=1e-5, **attrs)


def test_dilated_max_pool(check_operator, rng):
    check_operator(
        "MaxPool", [f32(rng, 1, 2, 9, 9)], kernel_shape=[3, 2], dilations=[2, 3], pads=[1, 1, 2, 0]
    )


def test_max_pool_of_padding_alone(check_operator):
    attrs = {"kernel_shape": [2, 1], "dilations": [2, 1], "pads": [1, 0, 1, 0]}
    check_operator("MaxPool", [np.full((1, 2, 1, 3), -np.inf, np.float32)], **attrs)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 1, 1, 1), (1, 4, 9)])
def test_global_pools(check_operator, rng, op, shape):
    check_operator(op, [f32(rng, *shape)], tolerance=1e-5)


REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
]


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("axes", [None, [0], [-1], [1, 3]])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions(check_operator, rng, op, axes, keepdims):
    x = np.abs(f32(rng, 2, 3, 1, 5)) + 0.1
    static = {} if axes is None else {1: np.array(axes, np.int64)}
    check_operator(op, [x], static=static, keepdims=keepdims, opset=18, tolerance=1e-5)


def test_reduction_over_nothing(check_operator, rng):
    check_operator("ReduceSum", [f32(rng, 3, 5)], opset=18, noop_with_empty_axes=1)


def test_log_sum_exp_does_not_overflow(check_operator):
    x = np.array([[1000.0, 1001.0], [-1000.0, -1001.0], [-np.inf, -np.inf]], np.float32)
    expected = np.array([1001.3133, -999.6867, -np.inf], np.float32)
    check_operator(
        "ReduceLogSumExp",
        [x],
        static={1: np.array([1], np.int64)},
        keepdims=0,
        opset=18,
        expected=[expected],
    )


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("attrs", [{"axis": 0}, {"axis": -1, "keepdims": 0}, {"axis": 1}])
@pytest.mark.parametrize("last", [0, 1])
def test_positions_of_extremes(check_operator, rng, op, attrs, last):
    x = rng.integers(0, 3, (4, 5, 6)).astype(np.float32)  # ties
    check_operator(op, [x], select_last_index=last, **attrs)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((19, 37), 1),
        ((5, 37), -1),
        ((2, 9, 71), 1),
        ((33, 70), 0),
        ((7, 18, 3), 1),
        ((7, 1, 3), 1),
        ((1,), 0),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_running_sum(check_operator, rng, shape, axis, exclusive, reverse, dtype):
    check_operator(
        "CumSum",
        [(100 * rng.standard_normal(shape)).astype(dtype)],
        static={1: np.array(axis, np.int64)},
        exclusive=exclusive,
        reverse=reverse,
        tolerance=1e-5,
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_running_sum_of_what_is_not_finite(check_operator, rng, axis):
    x = f32(rng, 21, 66)
    x[3, 5], x[4, 40], x[4, 50], x[20, 65] = np.nan, np.inf, -np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        check_operator("CumSum", [x], static={1: np.array(axis, np.int64)}, tolerance=1e-5)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(check_operator, rng, op, axis):
    check_operator(op, [f32(rng, 2, 3, 7) * 9], axis=axis, tolerance=1e-5)


def test_softmax_does_not_overflow(check_operator):
    x = np.array([[1e4, -1e4, 9990.0], [-np.inf, 0.0, 1.0]], np.float32)
    check_operator("Softmax", [x])


def test_batch_normalization(check_operator, rng):
    for shape in [(2, 5, 3, 4), (1, 7, 3), (4, 3)]:
        parameters = [f32(rng, shape[1]) for _ in range(3)] + [np.abs(f32(rng, shape[1])) + 0.1]
        check_operator(
            "BatchNormalization", [f32(rng, *shape), *parameters], epsilon=1e-3, tolerance=1e-5
        )


def test_instance_normalization(check_operator, rng):
    inputs = [f32(rng, 2, 3, 5, 4), f32(rng, 3), f32(rng, 3)]
    check_operator("InstanceNormalization", inputs, epsilon=1e-2, tolerance=1e-5)


def test_group_normalization(check_operator, rng):
    inputs = [f32(rng, 2, 6, 5, 3), f32(rng, 6), f32(rng, 6)]
    check_operator("GroupNormalization", inputs, num_groups=3, opset=21, tolerance=1e-5)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("bias", [False, True])
def test_layer_normalization(check_operator, rng, axis, bias):
    shape = (2, 5, 7)
    inputs = [f32(rng, *shape) * 3 + 5] + [f32(rng, *shape[axis:])] * (1 + bias)
    check_operator("LayerNormalization", inputs, axis=axis, tolerance=2e-5)


def test_rms_normalization(check_operator, rng):
    x, scale = f32(rng, 3, 7), f32(rng, 7)
    expected = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * scale
    check_operator("RMSNormalization", [x, scale], opset=23, expected=[expected], tolerance=1e-5)


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(check_operator, rng, p):
    check_operator("LpNormalization", [f32(rng, 3, 5, 2)], axis=1, p=p, tolerance=1e-5)


def test_mean_variance_normalization(check_operator, rng):
    check_operator("MeanVarianceNormalization", [f32(rng, 2, 3, 5, 4)], tolerance=1e-4)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_local_response_normalization(check_operator, rng, size):
    check_operator(
        "LRN", [f32(rng, 2, 7, 3, 4) * 5], size=size, alpha=0.3, beta=0.6, bias=1.5, tolerance=1e-5
    )
