"""Compiled Winograd kernels against the direct sum in f64, on two threads: values and errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farrier.ir.dim import dim
from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, Layout, TensorType
from farrier.lower.program import to_program
from farrier.ops import lookup, run_graph
from farrier.ops.filtering import ERRORS, FILTERINGS, Filtering
from farrier.ops.winograd import transformed
from farrier.targets import host
from farrier.targets.cpu.codegen.emit import emit_function
from farrier.targets.cpu.rules import for_program
from tests.ir.bind import at_sizes
from tests.lowering import final_loops
from tests.targets.cpu.codegen.differential import Compiled, run_compiled

EXACT = [filtering for filtering in FILTERINGS if ERRORS[filtering.tile] <= 3e-6]
F32, BF16 = DType.F32, DType.BF16

needs_bf16 = pytest.mark.skipif(
    "avx512_bf16" not in host().features, reason="this machine has no bf16 dot products"
)


def fused_convolution(shape, outputs, filtering, pads, residual, images=F32, weights=F32, at=0):
    """WinogradConv, bias, Add of a residual or not, Relu; all images in blocks within zeros. Of
    images in bf16, the residual is converted as node `at`."""
    lanes = host().lanes
    stride, points = filtering.stride, filtering.points
    rooms = [shape[2] + pads[0] + pads[2] - 3, shape[3] + pads[1] + pads[3] - 3]
    out = (shape[0], outputs, *(room // stride + 1 for room in rooms))
    halo = Layout.blocked(4, 1, lanes, ((0, 0), (0, 0), (1, 1), (1, 1)))

    def value(name, *shape, layout=None, dtype=F32):
        return Value(name, TensorType(dtype, shape, layout))

    inputs = [
        value("x", *shape, layout=halo, dtype=images),
        value("u", points, points, outputs, shape[1], dtype=weights),
        value("b", outputs),
    ]
    conv, total, y, wide = (value(name, *out, layout=halo) for name in ("c", "t", "y", "wide"))
    attrs = attributes(
        tile=filtering.tile,
        strides=(stride, stride),
        kernel_shape=(3, 3),
        pads=pads,
        accumulator="f32",
    )
    nodes = [Node("WinogradConv", tuple(inputs), (conv,), attrs)]
    if residual:
        inputs.append(value("r", *out, layout=halo, dtype=images))
        if images is BF16:
            nodes.insert(at, Node("Cast", (inputs[-1],), (wide,), attributes(to="f32")))
        nodes.append(Node("Add", (conv, inputs[-1] if images is F32 else wide), (total,)))
    nodes.append(Node("Relu", nodes[-1].outputs, (y,)))
    if images is BF16:
        narrow = value("narrow", *out, layout=halo, dtype=BF16)
        nodes.append(Node("Cast", (y,), (narrow,), attributes(to="bf16")))
        y = narrow
    return Graph("region", tuple(inputs), (), tuple(nodes), (y,))


def run_against_direct(graph, filtering, pads, pick, seed=0):
    """Compile one candidate; return its error over the largest result."""
    rng = np.random.default_rng(seed)
    arrays = {
        v.name: rng.standard_normal(v.type.static_shape).astype(np.float32) for v in graph.inputs
    }
    _, _, outputs, channels = arrays["u"].shape
    w = rng.standard_normal((outputs, channels, 3, 3)).astype(np.float32)
    arrays["u"] = transformed(w, filtering)
    window = {"pads": pads, "strides": (filtering.stride,) * 2}
    (expected,) = lookup("Conv").reference(
        [a.astype(np.float64) for a in (arrays["x"], w, arrays["b"])], window
    )
    expected = np.maximum(expected + arrays.get("r", 0), 0)
    program = to_program(graph, "kernel", ("u",))
    space = for_program(program, host(), 2)
    assert space.rule.name == "winograd"
    candidates = space.candidates()
    chosen = (
        space.default() if pick is None else space.decisions(candidates[pick % len(candidates)])
    )
    (actual,) = run_compiled(final_loops(space, chosen), arrays, threads=2).values()
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


@settings(max_examples=25, deadline=None)
@given(
    filtering=st.sampled_from(EXACT),
    pads=st.tuples(*[st.integers(0, 1)] * 4),
    batch=st.integers(1, 2),
    channels=st.sampled_from((16, 20, 32, 37)),
    outputs=st.sampled_from((16, 24, 48)),
    extents=st.tuples(st.integers(3, 15), st.integers(3, 15)),
    residual=st.booleans(),
    pick=st.none() | st.integers(0, 100_000),
)
def test_odd_shapes(filtering, pads, batch, channels, outputs, extents, residual, pick):
    graph = fused_convolution((batch, channels, *extents), outputs, filtering, pads, residual)
    assert run_against_direct(graph, filtering, pads, pick) < 2 * ERRORS[filtering.tile]


@settings(max_examples=3, deadline=None)
@given(
    filtering=st.sampled_from(EXACT),
    step=st.sampled_from((1, 2, 8)),
    typical=st.sampled_from((3, 9, 30)),
    residual=st.booleans(),
    pick=st.none() | st.integers(0, 100_000),
    data=st.data(),
)
def test_one_kernel_for_every_size(filtering, step, typical, residual, pick, data):
    """Batch, height and width open: images of one point, of no whole tile, larger than typical."""
    batch, high = dim("n", 1, 3, 1), 40 // step
    spatial = [dim(name, 1, high, min(typical, high)) * step for name in ("h", "w")]
    graph = fused_convolution((batch, 20, *spatial), 24, filtering, (1, 1, 1, 1), residual)
    program = to_program(graph, "kernel", ("u",))
    space = for_program(program, host(), 2)
    assert space.rule.name == "winograd"
    candidates = space.candidates()
    chosen = space.default()
    if pick is not None:
        chosen = space.decisions(candidates[pick % len(candidates)])
    rng = np.random.default_rng(0)
    w = rng.standard_normal((24, 20, 3, 3)).astype(np.float32)
    sizes = st.tuples(st.integers(1, 3), st.integers(1, high), st.integers(1, high))
    with Compiled(final_loops(space, chosen), threads=2) as kernel:
        for given_sizes in [(1, 1, 1), (1, high, high), *data.draw(st.lists(sizes, max_size=3))]:
            values = dict(zip("nhw", given_sizes, strict=True))
            arrays = {
                v.name: rng.standard_normal(v.type.static_shape).astype(np.float32)
                for v in at_sizes(graph, values).inputs
            }
            arrays["u"] = transformed(w, filtering)
            window = {"pads": (1, 1, 1, 1), "strides": (filtering.stride,) * 2}
            wide = [a.astype(np.float64) for a in (arrays["x"], w, arrays["b"])]
            (expected,) = lookup("Conv").reference(wide, window)
            expected = np.maximum(expected + arrays.get("r", 0), 0)
            bound = {symbol: values[symbol.name] for symbol in kernel.function.dims}
            (actual,) = kernel(arrays, bound).values()
            scale = np.abs(expected).max() or 1.0
            assert np.abs(actual - expected).max() / scale < 4 * ERRORS[filtering.tile]


@needs_bf16
@settings(max_examples=25, deadline=None)
@given(
    factors=st.sampled_from([(1, 2, BF16), (2, 2, BF16), (1, 4, F32)]),
    channels=st.sampled_from((16, 20, 32, 37)),
    outputs=st.sampled_from((16, 24, 48)),
    extents=st.tuples(st.integers(3, 15), st.integers(3, 15)),
    residual=st.booleans(),
    at=st.integers(0, 1),
    pick=st.none() | st.integers(0, 100_000),
)
def test_bf16(factors, channels, outputs, extents, residual, at, pick):
    """Every candidate against the reference on the same factors."""
    stride, tile, weights = factors
    shape, filtering = (1, channels, *extents), Filtering(stride, tile)
    graph = fused_convolution(shape, outputs, filtering, (1, 1, 1, 1), residual, BF16, weights, at)
    rng = np.random.default_rng(0)
    arrays = {
        v.name: rng.standard_normal(v.type.static_shape).astype(v.type.dtype.numpy)
        for v in graph.inputs
    }
    (expected,) = run_graph(graph, arrays).values()
    space = for_program(to_program(graph, "kernel", ("u",)), host(), 2)
    assert space.rule.name == "winograd"
    candidates = space.candidates()
    chosen = (
        space.default() if pick is None else space.decisions(candidates[pick % len(candidates)])
    )
    function = final_loops(space, chosen)
    is_dot = weights is BF16 and channels % 2 == 0
    assert ("dpbf16ps" in emit_function(function, host())) is is_dot
    (actual,) = run_compiled(function, arrays, threads=2).values()
    assert actual.dtype == BF16.numpy
    # What lies between two bf16 may be rounded to either: a transformed element before the sum,
    # which is as large as the largest result, and the result itself.
    wide = expected.astype(np.float32)
    atol = 2**-8 * float(np.abs(wide).max())
    np.testing.assert_allclose(actual.astype(np.float32), wide, rtol=2**-7, atol=atol)


@pytest.mark.parametrize(
    ("channels", "size", "stride", "tile"),
    [
        (64, 56, 1, 4),
        (128, 28, 1, 4),
        (128, 14, 1, 3),
        (128, 14, 1, 2),
        (64, 7, 1, 2),
        (32, 13, 1, 4),
        (64, 32, 1, 4),
        (128, 56, 2, 4),
        (64, 28, 2, 3),
        (128, 28, 2, 2),
    ],
)
def test_errors_of_a_layer(channels, size, stride, tile):
    pads, filtering = (1, 1, 1, 1), Filtering(stride, tile)
    graph = fused_convolution((1, channels, size, size), channels, filtering, pads, residual=True)
    assert run_against_direct(graph, filtering, pads, None) < ERRORS[filtering.tile]
