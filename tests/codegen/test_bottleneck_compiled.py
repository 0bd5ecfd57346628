"""Compiled inverted bottlenecks on two threads, against the operators one by one in f64."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, Layout, TensorType
from farrier.lower.program import to_program
from farrier.ops import lookup
from farrier.space.rules import for_program
from farrier.target import host
from tests.codegen.differential import run_compiled


def bottleneck(shape, expanded, kernel, stride, pads, projected, residual):
    """Expand, Sigmoid, filter, Relu and, where `projected` is not 0, project; images in blocks."""
    blocks = Layout.blocked(4, 1, host().lanes)
    within = Layout.blocked(4, 1, host().lanes, ((0, 0), (0, 0), (1, 1), (1, 1)))
    batch, channels, *extents = shape
    out = [
        (extent + pads[axis] + pads[axis + 2] - kernel) // stride + 1
        for axis, extent in enumerate(extents)
    ]
    inputs, nodes = [], []

    def value(name, *extents, layout=None):
        inputs.append(Value(name, TensorType(DType.F32, extents, layout)))
        return inputs[-1]

    def node(op, *operands, shape, layout=blocks, **attrs):
        made = Value(f"v{len(nodes)}", TensorType(DType.F32, tuple(shape), layout))
        nodes.append(Node(op, operands, (made,), attributes(**attrs)))
        return made

    x = value("x", *shape, layout=within)
    e, be = value("e", expanded, channels, 1, 1), value("be", expanded)
    f, bf = value("f", expanded, 1, kernel, kernel), value("bf", expanded)
    last = node("Conv", x, e, be, shape=(batch, expanded, *extents))
    last = node("Sigmoid", last, shape=last.type.shape)
    window = {"strides": (stride, stride), "pads": tuple(pads), "group": expanded}
    last = node("Conv", last, f, bf, shape=(batch, expanded, *out), **window)
    last = node("Relu", last, shape=last.type.shape, layout=blocks if projected else within)
    if projected:
        p, bp = value("p", projected, expanded, 1, 1), value("bp", projected)
        last = node("Conv", last, p, bp, shape=(batch, projected, *out))
    if projected and residual:
        r = value("r", batch, projected, *out, layout=within)
        last = node("Add", last, r, shape=last.type.shape, layout=within)
    return Graph("region", tuple(inputs), (), tuple(nodes), (last,))


def reference(graph, arrays):
    values = {name: array.astype(np.float64) for name, array in arrays.items()}
    for node in graph.nodes:
        operands = [values[v.name] for v in node.inputs]
        (values[node.outputs[0].name],) = lookup(node.op).reference(operands, dict(node.attrs))
    return values[graph.outputs[0].name]


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 2),
    channels=st.sampled_from((3, 16, 24)),
    extents=st.tuples(st.integers(1, 15), st.integers(1, 15)),
    expanded=st.sampled_from((16, 20, 48, 96)),
    kernel=st.sampled_from((3, 5)),
    stride=st.integers(1, 2),
    pads=st.tuples(*[st.integers(1, 2)] * 4),
    projected=st.sampled_from((0, 8, 24, 40)),
    residual=st.booleans(),
    pick=st.none() | st.integers(0, 100_000),
)
def test_random_blocks(
    batch, channels, extents, expanded, kernel, stride, pads, projected, residual, pick
):
    height, width = (max(extent, kernel - 2) for extent in extents)
    shape = (batch, channels, height, width)
    graph = bottleneck(shape, expanded, kernel, stride, pads, projected, residual)
    rng = np.random.default_rng(0)
    arrays = {
        v.name: rng.standard_normal(v.type.static_shape).astype(np.float32) for v in graph.inputs
    }
    constants = [v.name for v in graph.inputs if v.name not in ("x", "r")]
    space = for_program(to_program(graph, "kernel", constants), host(), 2)
    assert space.rule_name == "bottleneck"
    candidates = space.candidates()
    chosen = (
        space.default() if pick is None else space.decisions(candidates[pick % len(candidates)])
    )
    (found,) = run_compiled(space.build(chosen), arrays, threads=2).values()
    expected = reference(graph, arrays)
    assert np.abs(found - expected).max() < 1e-5 * max(np.abs(expected).max(), 1)
