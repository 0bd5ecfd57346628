"""Transforms over long and open axes against numpy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph


def model_of(x, shape=None, length=None, **attrs):
    inputs = ["x"] if length is None else ["x", "n"]
    constants = [] if length is None else [numpy_helper.from_array(np.array(length), "n")]
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node("DFT", inputs, ["y"], axis=1, **attrs)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, shape or x.shape)],
        [onnx.ValueInfoProto(name="y")],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return bytes(model.SerializeToString())


def signal(count, parts, dtype="f8"):
    return np.random.default_rng(count).standard_normal((2, count, parts)).astype(dtype)


def expected(x, length=None, inverse=0, onesided=0):
    z = x[..., 0].astype("c16")
    if x.shape[-1] == 2:
        z = z + 1j * x[..., 1]
    if inverse and onesided:
        return np.fft.irfft(z, length or 2 * (z.shape[1] - 1), axis=1)[..., None]
    length = length or z.shape[1]
    result = (np.fft.ifft if inverse else np.fft.fft)(z, length, axis=1)
    result = result[:, : length // 2 + 1] if onesided else result
    return np.stack([result.real, result.imag], -1)


CASES = [  # The length, the number of parts, and the attributes.
    (1024, 1, {}),  # two factors
    (640, 2, {"inverse": 1}),
    (16384, 1, {"onesided": 1}),
    (1009, 2, {}),  # A matrix computes this prime.
    (2053, 2, {}),  # Chirps compute this prime.
    (2053, 1, {"inverse": 1}),
    (1025, 2, {"inverse": 1, "onesided": 1}),
    (513, 2, {"inverse": 1, "onesided": 1, "length": 1025}),
    (700, 1, {"onesided": 1, "length": 1024}),
    (1500, 2, {"length": 1024}),
]


@pytest.mark.parametrize(("count", "parts", "attrs"), CASES)
def test_long_transforms(count, parts, attrs):
    x = signal(count, parts)
    graph = import_model(model_of(x, **attrs)).graph
    (y,) = run_graph(graph, {graph.inputs[0].name: x}).values()
    wanted = expected(x, **attrs)
    assert y.shape == wanted.shape
    np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-10 * abs(wanted).max())


def test_a_long_transform_takes_small_constants():
    graph = import_model(model_of(signal(1 << 16, 1, "f4"))).graph
    assert sum(constant.data.nbytes for constant in graph.constants) < 2 << 20


@pytest.mark.parametrize(
    "attrs",
    [
        {"parts": 1},
        {"parts": 1, "onesided": 1},
        {"parts": 2, "inverse": 1},
        {"parts": 2, "inverse": 1, "onesided": 1},
        {"parts": 2, "length": 9},
    ],
)
def test_transforms_over_an_open_axis(attrs):
    parts = attrs.pop("parts")
    shape = ("n", "m", parts)
    graph = import_model(model_of(signal(3, parts), shape, **attrs)).graph
    for count in (2, 7, 12, 65):
        x = signal(count, parts)[:, :, :parts]
        (y,) = run_graph(graph, {graph.inputs[0].name: x}).values()
        wanted = expected(x, **attrs)
        assert y.shape == wanted.shape
        np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-10 * abs(wanted).max())


def mixing(nodes, inputs, opset):
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 9
    return bytes(model.SerializeToString())


def test_transforms_over_two_axes():
    """FNet's mixing: a transform over features, and one over an open sequence."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m", 6, 1])
    nodes = [
        helper.make_node("DFT", ["x"], ["h"], axis=2),
        helper.make_node("DFT", ["h"], ["y"], axis=1),
    ]
    graph = import_model(mixing(nodes, [x], 17)).graph
    for count in (1, 5, 128):
        signals = np.random.default_rng(0).standard_normal((2, count, 6, 1)).astype("f4")
        wanted = np.fft.fft2(signals[..., 0].astype("f8"), axes=(1, 2))
        (y,) = run_graph(graph, {graph.inputs[0].name: signals}).values()
        np.testing.assert_allclose(y[..., 0], wanted.real, rtol=0, atol=1e-4)
        np.testing.assert_allclose(y[..., 1], wanted.imag, rtol=0, atol=1e-4)


def test_a_length_that_values_decide():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 7, 1])
    n = helper.make_tensor_value_info("n", TensorProto.INT64, [])
    nodes = [helper.make_node("Add", ["n", "n"], ["m"]), helper.make_node("DFT", ["x", "m"], ["y"])]
    data, values = mixing(nodes, [x, n], 20), signal(7, 1, "f4")
    artifact = farrier.compile(data, threads=1, verify=False, hot=())
    for length in (1, 3, 4):
        y = artifact.run({"x": values, "n": np.array(length)})["y"]
        np.testing.assert_allclose(y, expected(values, 2 * length), rtol=0, atol=1e-5)
