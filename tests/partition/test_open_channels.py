"""Kernels that differ in channel counts alone are one, and calls say the counts."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from farrier.frontends.onnx.importer import import_model
from farrier.ir.dim import evaluate, substitute, symbols
from farrier.ir.graph import Constant
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.sizes import with_extents
from farrier.ops import run_graph
from farrier.ops.verify import verify
from farrier.partition import extract_tasks
from farrier.passes import Settings, finish, prepare
from farrier.targets.x86 import X86Target

TARGET = X86Target(
    "x86_64-unknown-linux-gnu", "x86-64-v4", (), 512, 32, 2, 32 << 10, 1 << 20, 1 << 24
)
SETTINGS = Settings(TARGET, 2)


def network(blocks, scales=()):
    """Layers of (kind, output channels), each with a ReLU or a learned scale and offset."""
    rng = np.random.default_rng(0)
    nodes, weights, channels, last = [], {}, 16, "x"
    for number, (kind, wanted) in enumerate(blocks):
        group, taps = (channels, 3) if kind == "depthwise" else (1, 3 if kind == "window" else 1)
        outputs = channels if group > 1 else wanted
        w, b, c, y = (f"{name}{number}" for name in "wbcy")
        weights[w] = rng.standard_normal((outputs, channels // group, taps, taps)) * 0.2
        weights[b] = rng.standard_normal(outputs)
        pads = [taps // 2] * 4
        nodes.append(helper.make_node("Conv", [last, w, b], [c], group=group, pads=pads))
        if scales:
            for name, value in zip("so", scales[number % len(scales)], strict=True):
                weights[f"{name}{number}"] = np.array([value])
            nodes.append(helper.make_node("Mul", [c, f"s{number}"], [f"m{number}"]))
            nodes.append(helper.make_node("Add", [f"m{number}", f"o{number}"], [y]))
        else:
            nodes.append(helper.make_node("Relu", [c], [y]))
        channels, last = outputs, y
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16, "h", "w"])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["batch", channels, "h", "w"])],
        [onnx.numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def optimized(model, shapes=None):
    graph = import_model(model, shapes or {}).graph
    return finish(prepare(graph, SETTINGS), SETTINGS)


def at_dims(region, dims):
    """A region with numbers for its dims."""
    values = dict(zip(region.given_dims, dims, strict=True))
    return with_extents(region, lambda extent: substitute(extent, values))


def run(tasks, program, image):
    """The program's outputs, by running the region of each call at the sizes that it says."""
    arrays = {constant.value.name: constant.data for constant in program.constants}
    (x,) = program.inputs
    arrays[x.name] = image
    sizes = dict(zip((s.name for s in symbols(x.type.shape)), image[:, 0].shape, strict=True))
    for call in program.calls:
        region = at_dims(tasks[call.task].region, [evaluate(extent, sizes) for extent in call.dims])
        verify(region)
        operands = (arrays[value.name] for value in call.inputs)
        names = (value.name for value in region.inputs)
        results = run_graph(region, dict(zip(names, operands, strict=True)))
        arrays |= {v.name: r for v, r in zip(call.outputs, results.values(), strict=True)}
    return [arrays[program.home(value).name] for value in program.outputs]


def image():
    return np.random.default_rng(1).standard_normal((2, 16, 7, 5)).astype(np.float32)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["point", "window", "depthwise"]),
            st.sampled_from([8, 16, 20, 32, 48, 64, 80, 96, 112]),
        ),
        min_size=2,
        max_size=7,
    ),
    st.sampled_from([(), ((0.5, 1.0), (2.0, 1.0), (0.25, -3.0))]),
)
def test_joined_kernels_compute_what_each_did(blocks, scales):
    graph = optimized(network(blocks, scales))
    tasks, program = extract_tasks(graph)
    joined, instead = extract_tasks(graph, share_channels=True)
    assert len(joined) <= len(tasks)
    assert [call.outputs for call in program.calls] == [call.outputs for call in instead.calls]
    for task in joined.values():
        verify(task.region)
        assert parse_ir(print_ir(task.region)) == task.region
        assert {call.task for call in instead.calls} >= {task.key}
    expected = run(tasks, program, image())
    for left, right in zip(run(joined, instead, image()), expected, strict=True):
        np.testing.assert_array_equal(left, right)


@given(st.permutations([32, 64, 96, 128]))
def test_counts_in_any_order_are_one_kernel(counts):
    graph = optimized(network([("point", count) for count in counts]))
    tasks, program = extract_tasks(graph, share_channels=True)
    calls = [call for call in program.calls if "conv" in tasks[call.task].name]
    ((region, *_),) = {(tasks[call.task].region,) for call in calls}
    (channels,) = symbols([region.outputs[0].type.shape[1]])
    at = region.given_dims.index(channels)
    assert [32 * call.dims[at] for call in calls] == counts
    assert (channels.low, channels.high) == (1, 4)


@pytest.mark.parametrize(
    ("counts", "kernels"),
    [
        ((32, 64, 96), 1),  # Whole panels of two vectors.
        ((48, 144, 240), 1),  # Panels of three.
        ((96, 48, 144, 32), 2),  # Panels of two or of three: no panel is both.
        ((80, 112, 16), 1),  # Panels of one.
        ((32, 80), 1),  # No other count shares a kernel with either.
        ((32, 64, 80), 2),
        ((24, 40), 2),  # No whole panels.
    ],
)
def test_vectors_stay_whole(counts, kernels):
    """From 512 channels, each in a branch of its own."""
    text = "\n".join(
        f"""    def k{n}(x: f32[s0, 512], w: f32[512, {n}]):
        y: f32[s0, {n}] = MatMul(x, w)
        return y
    y{n}: f32[s0, {n}] = Fused[k{n}](x, w{n})"""
        for n in counts
    )
    weights = ", ".join(f"w{n}: f32[512, {n}]" for n in counts)
    graph = parse_ir(
        f"@graph(s0=dim(1, 64, 8))\ndef g(x: f32[s0, 512], {weights}):\n{text}\n"
        f"    return {', '.join(f'y{n}' for n in counts)}\n"
    )
    constant = graph_with_constants(graph, counts)
    assert len(extract_tasks(constant)[0]) == len(counts)
    assert len(extract_tasks(constant, share_channels=True)[0]) == kernels


def graph_with_constants(graph, counts):
    """The graph with its weights as constants."""
    weights = {f"w{n}": np.full((512, n), n, np.float32) for n in counts}
    return dataclasses.replace(
        graph,
        inputs=tuple(value for value in graph.inputs if value.name not in weights),
        constants=tuple(
            Constant(value, weights[value.name]) for value in graph.inputs if value.name in weights
        ),
    )


def test_numbers_stay_where_one_kernel_has_them():
    graph = optimized(network([("point", 64), ("window", 64)]))
    alone, _ = extract_tasks(graph)
    shared, program = extract_tasks(graph, share_channels=True)
    assert shared.keys() == alone.keys()
    assert all(len(call.dims) == 3 for call in program.calls)


def test_a_kernel_without_open_dims_keeps_its_counts():
    """Nothing but other sizes of the model makes a kernel general."""
    shapes = {"x": (1, 16, 9, 9)}
    graph = optimized(network([("point", 32), ("point", 64), ("point", 96)]), shapes)
    tasks, program = extract_tasks(graph, share_channels=True)
    assert tasks.keys() == extract_tasks(graph)[0].keys()
    assert not any(call.dims for call in program.calls)


def test_images_of_several_multiples_of_a_size_are_alike():
    graph = parse_ir(
        """@graph(s0=dim(1, 64, 1), s1=dim(1, 64, 7))
def g(x: f32[s0, 512, 4*s1, 4*s1], y: f32[s0, 512, s1, s1], a: f32[32, 512, 1, 1], b: f32[64, 512, 1, 1]):
    def one(x: f32[s0, 512, 4*s1, 4*s1], w: f32[32, 512, 1, 1]):
        c: f32[s0, 32, 4*s1, 4*s1] = Conv(x, w)
        return c
    c: f32[s0, 32, 4*s1, 4*s1] = Fused[one](x, a)
    def two(y: f32[s0, 512, s1, s1], w: f32[64, 512, 1, 1]):
        d: f32[s0, 64, s1, s1] = Conv(y, w)
        return d
    d: f32[s0, 64, s1, s1] = Fused[two](y, b)
    return c, d
"""  # noqa: E501
    )
    weights = {"a": (32, 512, 1, 1), "b": (64, 512, 1, 1)}
    constant = dataclasses.replace(
        graph,
        inputs=graph.inputs[:2],
        constants=tuple(
            Constant(value, np.zeros(weights[value.name], np.float32)) for value in graph.inputs[2:]
        ),
    )
    tasks, program = extract_tasks(constant, share_channels=True)
    (task,) = tasks.values()
    call_dims = [
        dict(zip(task.region.given_dims, call.dims, strict=True)) for call in program.calls
    ]
    lines = task.region.inputs[0].type.shape[2]
    (dim,) = symbols([lines])
    assert [str(dims[dim]) for dims in call_dims] == ["4*s1", "s1"]
    assert (dim.low, dim.high, dim.typical) == (1, 256, 7)
