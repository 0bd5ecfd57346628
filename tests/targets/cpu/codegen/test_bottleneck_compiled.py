"""Compiled inverted bottlenecks on two threads, against the operators one by one in f64."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from farrier.ir.dim import dim
from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, Layout, TensorType
from farrier.lower.program import to_program
from farrier.ops import run_graph
from farrier.targets import host
from farrier.targets.cpu.codegen.emit import emit_function
from farrier.targets.cpu.rules import for_program
from tests.ir.bind import at_sizes
from tests.lowering import final_loops
from tests.targets.cpu.codegen.differential import Compiled, run_compiled

F32, BF16 = DType.F32, DType.BF16


def bottleneck(shape, expanded, kernel, stride, pads, projected, residual, images=F32, first=None):
    """Expand, Sigmoid, filter, Relu and, where `projected` is not 0, project; images in blocks.
    Where they are in bf16, so are the weights of the pointwise convolutions. `first`: windows, as
    (kernel, stride, pads), of a plain image expand it."""
    blocks = Layout.blocked(4, 1, host().lanes)
    within = Layout.blocked(4, 1, host().lanes, ((0, 0), (0, 0), (1, 1), (1, 1)))
    batch, channels, *extents = shape
    size, step, around = first or (1, 1, (0, 0, 0, 0))
    extents = [
        (extent + around[axis] + around[axis + 2] - size) // step + 1
        for axis, extent in enumerate(extents)
    ]
    out = [
        (extent + pads[axis] + pads[axis + 2] - kernel) // stride + 1
        for axis, extent in enumerate(extents)
    ]
    inputs, nodes = [], []

    def value(name, *extents, layout=None, dtype=F32):
        inputs.append(Value(name, TensorType(dtype, extents, layout)))
        return inputs[-1]

    def node(op, *operands, shape, layout=blocks, dtype=F32, **attrs):
        output = Value(f"v{len(nodes)}", TensorType(dtype, tuple(shape), layout))
        nodes.append(Node(op, operands, (output,), attributes(**attrs)))
        return output

    def converted(x, dtype, layout=blocks):
        if x.type.dtype is dtype:
            return x
        return node("Cast", x, shape=x.type.shape, dtype=dtype, layout=layout, to=dtype.value)

    x = value("x", *shape, layout=None if first else within, dtype=images)
    e, be = value("e", expanded, channels, size, size, dtype=images), value("be", expanded)
    f, bf = value("f", expanded, 1, kernel, kernel), value("bf", expanded)
    if projected and residual:
        r = value("r", batch, projected, *out, layout=within, dtype=images)
        r = converted(r, F32)  # It is converted first, though it is read last.
    window = {"strides": (step, step), "pads": tuple(around), "accumulator": "f32"}
    last = node("Conv", x, e, be, shape=(batch, expanded, *extents), **window)
    last = node("Sigmoid", last, shape=last.type.shape)
    window = {"strides": (stride, stride), "pads": tuple(pads), "group": expanded}
    last = node("Conv", last, f, bf, shape=(batch, expanded, *out), **window)
    last = node("Relu", last, shape=last.type.shape, layout=blocks if projected else within)
    if projected:
        p, bp = value("p", projected, expanded, 1, 1, dtype=images), value("bp", projected)
        last = converted(last, images)
        last = node("Conv", last, p, bp, shape=(batch, projected, *out), accumulator="f32")
    if projected and residual:
        last = node("Add", last, r, shape=last.type.shape, layout=within)
    last = converted(last, images, within)
    return Graph("region", tuple(inputs), (), tuple(nodes), (last,))


def reference(graph, arrays):
    """The operators one by one: f32 as f64, bf16 rounded."""
    (actual,) = run_graph(graph, arrays, wide=True).values()
    return actual.astype(np.float64)


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
    images=st.sampled_from((F32, BF16) if "avx512_bf16" in host().features else (F32,)),
    pick=st.none() | st.integers(0, 100_000),
)
def test_random_blocks(
    batch, channels, extents, expanded, kernel, stride, pads, projected, residual, images, pick
):
    height, width = (max(extent, kernel - 2) for extent in extents)
    shape = (batch, channels, height, width)
    graph = bottleneck(shape, expanded, kernel, stride, pads, projected, residual, images)
    rng = np.random.default_rng(0)
    arrays = {
        v.name: rng.standard_normal(v.type.static_shape).astype(v.type.dtype.numpy)
        for v in graph.inputs
    }
    constants = [v.name for v in graph.inputs if v.name not in ("x", "r")]
    space = for_program(to_program(graph, "kernel", constants), host(), 2)
    assert space.rule.name == "bottleneck"
    candidates = space.candidates()
    chosen = (
        space.default() if pick is None else space.decisions(candidates[pick % len(candidates)])
    )
    function = final_loops(space, chosen)
    has_pairs = channels % 2 == 0 or projected > 0
    assert ("dpbf16ps" in emit_function(function, host())) == (images is BF16 and has_pairs)
    (actual,) = run_compiled(function, arrays, threads=2).values()
    expected = reference(graph, arrays)
    # What lies between two bf16 may be rounded to either, the filtered image and the result.
    allowed = 1e-5 if images is F32 else 2**-7
    assert np.abs(actual.astype(np.float64) - expected).max() < allowed * max(
        np.abs(expected).max(), 1
    )


@settings(max_examples=25, deadline=None)
@given(
    channels=st.sampled_from((1, 3)),
    extents=st.tuples(st.integers(7, 29), st.integers(7, 29)),
    expanded=st.sampled_from((16, 20, 32)),
    first=st.tuples(st.integers(2, 4), st.integers(1, 2), st.tuples(*[st.integers(0, 2)] * 4)),
    stride=st.integers(1, 2),
    projected=st.sampled_from((0, 16, 24)),
    pick=st.none() | st.integers(0, 100_000),
)
def test_windows_of_a_plain_image_may_come_first(
    channels, extents, expanded, first, stride, projected, pick
):
    shape, pads = (1, channels, *extents), (1, 1, 1, 1)
    graph = bottleneck(shape, expanded, 3, stride, pads, projected, False, F32, first)
    rng = np.random.default_rng(0)
    arrays = {
        v.name: rng.standard_normal(v.type.static_shape).astype(np.float32) for v in graph.inputs
    }
    constants = [v.name for v in graph.inputs if v.name != "x"]
    space = for_program(to_program(graph, "kernel", constants), host(), 2)
    assert space.rule.name == "bottleneck"
    candidates = space.candidates()
    chosen = (
        space.default() if pick is None else space.decisions(candidates[pick % len(candidates)])
    )
    (actual,) = run_compiled(final_loops(space, chosen), arrays, threads=2).values()
    expected = reference(graph, arrays)
    assert np.abs(actual.astype(np.float64) - expected).max() < 1e-5 * max(
        np.abs(expected).max(), 1
    )


@settings(max_examples=3, deadline=None)
@given(
    expanded=st.sampled_from((16, 40)),
    stride=st.integers(1, 2),
    typical=st.sampled_from((1, 6, 20)),
    projected=st.sampled_from((0, 24)),
    residual=st.booleans(),
    first=st.sampled_from((None, (3, 2, (1, 1, 1, 1)))),
    pick=st.none() | st.integers(0, 100_000),
    data=st.data(),
)
def test_one_kernel_for_every_size(
    expanded, stride, typical, projected, residual, first, pick, data
):
    """Batch, height and width open: images of few points, of few lines, larger than typical."""
    # Otherwise what the windows read around it depends on sizes.
    step = stride * (2 if first else 1)
    batch, spatial = dim("n", 1, 2, 1), [dim(name, 1, 23, typical) * step for name in ("h", "w")]
    shape = (batch, 3, *spatial)
    graph = bottleneck(shape, expanded, 3, stride, (1, 1, 1, 1), projected, residual, F32, first)
    constants = [v.name for v in graph.inputs if v.name not in ("x", "r")]
    space = for_program(to_program(graph, "kernel", constants), host(), 2)
    assert space.rule.name == "bottleneck"
    candidates = space.candidates()
    chosen = (
        space.default() if pick is None else space.decisions(candidates[pick % len(candidates)])
    )
    rng = np.random.default_rng(0)
    sizes = st.tuples(st.integers(1, 2), st.integers(1, 23), st.integers(1, 23))
    with Compiled(final_loops(space, chosen), threads=2) as kernel:
        for given_sizes in [(1, 1, 1), (2, 23, 1), *data.draw(st.lists(sizes, max_size=3))]:
            values = dict(zip("nhw", given_sizes, strict=True))
            fixed = at_sizes(graph, values)
            arrays = {
                v.name: rng.standard_normal(v.type.static_shape).astype(np.float32)
                for v in fixed.inputs
            }
            bound = {symbol: values[symbol.name] for symbol in kernel.function.dims}
            (actual,) = kernel(arrays, bound).values()
            expected = reference(fixed, arrays)
            assert actual.shape == expected.shape
            assert np.abs(actual - expected).max() < 1e-5 * max(np.abs(expected).max(), 1)
