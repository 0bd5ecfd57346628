"""Transposed convolutions whose windows overlap become convolutions of the output's phases."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from graph_tools import SETTINGS, NetworkBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from farrier.ops import run_graph
from farrier.ops.operator import Mismatch
from farrier.ops.verify import verify
from farrier.options import CompileOptions
from farrier.passes import run_passes
from farrier.pipeline import compile_model


@st.composite
def attributes_of_nodes(draw):
    """The extents of x, channels, and the attributes of a ConvTranspose of 1 to 3 axes."""
    rank = draw(st.integers(1, 3))

    def each(strategy):
        return tuple(draw(strategy) for _ in range(rank))

    kernel, strides = each(st.integers(1, 5)), each(st.integers(1, 3))
    return {
        "extents": each(st.integers(1, 5)),
        "group": draw(st.sampled_from((1, 1, 2))),
        "kernel": kernel,
        "strides": strides,
        "dilations": each(st.sampled_from((1, 1, 2))),
        "pads": tuple(draw(st.integers(0, 3)) for _ in range(2 * rank)),
        "output_padding": tuple(draw(st.integers(0, stride - 1)) for stride in strides),
    }


def graph_of(extents, kernel, group, **attrs):
    builder = NetworkBuilder(0)
    x = builder.input(2, 4, *extents)
    w = builder.weight(4, 3, *kernel)
    y = builder.add("ConvTranspose", x, w, builder.weight(3 * group), group=group, **attrs)
    return builder.graph(y)


@given(attributes_of_nodes())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_node_computes_the_same(drawn):
    """With an infinity in x as well: a phase reads no element that the node does not read."""
    try:
        graph = graph_of(**drawn)
    except Mismatch:  # The pads leave nothing of the output.
        return
    result = run_passes(graph, ["recast-convolutions"], SETTINGS)
    verify(result)
    x = np.random.default_rng(0).standard_normal((2, 4, *drawn["extents"]))
    x[(0, 0, *(extent // 2 for extent in drawn["extents"]))] = np.inf
    (name,) = (value.name for value in graph.inputs)
    with np.errstate(invalid="ignore"):
        ((_, expected),) = run_graph(graph, {name: x.astype(np.float32)}).items()
        ((_, actual),) = run_graph(result, {name: x.astype(np.float32)}).items()
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "strides", "convolutions"),
    [
        ((4, 4), (2, 2), 1),  # Every phase has two taps an axis.
        ((3, 3), (2, 2), 4),  # A phase has two taps or one.
        ((16,), (8,), 1),
        ((3, 3), (1, 1), 1),
        ((5, 4), (2, 2), 2),
    ],
)
def test_phases_of_equally_many_taps_share_a_convolution(kernel, strides, convolutions):
    graph = graph_of((6,) * len(kernel), kernel, 1, strides=strides)
    ops = [node.op for node in run_passes(graph, ["recast-convolutions"], SETTINGS).nodes]
    assert ops.count("Conv") == convolutions
    assert "ConvTranspose" not in ops
    assert ("PhasesToSpace" in ops) == (max(strides) > 1)


@pytest.mark.parametrize("is_open", [False, True])
def test_compiled_decoders_do_as_onnx_runtime(is_open):
    """Blocked channels, few channels, lines, groups, fused activations, sizes left open."""
    rng = np.random.default_rng(0)
    layers = [
        ("x", "a", (16, 32, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("a", "b", (32, 16, 3, 3), {"strides": [2, 2], "output_padding": [1, 1]}),
        ("b", "c", (16, 1, 4, 4), {"strides": [2, 2], "group": 16}),
        ("c", "image", (16, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
        ("z", "line", (16, 8, 16), {"strides": [8], "pads": [4, 4]}),
    ]
    nodes, weights = [], []
    for source, result, shape, attrs in layers:
        weights.append(onnx.numpy_helper.from_array(f32(rng, *shape), f"w_{result}"))
        nodes += [
            helper.make_node("ConvTranspose", [source, f"w_{result}"], [f"t_{result}"], **attrs),
            helper.make_node("LeakyRelu", [f"t_{result}"], [result], alpha=0.2),
        ]
    shapes = {"x": ["n", 16, "h", "w"], "z": ["n", 16, "l"]} if is_open else {}
    arrays = {"x": f32(rng, 1, 16, 5, 7), "z": f32(rng, 1, 16, 9)}
    graph = helper.make_graph(
        nodes,
        "decoders",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes.get(name, array.shape))
            for name, array in arrays.items()
        ],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, None) for y in ("image", "line")],
        weights,
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    artifact = compile_model(model, CompileOptions(threads=2, verify=False))
    expected = onnxruntime.InferenceSession(model).run(["image", "line"], arrays)
    outputs = artifact.run(arrays)
    for name, array in zip(("image", "line"), expected, strict=True):
        assert_close(outputs[name], array)


def f32(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def assert_close(actual, expected):
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max()
