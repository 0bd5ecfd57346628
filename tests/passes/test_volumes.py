"""Networks of volumes, [n, c, d, h, w], lie in blocks of channels as those of images do."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import farrier
from farrier.options import CompileOptions
from farrier.pipeline import compile_model


def network(open_sizes):
    """A small 3-D U-Net: convolutions, pools, a transposed convolution, a join, means, a slice."""
    rng = np.random.default_rng(0)
    weights = {}

    def conv(source, result, shape, op="Conv", **attrs):
        weights[f"w_{result}"] = (0.2 * rng.standard_normal(shape)).astype(np.float32)
        return helper.make_node(op, [source, f"w_{result}"], [result], **attrs)

    around = {"pads": [1] * 6}
    nodes = [
        conv("x", "a0", (16, 2, 3, 3, 3), **around),
        helper.make_node("Relu", ["a0"], ["a"]),
        helper.make_node("MaxPool", ["a"], ["b0"], kernel_shape=[2] * 3, strides=[2] * 3),
        conv("b0", "b1", (32, 16, 3, 3, 3), **around),
        helper.make_node("InstanceNormalization", ["b1", "scale", "shift"], ["b"]),
        conv("b", "c0", (32, 16, 2, 2, 2), "ConvTranspose", strides=[2] * 3),
        helper.make_node("Concat", ["a", "c0"], ["c1"], axis=1),
        conv("c1", "c2", (16, 32, 1, 3, 1), pads=[0, 1, 0, 0, 1, 0]),
        helper.make_node("Sigmoid", ["c2"], ["gate"]),
        helper.make_node("Mul", ["c2", "gate"], ["c3"]),
        conv("c3", "y", (5, 16, 1, 1, 1)),
        helper.make_node("ReduceMean", ["c3"], ["mean"], axes=[2, 3, 4]),
    ]
    weights |= {"scale": np.ones(32, np.float32), "shift": np.zeros(32, np.float32)}
    shape = ["n", 2, "d", "h", "w"] if open_sizes else [1, 2, 4, 6, 10]
    graph = helper.make_graph(
        nodes,
        "volumes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=name) for name in ("y", "mean")],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def test_a_network_does_as_onnx_runtime():
    model = network(open_sizes=False)
    artifact = compile_model(model, CompileOptions(threads=2, verify=False))
    rules = [kernel.rule for kernel in artifact.manifest.kernels]
    assert rules.count("register_tile") >= 5
    check(artifact, model, (1, 2, 4, 6, 10))


@pytest.mark.parametrize("shape", [(1, 2, 4, 6, 10), (2, 2, 2, 8, 4)])
def test_a_network_of_open_sizes_does_as_onnx_runtime(open_artifact, shape):
    model, artifact = open_artifact
    check(artifact, model, shape)


@pytest.fixture(scope="module")
def open_artifact():
    model = network(open_sizes=True)
    shapes = {"x": ("n:1..4", 2, "d:2..16:2", "h:2..32:2", "w:2..32:2")}
    return model, farrier.compile(model, shapes=shapes, verify=False)


def check(artifact, model, shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    outputs = artifact.run({"x": x})
    expected = onnxruntime.InferenceSession(model).run(["y", "mean"], {"x": x})
    for name, array in zip(("y", "mean"), expected, strict=True):
        assert outputs[name].shape == array.shape
        np.testing.assert_allclose(outputs[name], array, rtol=1e-3, atol=1e-4)
