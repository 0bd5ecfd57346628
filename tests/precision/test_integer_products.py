"""Products of integers accumulated in i32: exact, in register tiles, with and without vpdpbusd."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import farrier

RNG = np.random.default_rng(21)


def compiled(op, x, weights, target, **attrs):
    """The artifact of one node whose first input is not known ahead."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    initializers = [numpy_helper.from_array(a, f"w{i}") for i, a in enumerate(weights)]
    node = helper.make_node(op, ["x", *(f"w{i}" for i in range(len(weights)))], ["y"], **attrs)
    info = helper.make_tensor_value_info("x", kind, x.shape)
    graph = helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name="y")], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return farrier.compile(model, target=target, verify=False, threads=2)


def rules(artifact):
    return [kernel.rule for kernel in artifact.manifest.kernels]


def any_of(dtype, *shape):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return RNG.integers(low, high + 1, shape).astype(dtype)


@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
@pytest.mark.parametrize("dtypes", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)])
@pytest.mark.parametrize("shape", [(1, 64, 33), (13, 36, 48), (7, 37, 20), (5, 4, 128)])
def test_matrices(shape, dtypes, target):
    m, k, n = shape
    x, w = any_of(dtypes[0], m, k), any_of(dtypes[1], k, n)
    zeros = [any_of(dtypes[0]), any_of(dtypes[1])]
    for points in ([], [np.asarray(z) for z in zeros]):
        artifact = compiled("MatMulInteger", x, [w, *points], target)
        assert "register_tile" in rules(artifact)
        assert "fallback" not in rules(artifact)
        a, b = x.astype(np.int32), w.astype(np.int32)
        if points:
            a, b = a - points[0], b - points[1]
        np.testing.assert_array_equal(artifact.run({"x": x})["y"], a @ b)


@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
@pytest.mark.parametrize("weights", [np.int8, np.uint8])
@pytest.mark.parametrize(("channels", "outputs", "group"), [(16, 32, 1), (20, 17, 1), (32, 32, 32)])
def test_convolutions(channels, outputs, group, weights, target):
    x, w = any_of(np.uint8, 1, channels, 9, 7), any_of(weights, outputs, channels // group, 3, 3)
    if weights is np.uint8:
        w = w // 2  # so that the weights less their zero point fit in i8
    point, centre = np.array(113, np.uint8), np.array(3 if weights is np.uint8 else 0, weights)
    options = {"pads": [1, 0, 1, 2], "strides": [1, 2], "group": group}
    artifact = compiled("ConvInteger", x, [w, point, centre], target, **options)
    assert "fallback" not in rules(artifact)
    padded = np.pad(x.astype(np.int64) - 113, [(0, 0), (0, 0), (1, 1), (0, 2)])
    centred = w.astype(np.int64) - centre
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, :, ::2]
    if group == 1:
        expected = np.einsum("ncyxij,ocij->noyx", windows, centred)
    else:
        expected = np.einsum("ncyxij,cij->ncyx", windows, centred[:, 0])
    np.testing.assert_array_equal(artifact.run({"x": x})["y"], expected)


def test_sums_wrap_around():
    """ONNX leaves it open; nothing saturates on the way."""
    x, w = np.full((2, 1 << 17), 255, np.uint8), np.full((1 << 17, 16), 127, np.int8)
    found = compiled("MatMulInteger", x, [w], "host").run({"x": x})["y"]
    wrapped = np.array(255 * 127 * (1 << 17), np.int64).astype(np.int32)
    np.testing.assert_array_equal(found, wrapped)
