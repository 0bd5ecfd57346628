"""Write an ONNX graph node by node, with the nodes that an exporter would write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 17, 8

Size: TypeAlias = int | str  # An extent, or the name of an input's dim that stays open.


def image(batch: Size, size: Size | tuple[Size, Size]) -> tuple[Size, ...]:
    """Return the shape of a batch of RGB images; `size` is the side of a square, or height and
    width."""
    height, width = size if isinstance(size, tuple) else (size, size)
    return batch, 3, height, width


class Writer:
    """A builder of an ONNX model. Methods that add a node or weight return the name of its
    value."""

    def __init__(self, name: str, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._count = 0
        self._places: dict[str, tuple[str, int]] = {}  # For each open dim, an input and its axis.

    def input(self, name: str, shape: Sequence[Size], dtype: int = TensorProto.FLOAT) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        for axis, size in enumerate(shape):
            if isinstance(size, str):
                self._places.setdefault(size, (name, axis))
        return name

    def output(self, value: str, name: str, shape: Sequence[Size]) -> None:
        """Make a value an output of the model with the name `name`."""
        for node in self._nodes:
            for position, produced in enumerate(node.output):
                if produced == value:
                    node.output[position] = name
            for position, read in enumerate(node.input):
                if read == value:
                    node.input[position] = name
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))

    def op(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Add a node with one output, and return the output's name."""
        self._count += 1
        name = f"{op}_{self._count}"
        node = helper.make_node(op, inputs, [f"{name}_output_0"], name=name, **attrs)
        self._nodes.append(node)
        return str(node.output[0])

    def constant(self, value: Any, dtype: npt.DTypeLike = np.float32) -> str:
        """Add a Constant node, as exporters write for literals and shapes."""
        return self.op("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def weight(self, data: npt.NDArray[Any]) -> str:
        self._count += 1
        name = f"weight_{self._count}"
        self._initializers.append(numpy_helper.from_array(data, name))
        return name

    def normal(self, shape: Sequence[int], scale: float) -> str:
        """Add a weight drawn from N(0, scale²)."""
        return self.weight(self.rng.standard_normal(shape, np.float32) * np.float32(scale))

    def uniform(self, shape: Sequence[int], low: float, high: float) -> str:
        return self.weight(self.rng.uniform(low, high, shape).astype(np.float32))

    def conv(
        self, x: str, channels: int, outputs: int, kernel: int, *, stride: int = 1, group: int = 1
    ) -> str:
        """Add a square convolution without bias, padded such that stride 1 does not change the
        extents."""
        fan_in = channels // group * kernel * kernel
        shape = (outputs, channels // group, kernel, kernel)
        return self.op(
            "Conv",
            x,
            self.normal(shape, math.sqrt(2 / fan_in)),
            dilations=[1, 1],
            group=group,
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
        )

    def batch_norm(self, x: str, channels: int, gain: float = 1.0) -> str:
        """Add a batch normalization with random parameters and statistics, which scales by about
        `gain`."""
        return self.op(
            "BatchNormalization",
            x,
            self.uniform((channels,), 0.5 * gain, 1.5 * gain),
            self.normal((channels,), 0.1),
            self.normal((channels,), 0.1),
            self.uniform((channels,), 0.5, 1.5),
            epsilon=1e-5,
            momentum=0.9,
        )

    def layer_norm(self, x: str, width: int, epsilon: float) -> str:
        scale, bias = self.uniform((width,), 0.5, 1.5), self.normal((width,), 0.1)
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """Add x·W + b along the last axis of a tensor of any rank, as MatMul and Add."""
        weight = self.normal((inputs, outputs), math.sqrt(1 / inputs))
        return self.op("Add", self.normal((outputs,), 0.1), self.op("MatMul", x, weight))

    def gemm(self, x: str, inputs: int, outputs: int) -> str:
        """Add x·Wᵀ + b for a matrix x, as Gemm."""
        weight = self.normal((outputs, inputs), math.sqrt(1 / inputs))
        bias = self.normal((outputs,), 0.1)
        return self.op("Gemm", x, weight, bias, alpha=1.0, beta=1.0, transB=1)

    def reshape(self, x: str, shape: Sequence[Size]) -> str:
        return self.op("Reshape", x, self.sizes(shape), allowzero=0)

    def sizes(self, shape: Sequence[Size]) -> str:
        """Add a vector of sizes in i64: a Constant if all are numbers, else a Concat that reads the
        open sizes from the inputs' shapes."""
        if not any(isinstance(size, str) for size in shape):
            return self.constant(shape, np.int64)
        parts = [
            self._asked(size) if isinstance(size, str) else self.constant([size], np.int64)
            for size in shape
        ]
        return self.op("Concat", *parts, axis=0)

    def _asked(self, dim: str) -> str:
        """Add nodes that read the size of an open dim from an input's shape, as a vector of length
        1."""
        name, axis = self._places[dim]
        size = self.op("Gather", self.op("Shape", name), self.constant(axis, np.int64), axis=0)
        return self.op("Unsqueeze", size, self.constant([0], np.int64))

    def shape(self, shape: Sequence[Size]) -> str:
        """Add a shape for Expand by the nodes that an exporter writes, which replace −1 by 1."""
        wanted, length = self.sizes(shape), self.constant([len(shape)], np.int64)
        unit = numpy_helper.from_array(np.ones(1, np.int64))
        ones = self.op("ConstantOfShape", length, value=unit)
        negative = self.op("Mul", ones, self.constant(-1, np.int64))
        return self.op("Where", self.op("Equal", wanted, negative), ones, wanted)

    def gelu(self, x: str) -> str:
        """Add GELU as the five nodes that opset 17 needs for it."""
        erf = self.op("Erf", self.op("Div", x, self.constant(math.sqrt(2))))
        product = self.op("Mul", x, self.op("Add", erf, self.constant(1.0)))
        return self.op("Mul", product, self.constant(0.5))

    def finish(self) -> bytes:
        graph = helper.make_graph(
            self._nodes, self._name, self._inputs, self._outputs, self._initializers
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="farrier-bench")
        model.ir_version = IR_VERSION
        return bytes(model.SerializeToString())
