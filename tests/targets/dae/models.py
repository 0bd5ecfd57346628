"""Quantized models of one layer, and their results on the processor."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.records import RecordStore


def convolution(
    channels: int = 16,
    outputs: int = 16,
    size: tuple[int, int] = (7, 9),
    kernel: int = 3,
    *,
    stride: int = 1,
    pad: int = 1,
    dilation: int = 1,
    group: int = 1,
    adds: bool = False,
    clips: bool = False,
) -> bytes:
    """Return a model of u8 → convolution → u8, as quantizers write it; `adds` a second input to the
    result, `clips` it to 0 to 6."""
    rng = np.random.default_rng(channels + 31 * outputs + kernel)
    model = _Model(rng)
    x = model.quantized("x", (1, channels, *size), 0.02, 117)
    weights = rng.integers(-127, 128, (outputs, channels // group, kernel, kernel), np.int8)
    scales = rng.uniform(0.001, 0.01, outputs).astype("f4")
    w = model.node("DequantizeLinear", [model.constant(weights), model.constant(scales)], axis=0)
    bias = rng.integers(-3000, 3000, outputs).astype(np.int32)
    b = model.node(
        "DequantizeLinear",
        [model.constant(bias), model.constant(scales * np.float32(0.02))],
        axis=0,
    )
    attributes = {
        "strides": [stride] * 2,
        "pads": [pad] * 4,
        "dilations": [dilation] * 2,
        "group": group,
    }
    y = model.node("Conv", [x, w, b], **attributes)
    if clips:
        y = model.node("Clip", [y, model.constant(np.float32(0)), model.constant(np.float32(6))])
    reach = (kernel - 1) * dilation + 1
    points = tuple((n + 2 * pad - reach) // stride + 1 for n in size)
    if adds:
        y = model.requantized(y, 0.05, 90)
        beside = model.quantized("beside", (1, outputs, *points), 0.03, 128)
        y = model.node("Relu", [model.node("Add", [y, beside])])
    return model.finished(model.requantized(y, 0.04, 100), (1, outputs, *points))


def product(rows: int, depth: int, columns: int) -> bytes:
    """Return a model of u8 · i8 → u8."""
    rng = np.random.default_rng(rows + depth)
    model = _Model(rng)
    x = model.quantized("x", (rows, depth), 0.02, 128)
    weights = rng.integers(-127, 128, (depth, columns), np.int8)
    scale, zero = model.constant(np.float32(0.004)), model.constant(np.int8(0))
    w = model.node("DequantizeLinear", [model.constant(weights), scale, zero])
    y = model.node("MatMul", [x, w])
    return model.finished(model.requantized(y, 0.05, 128), (rows, columns))


def addition(
    shape: tuple[int, ...], zeros: tuple[int, int] = (117, 128), *, clips: bool = False
) -> bytes:
    """Return a model of u8 + u8 → u8; `clips` the sum to positive numbers."""
    model = _Model(np.random.default_rng(len(shape)))
    left = model.of_bytes("left", shape, 0.02, zeros[0])
    right = model.of_bytes("right", shape, 0.03, zeros[1])
    y = model.node("Add", [left, right])
    if clips:
        y = model.node("Relu", [y])
    return model.finished(model.requantized(y, 0.04, 100), shape)


def max_pool(channels: int, size: tuple[int, int], kernel: int, stride: int, pad: int) -> bytes:
    """Return a model of u8 → 1 × 1 convolution → max pool → convolution → u8."""
    model = _Model(np.random.default_rng(channels + kernel))
    x = model.quantized("x", (1, channels, *size), 0.02, 117)
    y = model.requantized(model.pointwise(x, channels), 0.05, 110)
    attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    y = model.requantized(model.node("MaxPool", [y], **attributes), 0.05, 110)
    points = tuple((n + 2 * pad - kernel) // stride + 1 for n in size)
    y = model.requantized(model.pointwise(y, channels), 0.06, 120)
    return model.finished(y, (1, channels, *points))


def average_pool(channels: int, size: tuple[int, int]) -> bytes:
    """Return a model of u8 → 1 × 1 convolution → global average → u8."""
    model = _Model(np.random.default_rng(channels))
    x = model.quantized("x", (1, channels, *size), 0.02, 117)
    y = model.requantized(model.pointwise(x, channels), 0.05, 110)
    y = model.requantized(model.node("GlobalAveragePool", [y]), 0.01, 120)
    return model.finished(y, (1, channels, 1, 1))


class _Model:
    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray | np.generic) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, inputs: list[str], **attributes: object) -> str:
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def pointwise(self, value: str, channels: int) -> str:
        """Add a 1 × 1 convolution with random weights."""
        weights = self._rng.integers(-127, 128, (channels, channels, 1, 1), np.int8)
        by = [self.constant(np.float32(0.004)), self.constant(np.int8(0))]
        w = self.node("DequantizeLinear", [self.constant(weights), *by])
        return self.node("Conv", [value, w])

    def quantized(self, name: str, shape: tuple[int, ...], scale: float, zero: int) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return self.requantized(name, scale, zero)

    def of_bytes(self, name: str, shape: tuple[int, ...], scale: float, zero: int) -> str:
        """Add an input of u8, and return its value as floats."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.UINT8, shape))
        by = [self.constant(np.float32(scale)), self.constant(np.uint8(zero))]
        return self.node("DequantizeLinear", [name, *by])

    def requantized(self, value: str, scale: float, zero: int) -> str:
        by = [self.constant(np.float32(scale)), self.constant(np.uint8(zero))]
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [value, *by]), *by])

    def finished(self, value: str, shape: tuple[int, ...]) -> bytes:
        result = helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self._nodes, "g", self._inputs, [result], self._constants)
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def inputs(model: bytes) -> dict[str, np.ndarray]:
    """Return inputs that reach the bounds of their bytes."""
    rng = np.random.default_rng(3)
    values = {}
    for each in onnx.load_from_string(model).graph.input:
        kind = each.type.tensor_type
        shape = [dim.dim_value for dim in kind.shape.dim]
        is_byte = kind.elem_type == TensorProto.UINT8
        values[each.name] = (
            rng.integers(0, 256, shape, np.uint8)
            if is_byte
            else rng.normal(0, 2, shape).astype("f4")
        )
    return values


def results(model: bytes, target: str) -> np.ndarray:
    """Return the result of a model on a target."""
    artifact = farrier.compile(model, target=target, verify=False)
    (result,) = artifact.run(inputs(model)).values()
    return result


def tuned(model: bytes, target: str, records: RecordStore) -> farrier.Artifact:
    """Return a model that was tuned on a target by a few trials."""
    options = CompileOptions(target, trials=6, seed=1)
    return compile_model(Model.of_bytes(model, "layer"), options, name="layer", records=records)
