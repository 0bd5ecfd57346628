"""Kernels, and a model, that every backend must compile, with example values."""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
import onnx.reference
from onnx import TensorProto, helper, numpy_helper

from farrier.ir.evaluate import evaluate
from farrier.ir.graph import Graph
from farrier.ir.loop import Function
from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.tensor import TensorProgram
from farrier.lower.region import lower_region

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

# The regions of kernels, by name; an input `w` is a constant.
REGIONS = {
    "product": """@graph
def region(x: f32[5, 3], w: f32[3, 10]):
    p: f32[5, 10] = MatMul(x, w)
    y: f32[5, 10] = Relu(p)
    return y
""",
    "convolution": """@graph
def region(x: f32[1, 3, 6, 5], w: f32[4, 3, 3, 3]):
    y: f32[1, 4, 6, 5] = Conv(x, w, pads=(1, 1, 1, 1))
    return y
""",
    "reduction": """@graph
def region(x: f32[4, 7]):
    y: f32[4, 7] = Softmax(x)
    return y
""",
    "transposition": """@graph
def region(x: f32[3, 5, 4], b: f32[4]):
    t: f32[4, 3, 5] = Transpose(x, perm=(2, 0, 1))
    y: f32[4, 3, 5] = Tanh(t)
    return y
""",
    "window": """@graph
def region(x: f32[1, 2, 6, 6]):
    y: f32[1, 2, 3, 3] = MaxPool(x, kernel_shape=(2, 2), strides=(2, 2))
    return y
""",
    "loops": """@graph
def region(x: f32[2, 3, 3]):
    y: f32[2, 3, 3] = Inverse(x)
    return y
""",
}


@functools.cache
def kernel(name: str) -> TensorProgram | Function:
    """Return the tensor program of the kernel `name`, or its loops if its operator has a loop
    nest."""
    graph = parse_ir(REGIONS[name])
    assert isinstance(graph, Graph)
    return lower_region(graph, name, [value.name for value in graph.inputs if value.name == "w"])


@functools.cache
def example(name: str) -> tuple[Arrays, Arrays]:
    """Return random inputs of a kernel and its outputs, by name, computed by the interpreter."""
    program, graph = kernel(name), parse_ir(REGIONS[name])
    assert isinstance(graph, Graph)
    rng = np.random.default_rng(0)
    inputs = {
        value.name: rng.standard_normal(value.type.static_shape).astype(value.type.dtype.numpy)
        for value in graph.inputs
    }
    if isinstance(program, Function):
        return inputs, run_loops(program, inputs)
    return inputs, evaluate(program, inputs)


@functools.cache
def model() -> tuple[onnx.ModelProto, Arrays, Arrays]:
    """Return a small model with its inputs and outputs by name."""
    rng = np.random.default_rng(0)
    weights = {"k": (8, 3, 3, 3), "w": (8, 5)}
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("ReduceMean", ["r"], ["m"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["m", "w"], ["p"]),
        helper.make_node("Softmax", ["p"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [
            numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    opsets = [helper.make_opsetid("", 17)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    inputs = {"x": rng.standard_normal((1, 3, 6, 6)).astype(np.float32)}
    (output,) = onnx.reference.ReferenceEvaluator(proto).run(None, inputs)
    return proto, inputs, {"y": output}
