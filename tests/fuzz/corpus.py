"""Valid models for mutations to start from: every kind of thing that an ONNX file may hold."""

from __future__ import annotations

import functools
import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from random_models import random_model

node, info = helper.make_node, helper.make_tensor_value_info
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@functools.cache
def corpus() -> tuple[bytes, ...]:
    """The models' bytes, always the same."""
    models = [_branches(), _loop(), _scan(), _functions(), _quantized(), _sizes(), _sequences()]
    models += [_network(), _recurrent()]
    models += [_elements(code) for code in TensorProto.DataType.values() if code]
    random_ones = [random_model(random.Random(seed)) for seed in range(20)]
    return (*(bytes(model.SerializeToString()) for model in models), *random_ones)


def _model(
    graph: onnx.GraphProto, functions: tuple[onnx.FunctionProto, ...] = (), opset: int = 21
) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=list(functions))
    model.ir_version = 10
    return model


def _constant(name: str, *values: float, dtype: type = np.int64) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), name)


def _branches() -> onnx.ModelProto:
    inner = node(
        "If",
        ["d"],
        ["i"],
        then_branch=helper.make_graph([node("Abs", ["x"], ["p"])], "p", [], [info("p", 1, [3])]),
        else_branch=helper.make_graph([node("Neg", ["x"], ["q"])], "q", [], [info("q", 1, [3])]),
    )
    outer = node(
        "If",
        ["c"],
        ["y"],
        then_branch=helper.make_graph([inner], "then", [], [info("i", FLOAT, [3])]),
        else_branch=helper.make_graph(
            [node("Add", ["x", "w"], ["o"])],
            "else",
            [],
            [info("o", FLOAT, [3])],
            [_constant("w", 1, 2, 3, dtype=np.float32)],
        ),
    )
    inputs = [info("c", BOOL, []), info("d", BOOL, []), info("x", FLOAT, [3])]
    return _model(helper.make_graph([outer], "branches", inputs, [info("y", FLOAT, [3])]))


def _loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [
            node("Add", ["sum", "x"], ["more"]),
            node("Identity", ["goes"], ["again"]),
            node("Mul", ["more", "more"], ["part"]),
        ],
        "body",
        [info("i", INT64, []), info("goes", BOOL, []), info("sum", FLOAT, [3])],
        [info("again", BOOL, []), info("more", FLOAT, [3]), info("part", FLOAT, [3])],
    )
    loop = node("Loop", ["trips", "", "x"], ["y", "parts"], body=body)
    outputs = [info("y", FLOAT, [3]), info("parts", FLOAT, ["n", 3])]
    inputs = [info("x", FLOAT, [3])]
    return _model(helper.make_graph([loop], "loop", inputs, outputs, [_constant("trips", 100)]))


def _scan() -> onnx.ModelProto:
    body = helper.make_graph(
        [node("Add", ["state", "row"], ["next"]), node("Relu", ["next"], ["part"])],
        "body",
        [info("state", FLOAT, [4]), info("row", FLOAT, [4])],
        [info("next", FLOAT, [4]), info("part", FLOAT, [4])],
    )
    scan = node("Scan", ["first", "rows"], ["last", "parts"], body=body, num_scan_inputs=1)
    inputs = [info("first", FLOAT, [4]), info("rows", FLOAT, [70, 4])]
    outputs = [info("last", FLOAT, [4]), info("parts", FLOAT, [70, 4])]
    return _model(helper.make_graph([scan], "scan", inputs, outputs))


def _functions() -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    leaky = node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=1))
    inner = helper.make_function("local", "Inner", ["a"], ["b"], [leaky], opsets, ["slope"])
    calls = [
        node("Inner", ["a"], ["t"], domain="local", slope=0.1),
        node("Add", ["t", "a"], ["b"]),
    ]
    outer = helper.make_function("local", "Outer", ["a"], ["b"], calls, opsets)
    nodes = [node("Outer", ["x"], ["z"], domain="local"), node("Gelu", ["z"], ["y"])]
    graph = helper.make_graph(nodes, "g", [info("x", FLOAT, [5])], [info("y", FLOAT, [5])])
    return _model(graph, (inner, outer))


def _quantized() -> onnx.ModelProto:
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("QLinearMatMul", ["q", "scale", "zero", "w", "scale", "zero", "scale", "zero"], ["m"]),
        node("DequantizeLinear", ["m", "scale", "zero"], ["y"]),
    ]
    weights = np.arange(12, dtype=np.uint8).reshape(4, 3)
    constants = [numpy_helper.from_array(weights, "w")]
    constants.append(numpy_helper.from_array(np.array(0.1, np.float32), "scale"))
    constants.append(numpy_helper.from_array(np.array(3, np.uint8), "zero"))
    inputs, outputs = [info("x", FLOAT, [2, 4])], [info("y", FLOAT, [2, 3])]
    return _model(helper.make_graph(nodes, "quantized", inputs, outputs, constants))


def _sizes() -> onnx.ModelProto:
    """Open dims, and nodes that compute shapes from them."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"]),
        node("Concat", ["batch", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["flat"]),
        node("Range", ["start", "limit", "step"], ["r"]),
        node("ConstantOfShape", ["rest3"], ["filled"]),
        node("Expand", ["r", "rest3"], ["wide"]),
        node("Tile", ["wide", "twice"], ["tiled"]),
        node("Pad", ["flat", "pads"], ["padded"]),
        node("Slice", ["padded", "zero", "rest3", "zero"], ["cut"]),
        node("Cast", ["tiled"], ["number"], to=FLOAT),
        node("ReduceSum", ["number"], ["sum"], keepdims=0),
        node("Add", ["cut", "sum"], ["y"]),
        node("Unsqueeze", ["filled", "zero"], ["z"]),
    ]
    constants = [_constant("zero", 0), _constant("rest", -1), _constant("rest3", 3)]
    constants += [_constant("twice", 2), _constant("pads", 0, 0, 1, 1)]
    for name, value in (("start", 0), ("limit", 3), ("step", 1)):
        constants.append(numpy_helper.from_array(np.array(value, np.int64), name))
    inputs = [info("x", FLOAT, ["batch", 4, 2])]
    outputs = [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="z")]
    return _model(helper.make_graph(nodes, "sizes", inputs, outputs, constants))


def _sequences() -> onnx.ModelProto:
    nodes = [
        node("SplitToSequence", ["x"], ["parts"], axis=0),
        node("SequenceAt", ["parts", "one"], ["part"]),
        node("SequenceInsert", ["parts", "part"], ["more"]),
        node("ConcatFromSequence", ["more"], ["y"], axis=0),
    ]
    constants = [numpy_helper.from_array(np.array(1, np.int64), "one")]
    inputs, outputs = [info("x", FLOAT, [4, 3])], [onnx.ValueInfoProto(name="y")]
    return _model(helper.make_graph(nodes, "sequences", inputs, outputs, constants))


def _network() -> onnx.ModelProto:
    arrays = np.random.default_rng(0)
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["c", "b", "b", "b", "v"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["p", "", "scales"], ["u"], mode="linear"),
        node("GlobalAveragePool", ["u"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "m"], ["h"], transB=1),
        node("Softmax", ["h"], ["s"]),
        node("Einsum", ["s", "m"], ["e"], equation="bk,kc->bc"),
        node("TopK", ["e", "k"], ["y", "z"]),
    ]
    tensors = {"w": (8, 3, 3, 3), "b": (8,), "m": (8, 8)}
    constants = [
        numpy_helper.from_array(arrays.standard_normal(shape).astype(np.float32), name)
        for name, shape in tensors.items()
    ]
    constants.append(numpy_helper.from_array(np.ones(8, np.float32), "v"))
    constants += [_constant("scales", 1, 1, 2, 2, dtype=np.float32), _constant("k", 2)]
    outputs = [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="z")]
    inputs = [info("x", FLOAT, [1, 3, 9, 9])]
    return _model(helper.make_graph(nodes, "network", inputs, outputs, constants))


def _recurrent() -> onnx.ModelProto:
    arrays = np.random.default_rng(0)
    nodes = [
        node("LSTM", ["x", "w", "r"], ["l", "h", "c"], hidden_size=3, direction="bidirectional"),
        node("Squeeze", ["h"], ["y"]),
        node("ScatterND", ["y", "at", "row"], ["z"]),
        node("NonZero", ["z"], ["found"]),
    ]
    constants = [
        numpy_helper.from_array(arrays.standard_normal(shape).astype(np.float32), name)
        for name, shape in {"w": (2, 12, 4), "r": (2, 12, 3), "row": (1, 3)}.items()
    ]
    constants.append(numpy_helper.from_array(np.array([[1]]), "at"))
    outputs = [onnx.ValueInfoProto(name=name) for name in ("l", "z", "found")]
    inputs = [info("x", FLOAT, [5, 1, 4])]
    return _model(helper.make_graph(nodes, "recurrent", inputs, outputs, constants))


def _elements(code: int) -> onnx.ModelProto:
    """Constants and an input of the element type, stored both ways, and a conversion from it."""
    if code == TensorProto.STRING:
        raw = typed = helper.make_tensor("w", code, [3], ["a", "b\0c", "d"])
    else:
        typed = helper.make_tensor("w", code, [3], [0, 1, 1])
        raw = numpy_helper.from_array(numpy_helper.to_array(typed))
    nodes = [
        node("Constant", [], ["k"], value=raw),
        node("Concat", ["w", "x"], ["both"], axis=0),
        node("Cast", ["both"], ["y"], to=FLOAT),
    ]
    outputs = [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="k")]
    return _model(helper.make_graph(nodes, "elements", [info("x", code, [2])], outputs, [typed]))
