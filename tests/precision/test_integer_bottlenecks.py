"""Inverted bottlenecks of bytes: one kernel, whose results are those of three."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier.ir.types import DType
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.targets import host

HAS_DOT = host().dot_of(DType.U8, DType.I8, DType.I32) is not None
HAS_TILES = host().unit_of(DType.U8, DType.I8) is not None
pytestmark = pytest.mark.skipif(
    not HAS_DOT or HAS_TILES, reason="no dot product of bytes, or products of tiles"
)
INNER = ("expanded", "filtered")


def block(size, channels, expanded, outputs, *, stride=1, residual=False, returned=()):
    """A quantized inverted bottleneck of images [1, channels, *size], in u8 and i8; the images
    `returned` are outputs as well."""
    rng = np.random.default_rng(expanded)
    shapes = {"e": (expanded, channels, 1, 1), "f": (expanded, 1, 3, 3)}
    shapes["p"] = (outputs, expanded, 1, 1)
    constants = {"z": np.uint8(0), "mid": np.uint8(120), "half": np.float32(0.02)}
    constants |= {"low": np.float32(0), "high": np.float32(6), "sixth": np.float32(6 / 255)}
    nodes = [helper.make_node("DequantizeLinear", ["x", "half", "mid"], ["xf"])]

    def quantized(value, scale, zero, name):
        names = [scale, zero]
        nodes.append(helper.make_node("QuantizeLinear", [value, *names], [name]))
        nodes.append(helper.make_node("DequantizeLinear", [name, *names], [f"{name}_f"]))
        return f"{name}_f"

    def convolved(value, weights, **attrs):
        constants[weights] = rng.integers(-127, 128, shapes[weights]).astype(np.int8)
        scale = rng.uniform(0.5, 1.5, shapes[weights][0]) / np.sqrt(np.prod(shapes[weights][1:]))
        constants[f"{weights}_s"] = (scale / 60).astype(np.float32)
        constants[f"{weights}_z"] = np.zeros(shapes[weights][0], np.int8)
        names = [weights, f"{weights}_s", f"{weights}_z"]
        nodes.append(helper.make_node("DequantizeLinear", names, [f"{weights}_f"], axis=0))
        nodes.append(helper.make_node("Conv", [value, f"{weights}_f"], [f"{weights}_y"], **attrs))
        return f"{weights}_y"

    def clipped(value):
        nodes.append(helper.make_node("Clip", [value, "low", "high"], [f"{value}_c"]))
        return f"{value}_c"

    value = quantized(clipped(convolved("xf", "e")), "sixth", "z", "expanded")
    window = {"pads": [1] * 4, "strides": [stride] * 2, "group": expanded}
    value = quantized(clipped(convolved(value, "f", **window)), "sixth", "z", "filtered")
    value = convolved(value, "p")
    if residual:
        value = quantized(value, "half", "mid", "projected")
        nodes.append(helper.make_node("Add", [value, "xf"], ["sum"]))
        value = "sum"
    quantized(value, "half", "mid", "y")
    outputs = [helper.make_tensor_value_info(n, TensorProto.UINT8, None) for n in ("y", *returned)]
    declared = [helper.make_tensor_value_info("x", TensorProto.UINT8, (1, channels, *size))]
    initializers = [
        numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()
    ]
    graph = helper.make_graph(nodes, "block", declared, outputs, initializers)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize(
    "shape",
    [
        {"size": (56, 56), "channels": 24, "expanded": 144, "outputs": 24, "residual": True},
        {"size": (56, 48), "channels": 16, "expanded": 96, "outputs": 24, "stride": 2},
        {"size": (40, 37), "channels": 32, "expanded": 208, "outputs": 40},
    ],
    ids=["residual", "stride", "odd"],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_one_kernel_gives_what_three_do(shape, threads):
    options = CompileOptions(threads=threads, verify=False)
    whole = compile_model(block(**shape), options)
    apart = compile_model(block(**shape, returned=INNER), options)
    rules = [[kernel.rule for kernel in artifact.manifest.kernels] for artifact in (whole, apart)]
    assert ["bottleneck" in rules_of for rules_of in rules] == [True, False]
    size = (1, shape["channels"], *shape["size"])
    x = np.random.default_rng(3).integers(0, 256, size).astype(np.uint8)
    rules_of, expected = (artifact.run({"x": x})["y"] for artifact in (whole, apart))
    assert len(np.unique(expected)) > 100
    np.testing.assert_array_equal(rules_of, expected)
