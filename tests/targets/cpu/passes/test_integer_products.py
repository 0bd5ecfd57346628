"""Quantized models, compiled: products are integers', and results are ONNX Runtime's."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier.frontends.onnx.importer import import_model
from farrier.ir.types import DType
from farrier.ops import run_graph
from farrier.ops.verify import verify
from farrier.options import CompileOptions
from farrier.passes.eliminate_dead_code import eliminate_dead_code
from farrier.passes.settings import Settings
from farrier.pipeline import compile_model
from farrier.targets import parse_target
from farrier.targets.cpu.passes.integer_products import integer_products
from tests.targets.cpu.codegen.emulated import needs_qemu, run_graph_emulated

TARGETS = ("host", "x86-64-v3")
SETTINGS = Settings(parse_target("x86-64-v3"), threads=1)


@dataclasses.dataclass(frozen=True)
class Layer:
    """A convolution between a DequantizeLinear and a QuantizeLinear."""

    x: tuple[int, ...]
    outputs: int = 16
    taps: tuple[int, ...] = (3, 3)
    pads: int = 1
    zero: int = 0
    weights_zero: int = 0
    group: int = 1
    stride: int = 1
    dilation: int = 1
    per_channel: bool = True
    bias: str = "own"  # The scale of the bias: the product's own, another, floats, or none at all.
    dtype: type = np.uint8
    is_integer: bool = True  # It becomes a product of integers.
    open_sizes: bool = False


LAYERS = {
    "blocks": Layer((1, 32, 9, 11)),
    "zero point": Layer((2, 32, 9, 7), zero=131),
    "one point": Layer((1, 64, 7, 7), taps=(1, 1), pads=0, zero=3),
    "stride": Layer((1, 16, 9, 9), zero=128, stride=2),
    "dilated": Layer((1, 16, 11, 11), zero=5, dilation=2, pads=2),
    "image": Layer((1, 3, 13, 15), taps=(7, 7), pads=3, stride=2, zero=114),
    "image without padding": Layer((1, 3, 13, 15), pads=0),
    "grey": Layer((1, 1, 12, 10), outputs=8, zero=1),
    "odd channels": Layer((1, 18, 8, 8), zero=9),
    "few outputs": Layer((1, 32, 8, 8), outputs=3, zero=7),
    "one scale": Layer((1, 32, 8, 8), per_channel=False, zero=255),
    "weights with a zero point": Layer((1, 32, 8, 8), per_channel=False, weights_zero=3),
    "weights beyond bytes": Layer((1, 32, 8, 8), weights_zero=-100, is_integer=False),
    "bias of another scale": Layer((1, 32, 8, 8), bias="other", zero=2),
    "bias of floats": Layer((1, 32, 8, 8), bias="floats"),
    "no bias": Layer((1, 32, 8, 8), bias="none", zero=20),
    "groups": Layer((1, 32, 8, 8), outputs=32, group=2, zero=9),
    "narrow groups": Layer((2, 32, 9, 7), outputs=32, group=8, zero=200, stride=2),
    "groups of points": Layer((1, 32, 5, 5), outputs=32, group=4, taps=(1, 1), pads=0, zero=3),
    "groups left over": Layer((1, 72, 7, 8), outputs=72, group=9, zero=131, bias="floats"),
    "signed groups": Layer((1, 48, 7, 8), outputs=96, group=6, dtype=np.int8, zero=-5),
    "groups of odd channels": Layer((1, 33, 8, 8), outputs=33, group=11, is_integer=False),
    "depthwise": Layer((1, 16, 8, 8), group=16),
    "depthwise with a zero point": Layer((2, 20, 9, 7), outputs=20, group=20, zero=77, stride=2),
    "depthwise without padding": Layer((1, 24, 8, 8), outputs=24, group=24, pads=0, zero=9),
    "two results a channel": Layer((1, 8, 8, 8), group=8, bias="floats"),
    "a line": Layer((2, 32, 20), taps=(5,), pads=2, zero=17),
    "signed": Layer((1, 32, 9, 11), dtype=np.int8),
    "signed with a zero point": Layer((1, 18, 9, 11), dtype=np.int8, zero=-7, stride=2),
    "signed image": Layer((1, 3, 13, 15), taps=(7, 7), pads=3, dtype=np.int8, zero=127),
    "open sizes": Layer((2, 32, 9, 12), zero=77, open_sizes=True),
    "open image": Layer((2, 3, 9, 12), zero=77, open_sizes=True),
}


def model_of(layer: Layer) -> bytes:
    rng = np.random.default_rng(7)
    shape = (layer.outputs, layer.x[1] // layer.group, *layer.taps)
    scales = rng.uniform(0.01, 0.1, layer.outputs if layer.per_channel else ()).astype(np.float32)
    low, high = (-127, 128) if layer.weights_zero == 0 else (-60, 60)
    constants = {
        "xs": np.float32(0.02),
        "xz": layer.dtype(layer.zero),
        "w": rng.integers(low, high, shape).astype(np.int8),
        "ws": scales,
        "wz": np.full(scales.shape, layer.weights_zero, np.int8),
        "ys": np.float32(0.4),
        "yz": layer.dtype(100),
    }
    dequantized = [("x", "xs", "xz"), ("w", "ws", "wz")]
    own = np.broadcast_to(constants["xs"] * scales, (layer.outputs,)).astype(np.float32)
    if layer.bias in ("own", "other"):
        constants["b"] = rng.integers(-3000, 3000, layer.outputs).astype(np.int32)
        constants["bs"] = own if layer.bias == "own" else own * np.float32(1.5)
        dequantized.append(("b", "bs", ""))
    elif layer.bias == "floats":
        constants["bf"] = rng.standard_normal(layer.outputs).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", [*names], [f"{names[0]}f"], axis=0)
        for names in dequantized
    ]
    rank = len(layer.taps)
    attrs = {
        "pads": [layer.pads] * 2 * rank,
        "strides": [layer.stride] * rank,
        "dilations": [layer.dilation] * rank,
        "group": layer.group,
    }
    inputs = ["xf", "wf"] if layer.bias == "none" else ["xf", "wf", "bf"]
    nodes += [
        helper.make_node("Conv", inputs, ["c"], **attrs),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["y"]),
        helper.make_node("DequantizeLinear", ["y", "ys", "yz"], ["real"]),
        helper.make_node("MaxPool", ["real"], ["p"], kernel_shape=[2] * rank),
        helper.make_node("QuantizeLinear", ["p", "ys", "yz"], ["pooled"]),
    ]
    dims = ["n", layer.x[1], *"hw"[:rank]] if layer.open_sizes else layer.x
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(layer.dtype))
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", kind, dims)],
        [helper.make_tensor_value_info(name, kind, None) for name in ("y", "pooled")],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()],
    )
    opset = [helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def _reference(model: bytes, x: np.ndarray) -> list[np.ndarray]:
    """As the model states, in floats: what ONNX Runtime's own integers differ from is theirs."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options).run(None, {"x": x})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", LAYERS)
def test_convolutions_are_as_in_floats_within_a_quantum(name, target):
    layer = LAYERS[name]
    model = model_of(layer)
    x = np.random.default_rng(3).integers(0, 256, layer.x).astype(layer.dtype)
    artifact = compile_model(model, CompileOptions(target, threads=2, verify=False))
    results = artifact.run({"x": x})
    for actual, expected in zip(
        (results["y"], results["pooled"]), _reference(model, x), strict=True
    ):
        _quantum_apart(actual, expected)


def _quantum_apart(actual, expected):
    apart = np.abs(actual.astype(int) - expected.astype(int))
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= max(1, apart.size // 200)


ON_BOARDS = ("zero point", "stride", "dilated", "image", "odd channels", "few outputs", "signed")


@needs_qemu
@pytest.mark.parametrize(("target", "cpu"), [("rpi5", "neoverse-n1"), ("graviton3", "max,sve=off")])
@pytest.mark.parametrize("name", ON_BOARDS)
def test_convolutions_on_aarch64(name, target, cpu):
    """Convolutions of u8 with SDOT, and with USDOT, whose tensors keep their signedness."""
    layer = LAYERS[name]
    model, settings = model_of(layer), Settings(parse_target(target), threads=1)
    x = np.random.default_rng(3).integers(0, 256, layer.x).astype(layer.dtype)
    graph = import_model(model).graph
    results = run_graph_emulated(graph, {graph.inputs[0].name: x}, settings, cpu)
    for actual, expected in zip(results.values(), _reference(model, x), strict=True):
        _quantum_apart(actual, expected)


@pytest.mark.parametrize("name", LAYERS)
def test_products_are_integers_where_dot_products_take_them(name):
    layer = LAYERS[name]
    graph = import_model(model_of(layer)).graph
    result = integer_products(graph, SETTINGS)
    (convolution,) = (node for node in result.nodes if node.op == "Conv")
    assert (convolution.attr("accumulator") is not None) == layer.is_integer
    pool = result.producers()[result.outputs[1].name]
    assert pool.op == "MaxPool"
    assert pool.outputs[0].type.dtype.numpy == layer.dtype


@pytest.mark.parametrize("scale", [0.0, -0.5, np.inf, np.nan])
def test_a_scale_that_is_no_scale_leaves_the_product_in_floats(scale):
    model = onnx.load_from_string(model_of(Layer((1, 32, 8, 8))))
    (initializer,) = (tensor for tensor in model.graph.initializer if tensor.name == "xs")
    initializer.CopyFrom(numpy_helper.from_array(np.array(scale, np.float32), "xs"))
    graph = import_model(model.SerializeToString()).graph
    result = integer_products(graph, SETTINGS)
    (convolution,) = (node for node in result.nodes if node.op == "Conv")
    assert convolution.outputs[0].type.dtype is DType.F32


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize(("inner", "columns"), [(24, 10), (64, 33), (7, 5)])
def test_matrix_products(inner, columns, transposed, target):
    rng = np.random.default_rng(5)
    shape = (columns, inner) if transposed else (inner, columns)
    constants = {
        "xs": np.float32(0.02),
        "xz": np.uint8(120),
        "w": rng.integers(-127, 128, shape).astype(np.int8),
        "ws": rng.uniform(0.01, 0.1, columns).astype(np.float32),
        "b": rng.standard_normal(columns).astype(np.float32),
        "ys": np.float32(0.3),
        "yz": np.uint8(100),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["wf"], axis=1 - transposed),
        helper.make_node("Gemm", ["xf", "wf", "b"], ["p"], transB=transposed),
        helper.make_node("QuantizeLinear", ["p", "ys", "yz"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [6, inner])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()],
    )
    opset = [helper.make_opsetid("", 19)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    x = rng.integers(0, 256, (6, inner)).astype(np.uint8)
    actual = compile_model(model, CompileOptions(target, threads=1, verify=False)).run({"x": x})[
        "y"
    ]
    (expected,) = _reference(model, x)
    assert np.abs(actual.astype(int) - expected.astype(int)).max() <= 1


def test_no_division_is_left_where_sums_are_scaled():
    """The scale of the result joins that of the product."""
    graph = import_model(model_of(LAYERS["blocks"])).graph
    result = integer_products(graph, SETTINGS)
    constants = {constant.value.name: constant.data for constant in result.constants}
    (quantized,) = (node for node in result.nodes if node.op == "QuantizeLinear")
    assert constants[quantized.inputs[1].name] == 1


_MOVERS = {
    "DepthToSpace": ([], {"blocksize": 2}),
    "Expand": ([np.array([3, 4, 6, 6])], {}),
    "Gather": ([np.array([2, 0])], {"axis": 1}),
    "Resize": ([np.zeros(0, np.float32), np.array([1, 1, 2, 1.5], np.float32)], {}),
    "Slice": ([np.array([1]), np.array([5]), np.array([2])], {}),
    "Tile": ([np.array([1, 1, 2, 1])], {}),
}


@pytest.mark.parametrize("zero", [128, 3])
@pytest.mark.parametrize("op", [*_MOVERS, "Concat"])
def test_what_moves_elements_moves_integers(op, zero):
    operands, attributes = _MOVERS.get(op, ([], {"axis": 1}))
    count = 2 if op == "Concat" else 1
    constants = {f"c{at}": operand for at, operand in enumerate(operands)}
    constants |= {"s": np.array(0.1, np.float32), "z": np.array(zero, np.uint8)}
    named = [f"x{at}" for at in range(count)]
    nodes = [helper.make_node("DequantizeLinear", [x, "s", "z"], [f"{x}_real"]) for x in named]
    operand_names = [*(f"{x}_real" for x in named), *(f"c{at}" for at in range(len(operands)))]
    nodes.append(helper.make_node(op, operand_names, ["moved"], **attributes))
    nodes.append(helper.make_node("QuantizeLinear", ["moved", "s", "z"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(x, TensorProto.UINT8, [1, 4, 6, 6]) for x in named],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opset = [helper.make_opsetid("", 19)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    before = import_model(model).graph
    after = eliminate_dead_code(integer_products(before, SETTINGS))
    verify(after)
    assert [node.op for node in after.nodes] == [op]
    rng = np.random.default_rng(0)
    inputs = {
        value.name: rng.integers(0, 256, value.type.shape).astype(np.uint8)
        for value in before.inputs
    }
    (wanted,), (actual,) = (run_graph(version, inputs).values() for version in (before, after))
    np.testing.assert_array_equal(actual, wanted)


def test_a_concatenation_of_unlike_scales_stays():
    net = {"s0": np.array(0.1, np.float32), "s1": np.array(0.2, np.float32)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s0"], ["a"]),
        helper.make_node("DequantizeLinear", ["x", "s1"], ["b"]),
        helper.make_node("Concat", ["a", "b"], ["c"], axis=0),
        helper.make_node("QuantizeLinear", ["c", "s0"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [4, 3])],
        [numpy_helper.from_array(array, name) for name, array in net.items()],
    )
    opset = [helper.make_opsetid("", 19)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    result = integer_products(import_model(model).graph, SETTINGS)
    assert "QuantizeLinear" in [node.op for node in result.nodes]
