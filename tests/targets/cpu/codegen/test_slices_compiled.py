"""Contractions whose long sums are taken in slices, compiled, on two threads, against f64."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, Layout, TensorType
from farrier.lower.program import to_program
from farrier.ops import run_graph
from farrier.targets import host
from farrier.targets.cpu.rules import register_tile
from tests.lowering import final_loops
from tests.targets.cpu.codegen.differential import run_compiled


def convolution(inputs, height, width, outputs, kernel, stride):
    """Bias and Relu included; images in blocks, the input's padding in memory."""
    lanes, pad = host().lanes, kernel // 2
    around = ((0, 0), (0, 0), (pad, pad), (pad, pad))
    within, blocks = Layout.blocked(4, 1, lanes, around if pad else ()), Layout.blocked(4, 1, lanes)

    def value(name, *shape, layout=None):
        return Value(name, TensorType(DType.F32, shape, layout))

    out = [(extent + 2 * pad - kernel) // stride + 1 for extent in (height, width)]
    x = value("x", 1, inputs, height, width, layout=within)
    w, b = value("w", outputs, inputs, kernel, kernel), value("b", outputs)
    y, z = (value(name, 1, outputs, *out, layout=blocks) for name in ("y", "z"))
    attrs = attributes(
        kernel_shape=(kernel, kernel),
        strides=(stride, stride),
        dilations=(1, 1),
        pads=(pad,) * 4,
        group=1,
    )
    nodes = (Node("Conv", (x, w, b), (y,), attrs), Node("Relu", (y,), (z,)))
    return Graph("region", (x, w, b), (), nodes, (z,))


@settings(max_examples=12, deadline=None)
@given(
    inputs=st.sampled_from([128, 256, 512, 1024]),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    outputs=st.integers(8, 70),
    kernel=st.sampled_from([1, 3]),
    stride=st.sampled_from([1, 2]),
    pick=st.integers(0, 1 << 30),
)
def test_slices_of_a_convolution(inputs, height, width, outputs, kernel, stride, pick):
    graph = convolution(inputs, height, width, outputs, kernel, stride)
    space = register_tile.space(to_program(graph, "kernel", {"w", "b"}), host(), 2)
    assume(space is not None)
    candidates = space.candidates()
    sliced = candidates[space.columns(candidates)["slices"] > 1]
    assume(len(sliced))
    function = final_loops(space, space.decisions(sliced[pick % len(sliced)]))
    rng = np.random.default_rng(pick)
    arrays = {
        v.name: rng.standard_normal(v.type.static_shape).astype(np.float32) for v in graph.inputs
    }
    (got,) = run_compiled(function, arrays, threads=2).values()
    (wanted,) = run_graph(graph, arrays, wide=True).values()
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
