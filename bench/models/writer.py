"""Writes one ONNX graph node by node, as an exporter would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
_IR_VERSION = 8


class Writer:
    """Collects nodes and weights; every method returns the name of what it adds."""

    def __init__(self, name: str, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def weight(self, array: npt.NDArray[Any]) -> str:
        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def normal(self, *shape: int, fan_in: int) -> str:
        """Random weights that keep the variance of `fan_in` summed inputs."""
        scale = np.float32(np.sqrt(1.0 / fan_in))
        return self.weight(self.rng.standard_normal(shape, np.float32) * scale)

    def ints(self, *values: int) -> str:
        return self.weight(np.array(values, np.int64))

    def scalar(self, value: float) -> str:
        return self.weight(np.float32(value))

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"{op}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, list(inputs), [f"{name}_out"], name, **attrs))
        return f"{name}_out"

    def conv(
        self, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> str:
        """A convolution without bias, padded to keep the extent at stride 1."""
        fan_in = inputs // groups * kernel * kernel
        w = self.normal(outputs, inputs // groups, kernel, kernel, fan_in=fan_in)
        pads, strides = [kernel // 2] * 4, [stride] * 2
        return self.node(
            "Conv", x, w, kernel_shape=[kernel] * 2, pads=pads, strides=strides, group=groups
        )

    def batch_norm(self, x: str, channels: int) -> str:
        """Random scale, shift, mean and variance, as training leaves them."""
        uniform = self.rng.uniform
        scale, variance = (uniform(0.5, 1.5, channels).astype(np.float32) for _ in range(2))
        shift, mean = (uniform(-0.3, 0.3, channels).astype(np.float32) for _ in range(2))
        arrays = (scale, shift, mean, variance)
        return self.node("BatchNormalization", x, *map(self.weight, arrays), epsilon=1e-5)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """x @ w + bias, on the last axis."""
        product = self.node("MatMul", x, self.normal(inputs, outputs, fan_in=inputs))
        bias = self.rng.uniform(-0.1, 0.1, outputs).astype(np.float32)
        return self.node("Add", self.weight(bias), product)

    def layer_norm(self, x: str, width: int, epsilon: float) -> str:
        scale = self.rng.uniform(0.5, 1.5, width).astype(np.float32)
        shift = self.rng.uniform(-0.3, 0.3, width).astype(np.float32)
        return self.node(
            "LayerNormalization",
            x,
            self.weight(scale),
            self.weight(shift),
            axis=-1,
            epsilon=epsilon,
        )

    def gelu(self, x: str) -> str:
        """x/2 · (1 + erf(x/√2)), as the exporter spells it."""
        erf = self.node("Erf", self.node("Div", x, self.scalar(np.sqrt(2.0))))
        product = self.node("Mul", x, self.node("Add", erf, self.scalar(1.0)))
        return self.node("Mul", product, self.scalar(0.5))

    def attention(
        self, x: str, width: int, heads: int, batch: int, tokens: int, mask: str = ""
    ) -> str:
        """Multi-head self-attention with its output projection; x is [batch, tokens, width]."""
        size = width // heads
        split, merge = self.ints(batch, tokens, heads, size), self.ints(batch, tokens, width)

        def head(perm: list[int]) -> str:
            shaped = self.node("Reshape", self.linear(x, width, width), split)
            return self.node("Transpose", shaped, perm=perm)

        query, key, value = head([0, 2, 1, 3]), head([0, 2, 3, 1]), head([0, 2, 1, 3])
        scores = self.node("Div", self.node("MatMul", query, key), self.scalar(np.sqrt(size)))
        if mask:
            scores = self.node("Add", scores, mask)
        context = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        merged = self.node("Reshape", self.node("Transpose", context, perm=[0, 2, 1, 3]), merge)
        return self.linear(merged, width, width)

    def finish(self, outputs: dict[str, Sequence[int]], values: Sequence[str]) -> bytes:
        """The model's bytes, with `values` as its outputs under the names and shapes given."""
        for name, value in zip(outputs, values, strict=True):
            self._nodes.append(helper.make_node("Identity", [value], [name], f"output_{name}"))
        results = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in outputs.items()
        ]
        graph = helper.make_graph(self._nodes, self._name, self._inputs, results, self._weights)
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION)
        onnx.checker.check_model(model)
        data: bytes = model.SerializeToString()
        return data
