"""One kernel for layers of many channel counts, at every size, in addition to hot sizes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from farrier.options import CompileOptions
from farrier.pipeline import compile_model

IMAGES = [(1, 224, 224), (2, 7, 5), (1, 1, 1), (3, 13, 64), (1, 97, 31), (2, 56, 56)]


class _Net:
    """Builds layers one after another."""

    def __init__(self, channels: int) -> None:
        self._rng = np.random.default_rng(3)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs = self._channels = channels
        self._value = "x"

    def conv(self, outputs: int, taps: int = 1, group: int = 1, stride: int = 1) -> _Net:
        shape = (outputs, self._channels // group, taps, taps)
        scale = np.sqrt(2 / (shape[1] * taps * taps))
        w = self._constant(self._rng.standard_normal(shape) * scale)
        b = self._constant(self._rng.standard_normal(outputs) * 0.1)
        attrs = {"pads": [taps // 2] * 4, "strides": [stride] * 2, "group": group}
        self._channels = outputs
        return self._then("Conv", w, b, **attrs)

    def depthwise(self, taps: int = 3, stride: int = 1) -> _Net:
        return self.conv(self._channels, taps, self._channels, stride)

    def relu6(self) -> _Net:
        low, high = (self._constant(np.array(value)) for value in (0.0, 6.0))
        return self._then("Clip", low, high)

    def scaled(self, scale: float, offset: float) -> _Net:
        self._then("Mul", self._constant(np.array([scale])))
        return self._then("Add", self._constant(np.array([offset])))

    def bottleneck(self, expanded: int) -> _Net:
        """The layers of an inverted bottleneck, its input added."""
        before, channels = self._value, self._channels
        self.conv(expanded).relu6().depthwise().relu6().conv(channels)
        return self._then("Add", before)

    def model(self) -> bytes:
        sizes = ["batch", self._inputs, "h", "w"]
        graph = helper.make_graph(
            self._nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
            [helper.make_tensor_value_info(self._value, TensorProto.FLOAT, None)],
            self._weights,
        )
        opsets = [helper.make_opsetid("", 18)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        return model.SerializeToString()

    def _constant(self, data: np.ndarray) -> str:
        name = f"w{len(self._weights)}"
        self._weights.append(onnx.numpy_helper.from_array(data.astype(np.float32), name))
        return name

    def _then(self, op: str, *others: str, **attrs: object) -> _Net:
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, [self._value, *others], [name], **attrs))
        self._value = name
        return self


def _points() -> _Net:
    net = _Net(16)
    for outputs in (32, 96, 64, 48, 144, 80):
        net.conv(outputs).relu6()
    return net


def _windows() -> _Net:
    """A network of windows, some of which Winograd's filtering computes."""
    net = _Net(32)
    for outputs in (32, 64, 64, 96, 96):
        net.conv(outputs, taps=3).relu6()
    return net.conv(128, taps=3, stride=2).relu6().conv(160, taps=3, stride=2)


def _depthwise() -> _Net:
    net = _Net(48)
    for outputs in (96, 144, 192):
        net.depthwise(5).relu6().conv(outputs)
        net.depthwise(3, stride=2).scaled(0.5 + outputs / 256, -0.125)
    return net


def _bottlenecks() -> _Net:
    net = _Net(32)
    for channels in (32, 64, 96):
        net.conv(channels).bottleneck(6 * channels).bottleneck(6 * channels)
    return net


NETS = {"points": _points, "windows": _windows, "depthwise": _depthwise, "chains": _bottlenecks}


@pytest.mark.long
@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
@pytest.mark.parametrize("name", NETS)
def test_every_size_is_right(name, target):
    model = NETS[name]().model()
    options = CompileOptions(target, threads=2, verify=False)
    artifact = compile_model(model, options)
    general = artifact.schedules[0].decisions
    static = compile_model(model, CompileOptions(target, hot=(), threads=2, verify=False))
    assert len(general) < len(static.schedules[0].decisions)
    peer = onnxruntime.InferenceSession(model)
    rng = np.random.default_rng(1)
    channels = artifact.manifest.inputs[0].shape[1]
    for batch, *image in IMAGES:
        x = rng.standard_normal((batch, channels, *image)).astype(np.float32)
        (expected,) = peer.run(None, {"x": x})
        (actual,) = artifact.run({"x": x}).values()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * scale)


def test_a_batch_alone_has_the_kernels_of_its_hot_size():
    """These serve any batch, so nothing is given up for the sake of less code."""
    model = NETS["chains"]().model()
    shapes = {"x": ("batch", 32, 28, 28)}
    options = CompileOptions(shapes=shapes, threads=2, verify=False)
    artifact = compile_model(model, options)
    fixed = compile_model(model, CompileOptions(shapes={"x": (1, 32, 28, 28)}, threads=2))
    rules = [
        [kernel.rule for kernel in compiled.manifest.kernels] for compiled in (artifact, fixed)
    ]
    assert "bottleneck" in rules[0]
    assert sorted(rules[0]) == sorted(rules[1])
    assert len(artifact.schedules[0].decisions) == len(fixed.schedules[0].decisions)


def test_bottlenecks_are_one_kernel_at_the_hot_size_alone():
    artifact = compile_model(NETS["chains"]().model(), CompileOptions(threads=2, verify=False))
    assert "bottleneck" in {kernel.rule for kernel in artifact.manifest.kernels}
    hot, general = (artifact.schedules[at].decisions.keys() for at in (1, 0))
    named = {kernel.task: kernel.rule for kernel in artifact.manifest.kernels}
    assert {"bottleneck"} <= {named[key] for key in hot - general}
    assert not {key for key in general & named.keys() if named[key] == "bottleneck"}
