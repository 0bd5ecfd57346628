"""Whole models through `--target webgpu`, run on this machine's adapter."""

from __future__ import annotations

import json
import sys
import zipfile

import numpy as np
import pytest
from onnx import TensorProto, helper

import farrier
from farrier.errors import FarrierError, MemoryLimitError
from farrier.lower.lower_threads import lower_threads
from farrier.targets import parse_target
from farrier.targets.webgpu import sizes
from farrier.targets.webgpu.wgsl import render
from farrier_device import adapters
from farrier_device.devices.device import DeviceError
from farrier_device.devices.webgpu import WebGpuDevice
from farrier_device.measurement import Launch
from tests.ir.kernels import KERNELS
from tests.targets.webgpu import webgpu

onnxruntime = pytest.importorskip("onnxruntime")


def _model(nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [
            helper.make_tensor(name, TensorProto.FLOAT, array.shape, array.ravel())
            for name, array in weights
        ],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    ).SerializeToString()


def _weights(**shapes):
    rng = np.random.default_rng(1)
    return [
        (name, rng.standard_normal(shape).astype(np.float32) / 4) for name, shape in shapes.items()
    ]


IMAGES = _model(
    [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["m"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["r", "m"], ["a"]),
        helper.make_node("GlobalAveragePool", ["a"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "v"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"]),
    ],
    [("x", TensorProto.FLOAT, ["n", 3, 16, 15])],
    [("y", TensorProto.FLOAT, ["n", 10])],
    _weights(w=(8, 3, 3, 3), b=(8,), v=(8, 10)),
)
WORDS = _model(
    [
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("LayerNormalization", ["e", "scale"], ["l"]),
        helper.make_node("MatMul", ["l", "q"], ["k"]),
        helper.make_node("Transpose", ["l"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["k", "t"], ["s"]),
        helper.make_node("Softmax", ["s"], ["a"]),
        helper.make_node("MatMul", ["a", "l"], ["o"]),
        helper.make_node("Gelu", ["o"], ["y"], domain="com.microsoft"),
    ],
    [("ids", TensorProto.INT64, [2, "words"])],
    [("y", TensorProto.FLOAT, [2, "words", 16])],
    _weights(table=(30, 16), scale=(16,), q=(16, 16)),
)


def _assert_as_onnxruntime(artifact, data, *feeds):
    session = onnxruntime.InferenceSession(data)
    for feed in feeds:
        (expected,) = session.run(None, feed)
        (result,) = artifact.run(feed).values()
        np.testing.assert_allclose(result, expected, 1e-4, 1e-4)


def _images(number):
    return {"x": np.random.default_rng(0).standard_normal((number, 3, 16, 15)).astype(np.float32)}


def _words(number):
    return {"ids": np.random.default_rng(0).integers(-30, 30, (2, number))}


def test_images_of_any_number(tmp_path):
    webgpu.device()
    artifact = farrier.compile(IMAGES, target="webgpu")
    _assert_as_onnxruntime(artifact, IMAGES, _images(1), _images(3), _images(1), _images(0))
    path = tmp_path / "images.farrier"
    artifact.save(path)
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        texts = [
            archive.read(name).decode()
            for name in archive.namelist()
            if name.startswith("code/") and name.endswith(".wgsl")
        ]
        assert "program.json" in archive.namelist()
    assert {code["kind"] for code in manifest["code"]} == {"wgsl"}
    assert len(texts) == len(manifest["code"])
    assert all("@compute" in text for text in texts)
    _assert_as_onnxruntime(farrier.load(path), IMAGES, _images(2))


def test_words_of_any_number():
    webgpu.device()
    model = WORDS
    artifact = farrier.compile(model, target="webgpu")
    _assert_as_onnxruntime(artifact, model, _words(7), _words(1), _words(33))


def test_an_array_that_no_kernel_reaches_is_refused(monkeypatch):
    monkeypatch.setattr(sizes, "MOST_BYTES", 4096)
    with pytest.raises(FarrierError, match=r"of node '\w+.*' has 0 MiB, and an array of a kernel"):
        farrier.compile(IMAGES, target="webgpu", shapes={"x": (64, 3, 16, 15)}, verify=False)
    gpu = webgpu.device()
    monkeypatch.setattr("farrier_device.devices.webgpu_module.MOST_BYTES", 4096)
    monkeypatch.setattr(gpu, "_has_open_sizes", True)
    webgpu.load(render(lower_threads(KERNELS["reverse"][0])))
    places = [(gpu.allocate(nbytes, 0), 0) for nbytes in (64, 8192)]
    with pytest.raises(MemoryError, match="kernels reach"):
        gpu.bind(Launch("reverse_0", None, (4,), (4,)), places)


def test_sizes_beyond_the_reach_of_kernels_end_a_run_with_an_error(monkeypatch):
    webgpu.device()
    artifact = farrier.compile(IMAGES, target="webgpu", verify=False)
    monkeypatch.setattr("farrier_device.devices.webgpu_module.MOST_BYTES", 1 << 16)
    _assert_as_onnxruntime(artifact, IMAGES, _images(1))
    with pytest.raises(MemoryLimitError, match="too large for WebGPU"):
        artifact.run(_images(64))


def test_without_the_package_an_error_says_how_to_install_it(monkeypatch):
    monkeypatch.delenv(adapters.PACKAGE, raising=False)
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(DeviceError, match=r"pip install 'farrier\[webgpu\]'"):
        WebGpuDevice()
    target = parse_target("webgpu")
    reason = target.backend.why_not_here(target.arch, target.cpu, ())
    assert "farrier[webgpu]" in reason
