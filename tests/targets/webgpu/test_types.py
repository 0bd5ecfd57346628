"""Models of bytes, booleans and f16, all of which the GPU runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.errors import ArtifactError
from farrier_device import adapters
from farrier_device.webgpu_library import F16
from tests.targets.webgpu import webgpu

onnxruntime = pytest.importorskip("onnxruntime")
node, value = helper.make_node, helper.make_tensor_value_info


def _model(nodes, inputs, outputs, constants):
    graph = helper.make_graph(
        nodes,
        "model",
        [value(*each) for each in inputs],
        [value(*each) for each in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


_RNG = np.random.default_rng(0)
# A convolution of bytes, a product of those, and comparisons; rows are of an odd number of bytes.
BYTES = _model(
    [
        node("DequantizeLinear", ["x", "fine", "low"], ["xf"]),
        node("DequantizeLinear", ["w", "fine", "zero"], ["wf"]),
        node("Conv", ["xf", "wf"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("QuantizeLinear", ["r", "coarse", "low"], ["q"]),
        node("DequantizeLinear", ["q", "coarse", "low"], ["d"]),
        node("DequantizeLinear", ["v", "fine", "zero"], ["vf"]),
        node("MatMul", ["d", "vf"], ["p"]),
        node("QuantizeLinear", ["p", "wide", "zero"], ["y"]),
        node("Softmax", ["p"], ["s"]),
        node("QuantizeLinear", ["s", "fine", "low"], ["soft"]),
        node("Greater", ["p", "half"], ["large"]),
    ],
    [("x", TensorProto.UINT8, ["n", 3, 9, 11])],
    [
        ("y", TensorProto.INT8, None),
        ("soft", TensorProto.UINT8, None),
        ("large", TensorProto.BOOL, None),
    ],
    {
        "fine": np.float32(0.02),
        "coarse": np.float32(0.05),
        "wide": np.float32(0.6),
        "low": np.uint8(12),
        "zero": np.int8(0),
        "half": np.float32(0.5),
        "w": _RNG.integers(-50, 50, (5, 3, 3, 3)).astype(np.int8),
        "v": _RNG.integers(-50, 50, (11, 7)).astype(np.int8),
    },
)
HALVES = _model(
    [
        node("MatMul", ["x", "w"], ["h"]),
        node("Tanh", ["h"], ["t"]),
        node("Softmax", ["t"], ["y"]),
        node("LayerNormalization", ["h", "scale"], ["n"]),
        node("Transpose", ["h"], ["z"], perm=[1, 0]),
    ],
    [("x", TensorProto.FLOAT16, ["n", 33])],
    [(name, TensorProto.FLOAT16, None) for name in "ynz"],
    {
        "w": (_RNG.standard_normal((33, 21)) / 4).astype(np.float16),
        "scale": np.ones(21, np.float16),
    },
)


def _compare(artifact, model, tolerance, *feeds):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert {kernel.space for kernel in artifact.manifest.kernels} == {"gpu"}
    for feed in feeds:
        outputs = artifact.run(feed).values()
        for expected, output in zip(session.run(None, feed), outputs, strict=True):
            assert output.dtype == expected.dtype
            off = np.abs(output.astype(float) - expected.astype(float))
            assert off.max(initial=0) <= tolerance * max(1.0, np.abs(expected.astype(float)).max())
            # A quotient half way between two integers may be rounded to either.
            assert output.dtype.kind == "f" or (off != 0).mean() < 0.01


def _bytes(number):
    return {"x": np.random.default_rng(number).integers(0, 256, (number, 3, 9, 11), np.uint8)}


def _halves(number):
    return {"x": np.random.default_rng(number).standard_normal((number, 33)).astype(np.float16)}


def test_a_model_of_bytes_runs_on_the_gpu():
    webgpu.device()
    artifact = farrier.compile(BYTES, target="webgpu", verify=False)
    _compare(artifact, BYTES, 0.01, _bytes(1), _bytes(3), _bytes(2))


@pytest.mark.parametrize("target", ["webgpu", "webgpu:f16"])
def test_a_model_of_f16_runs_on_the_gpu(target):
    """With the type, and with two elements in a word."""
    if target == "webgpu:f16":
        _with_f16()
    webgpu.device()
    artifact = farrier.compile(HALVES, target=target, verify=False)
    texts = [each.content.decode() for each in artifact.code.objects]
    assert all(("enable f16;" in text) == (target == "webgpu:f16") for text in texts)
    _compare(artifact, HALVES, 1e-2, _halves(7), _halves(1), _halves(33))


def _with_f16():
    """Skip where the adapter has no f16."""
    webgpu.device()
    adapter = adapters.find_adapter()
    if F16 not in adapter.features:
        pytest.skip(f"{adapter.name} has no {F16}")
    return adapter


def test_an_artifact_needs_an_adapter_with_its_features(monkeypatch):
    adapter = _with_f16()
    artifact = farrier.compile(HALVES, target="webgpu:f16", verify=False)
    assert artifact.manifest.features == (F16,)
    without = dataclasses.replace(adapter, features=())
    monkeypatch.setattr(adapters, "find_adapter", lambda name="": without)
    with pytest.raises(ArtifactError, match=f"{adapter.name[:8]}.* has no .*, .* needs {F16}"):
        artifact.run(_halves(2))
