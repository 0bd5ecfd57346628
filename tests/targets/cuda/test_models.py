"""Whole models through `--target cuda:sm_80`, from the artifact to the emulator of PTX."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
from onnx import TensorProto, helper

import farrier

onnxruntime = pytest.importorskip("onnxruntime")
FLOAT = TensorProto.FLOAT


def _model(nodes, inputs, outputs, weights):
    rng = np.random.default_rng(1)
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [
            helper.make_tensor(name, FLOAT, shape, rng.standard_normal(shape).ravel() / 4)
            for name, shape in weights.items()
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


LAYERS = _model(
    [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("MatMul", ["t", "v"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"]),
        helper.make_node("ReduceSum", ["g"], ["z"], keepdims=0),
    ],
    [("x", FLOAT, ["n", 20])],
    [("y", FLOAT, ["n", 10]), ("z", FLOAT, [])],
    {"w": (20, 24), "b": (24,), "v": (24, 10)},
)
LAYERS_OF_FOUR = _model(
    [helper.make_node("Gemm", ["x", "w"], ["g"]), helper.make_node("Softmax", ["g"], ["y"])],
    [("x", FLOAT, [4, 24])],
    [("y", FLOAT, [4, 10])],
    {"w": (24, 10)},
)
IMAGES = _model(
    [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["m"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["r", "m"], ["a"]),
        helper.make_node("Conv", ["a", "u"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["d"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "v"], ["y"]),
    ],
    [("x", FLOAT, [1, 3, 16, 15])],
    [("y", FLOAT, [1, 10])],
    {"w": (8, 3, 3, 3), "b": (8,), "u": (16, 8, 3, 3), "v": (16, 10)},
)


def _assert_as_onnxruntime(artifact, data, feed):
    expected = onnxruntime.InferenceSession(data).run(None, feed)
    for result, right in zip(artifact.run(feed).values(), expected, strict=True):
        np.testing.assert_allclose(result, right, 1e-4, 1e-4)


def _random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_layers_of_any_number_of_rows(library, tmp_path):
    path = tmp_path / "layers.farrier"
    farrier.compile(LAYERS, target="cuda:sm_80", verify=False).save(path)
    artifact = farrier.load(path)
    for rows in (1, 5, 33):
        _assert_as_onnxruntime(artifact, LAYERS, {"x": _random(rows, 20)})
    assert library.launches
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        texts = [archive.read(name) for name in archive.namelist() if name.endswith(".ptx")]
        assert "program.json" in archive.namelist()
    assert {code["kind"] for code in manifest["code"]} - {"cubin"} == {"ptx"}
    assert texts
    assert all(b".target sm_80" in text for text in texts)


def test_images(library):
    artifact = farrier.compile(IMAGES, target="cuda:sm_80", verify=False)
    _assert_as_onnxruntime(artifact, IMAGES, {"x": _random(1, 3, 16, 15)})


def test_sines_run_on_the_gpu(library):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Sin", ["m"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    shape = [("x", FLOAT, [4, 8])], [("y", FLOAT, [4, 8])]
    data = _model(nodes, *shape, {"w": (8, 8)})
    artifact = farrier.compile(data, target="cuda:sm_80", verify=False)
    _assert_as_onnxruntime(artifact, data, {"x": 1e4 * _random(4, 8)})
    assert any("sin" in name for name in library.launches)
