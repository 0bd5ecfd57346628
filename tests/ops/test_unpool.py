"""The positions of maxima and the way back, determinants, and operators along sequences."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import farrier
from farrier.ops.registry import lookup


def f32(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((1, 1, 5), {"kernel_shape": [2]}),
        ((2, 3, 6, 7), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        ((1, 2, 5, 5), {"kernel_shape": [2, 2], "dilations": [2, 3], "storage_order": 0}),
        ((1, 2, 5, 4), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ((2, 1, 4, 4, 4), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
    ],
)
def test_indices_of_maxima(check_model, rng, shape, attrs):
    check_model("MaxPool", [f32(rng, *shape)], outputs=2, **attrs)


def test_indices_of_equal_maxima_and_column_order(check_model, rng):
    x = rng.integers(0, 3, (2, 2, 6, 5)).astype(np.float32)
    check_model("MaxPool", [x], outputs=2, kernel_shape=[2, 3])
    check_model("MaxPool", [x], outputs=2, kernel_shape=[2, 3], storage_order=1)


def test_indices_of_maxima_at_every_size_pass_over_nan(rng):
    attrs = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 0], "strides": [2, 2]}
    graph = helper.make_graph(
        [helper.make_node("MaxPool", ["x"], ["y", "i"], **attrs)],
        "maxima",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", "w"])],
        [helper.make_tensor_value_info("i", TensorProto.INT64, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=9)
    artifact = farrier.compile(model, threads=2, verify=False)
    reference = lookup("MaxPoolIndices").reference
    for height, width in ((1, 2), (3, 9), (16, 17), (31, 64)):
        x = rng.integers(-2, 2, (1, 3, height, width)).astype(np.float32)
        x[x == -2] = np.nan
        (expected,) = reference((x,), attrs)
        np.testing.assert_array_equal(artifact.run({"x": x})["i"], expected)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float64])
def test_indices_of_maxima_of_other_types(check_model, rng, dtype):
    x = rng.integers(0, 4, (2, 2, 6, 5)).astype(dtype)
    check_model("MaxPool", [x], outputs=2, kernel_shape=[3, 2], pads=[1, 0, 1, 1])


@pytest.mark.parametrize("wanted", [None, (2, 3, 8, 7)])
def test_unpool(check_operator, rng, wanted):
    x = f32(rng, 2, 3, 3, 3)
    cells = np.stack([rng.permutation(36)[:9] for _ in range(6)]).reshape(x.shape)
    indices = cells + np.arange(6).reshape(2, 3, 1, 1) * 36
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2]}
    expected = np.zeros((2, 3, 6, 6), np.float32)
    expected.reshape(-1)[indices.reshape(-1)] = x.reshape(-1)
    static = {}
    if wanted is not None:
        static = {2: np.array(wanted, np.int64)}
        expected = np.pad(expected, [(0, 0), (0, 0), (0, 2), (0, 1)])
    check_operator("MaxUnpool", [x, indices], static=static, expected=[expected], opset=11, **attrs)


def test_unpool_stays_within_its_planes(check_operator, rng):
    indices = np.array([[[-1, 10**15]], [[0, 7]]], np.int64)
    expected = np.zeros((2, 1, 4), np.float32)
    expected[1, 0, 3] = 1
    attrs = {"kernel_shape": [2], "strides": [2]}
    x = np.ones((2, 1, 2), np.float32)
    check_operator("MaxUnpool", [x, indices], expected=[expected], opset=11, **attrs)


@pytest.mark.parametrize("shape", [(3, 3), (4, 7, 7), (2, 3, 1, 1), (20, 2, 2), (17, 17)])
def test_determinants(check_operator, rng, shape):
    x = f32(rng, *shape)
    check_operator("Det", [x], tolerance=1e-4)
    x[..., -1] = 0
    check_operator("Det", [x], expected=[np.zeros(shape[:-2], np.float32)])


def test_pivots(check_operator):
    x = np.array([[0, 2, 0], [3, 0, 0], [0, 0, 5]], np.float32)
    check_operator("Det", [x], expected=[np.float32(-30)])


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_reversed_sequences(check_operator, rng, axes):
    time, batch = axes
    x, lengths = f32(rng, 5, 5, 3), np.array([1, 5, 3, 2, 4], np.int64)
    check_operator("ReverseSequence", [x, lengths], time_axis=time, batch_axis=batch)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [1, 2, -1])
def test_caches(check_operator, rng, mode, axis):
    cache = f32(rng, 3, 6, 7, 8)
    shape = list(cache.shape)
    shape[axis] = 4
    update = f32(rng, *shape)
    starts = np.array([0, 2, 1], np.int64) + (4 if mode == "circular" else 0)
    expected = cache.copy()
    for sequence, start in enumerate(starts):
        for step in range(4):
            target = [sequence, slice(None), slice(None), slice(None)]
            source = list(target)
            target[axis], source[axis] = (start + step) % cache.shape[axis], step
            expected[tuple(target)] = update[tuple(source)]
    check_operator(
        "TensorScatter",
        [cache, update, starts],
        expected=[expected],
        opset=24,
        axis=axis,
        mode=mode,
    )
