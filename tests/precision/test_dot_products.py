"""Kernels of bf16 dot products against float64 sums of the rounded operands, any shape."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.loop import For, LoopKind
from farrier.ir.run_loops import run_loops
from farrier.ir.types import DType, Layout, PhysicalDim, TensorType
from farrier.ir.walk import walk
from farrier.lower.program import to_program
from farrier.ops import run_graph
from farrier.targets import host, parse_target
from farrier.targets.cpu.codegen.emit import emit_function
from farrier.targets.cpu.rules import for_program
from tests.lowering import final_loops
from tests.targets.cpu.codegen.differential import run_compiled

BF16 = DType.BF16
LANES = 16

needs_bf16 = pytest.mark.skipif(
    "avx512_bf16" not in host().features, reason="this machine has no bf16 dot products"
)


def tensor(name, *shape, dtype=BF16, layout=None):
    return Value(name, TensorType(dtype, tuple(shape), layout))


def region(op, operands, shape, *, layout=None, rounded=False, **attrs):
    """A contraction of bf16 operands with an f32 sum; with `rounded`, its bf16."""
    sums = tensor("sums", *shape, dtype=DType.F32, layout=layout)
    nodes = [Node(op, operands, (sums,), attributes(accumulator="f32", **attrs))]
    if rounded:
        narrow = tensor("narrow", *shape, layout=layout)
        nodes.append(Node("Cast", (sums,), (narrow,), attributes(to="bf16")))
    return Graph("region", operands, (), tuple(nodes), nodes[-1].outputs)


def blocked(block=LANES, pad=0):
    halo = ((0, 0), (0, 0), (pad, pad), (pad, pad)) if pad else ()
    return Layout.blocked(4, 1, block, halo)


def convolution(n, ic, size, oc, kernel, stride, rounded=False):
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    x = tensor("x", n, ic, size, size, layout=blocked(pad=pad))
    return region(
        "Conv",
        (x, tensor("w", oc, ic, kernel, kernel)),
        (n, oc, out, out),
        layout=blocked(),
        rounded=rounded,
        kernel_shape=(kernel, kernel),
        strides=(stride, stride),
        dilations=(1, 1),
        pads=(pad,) * 4,
        group=1,
    )


def matmul(m, k, n, batch=(), rounded=False, layouts=(None, None)):
    x, w = (*batch, m, k), (*batch, k, n)
    operands = (tensor("x", *x, layout=layouts[0]), tensor("w", *w, layout=layouts[1]))
    return region("MatMul", operands, (*batch, m, n), rounded=rounded)


def residual(m, k, n):
    """A bf16 operand of a sum that is converted before the product is computed."""
    x, w, r = tensor("x", m, k), tensor("w", k, n), tensor("r", m, n)
    wide, sums, y = (tensor(name, m, n, dtype=DType.F32) for name in ("wide", "sums", "y"))
    nodes = (
        Node("Cast", (r,), (wide,), attributes(to="f32")),
        Node("MatMul", (x, w), (sums,), attributes(accumulator="f32")),
        Node("Add", (wide, sums), (y,)),
    )
    return Graph("region", (x, w, r), (), nodes, (y,))


def is_dot(function):
    """Return whether a kernel has loops for dot products, or whole tiles of them."""
    loops = [s for s in walk(function.body) if isinstance(s, For)]
    has_loops = any(loop.kind is LoopKind.DOT for loop in loops)
    text = emit_function(function, host())
    assert ("avx512bf16.dpbf16ps" in text) is has_loops
    return has_loops or "x86.tdpbf16ps" in text


def some(graph, seed):
    rng = np.random.default_rng(seed)
    return {
        v.name: rng.standard_normal(v.type.static_shape).astype(BF16.numpy) for v in graph.inputs
    }


def check(graph, constants, seed, dots=True, target=None):
    """One random candidate of the rule's space, compiled, against the reference."""
    program = to_program(graph, "kernel", constants)
    space = for_program(program, host(), 2).built_in
    candidates = space.candidates()
    row = candidates[seed % len(candidates)]
    function = final_loops(space, space.decisions(row))
    assert is_dot(function) is dots
    inputs = some(graph, seed)
    (actual,) = run_compiled(function, inputs, threads=2, target=target).values()
    (expected,) = run_graph(graph, inputs).values()
    steps = inputs["x"].size
    error = 2**-7 if actual.dtype == BF16.numpy else 1e-6 * min(steps, 4096) ** 0.5
    scale = np.abs(expected.astype(np.float64)).max()
    difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max()
    assert difference <= error * max(scale, 1.0)


seeds = st.integers(0, 1 << 20)
even = st.integers(1, 40).map(lambda n: 2 * n)


@pytest.mark.long
@needs_bf16
@given(st.integers(1, 40), even, st.integers(8, 70), st.booleans(), seeds)
def test_products_with_weights(m, k, n, rounded, seed):
    check(matmul(m, k, n, rounded=rounded), {"w"}, seed)


@pytest.mark.long
@needs_bf16
@given(st.integers(1, 40), even, st.integers(8, 70), seeds)
def test_sums_with_what_is_stored_as_bf16(m, k, n, seed):
    check(residual(m, k, n), {"w"}, seed)


@pytest.mark.long
@needs_bf16
@given(st.integers(1, 3), st.integers(1, 20), even, st.integers(8, 40), seeds)
def test_products_of_two_activations(batch, m, k, n, seed):
    check(matmul(m, k, n, batch=(batch, 2)), set(), seed)


@pytest.mark.long
@needs_bf16
@given(st.integers(1, 20), even, st.integers(8, 40), seeds)
def test_scores_of_transposed_keys(m, k, n, seed):
    across = Layout((PhysicalDim(0), PhysicalDim(2), PhysicalDim(1)))
    check(matmul(m, k, n, batch=(3,), layouts=(None, across)), set(), seed)


@needs_bf16
@given(
    st.integers(1, 2),
    st.integers(1, 20).map(lambda n: 2 * n),
    st.integers(1, 9),
    st.integers(8, 40),
    st.sampled_from([1, 3]),
    st.integers(1, 2),
    seeds,
)
def test_convolutions(n, ic, size, oc, kernel, stride, seed):
    check(convolution(n, ic, size, oc, kernel, stride), {"w"}, seed)


@pytest.mark.long
@needs_bf16
@given(
    st.integers(1, 3),
    st.integers(5, 12),
    st.integers(8, 40),
    st.integers(1, 3).map(lambda n: 2 * n),
    st.integers(1, 2),
    seeds,
)
def test_convolutions_of_planes(ic, size, oc, width, stride, seed):
    """Groups along the rows of an image, odd starts among them."""
    pad = width // 2
    halo = ((0, 0), (0, 0), (pad, pad), (pad, pad))
    x = tensor("x", 1, ic, size, size, layout=Layout(Layout.plain(4).dims, halo))
    out = ((size + 2 * pad - 3) // stride + 1, (size + 2 * pad - width) // stride + 1)
    graph = region(
        "Conv",
        (x, tensor("w", oc, ic, 3, width)),
        (1, oc, *out),
        layout=blocked(),
        kernel_shape=(3, width),
        strides=(stride, stride),
        dilations=(1, 1),
        pads=(pad,) * 4,
        group=1,
    )
    check(graph, {"w"}, seed)


@needs_bf16
@pytest.mark.parametrize(
    "graph",
    [matmul(5, 7, 20), matmul(3, 1, 16), convolution(1, 7, 5, 16, 3, 1)],
    ids=["odd sum", "one product", "odd channels"],
)
def test_what_has_no_groups_is_widened(graph):
    check(graph, {"w"}, 3, dots=False)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_bf16_runs_without_dot_products(target):
    if int(target[-1]) > int(host().cpu[-1]):
        pytest.skip(f"this machine is no {target}")
    machine = parse_target(target)
    graph = matmul(9, 12, 37, rounded=True)
    program = to_program(graph, "kernel", {"w"})
    space = for_program(program, machine, 1)
    function = final_loops(space, space.default())
    inputs = some(graph, 1)
    (actual,) = run_compiled(function, inputs, target=machine).values()
    (expected,) = run_graph(graph, inputs).values()
    np.testing.assert_allclose(
        actual.astype(np.float32), expected.astype(np.float32), rtol=2**-7, atol=1e-5
    )


@needs_bf16
def test_a_target_without_the_instruction_takes_products_one_by_one():
    graph = matmul(6, 8, 32)
    with_dot = dataclasses.replace(
        host(), features=tuple(f for f in host().features if not f.startswith("amx"))
    )
    space = for_program(to_program(graph, "kernel", {"w"}), with_dot, 1)
    function = final_loops(space, space.default())
    assert "dpbf16ps" in emit_function(function, with_dot)
    plain = parse_target("x86-64-v4")
    assert "dpbf16ps" not in emit_function(function, plain)
    inputs = some(graph, 2)
    (expected,) = run_graph(graph, inputs).values()
    for target in (with_dot, plain):
        (actual,) = run_compiled(function, inputs, target=target).values()
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    (slow,) = run_loops(function, inputs).values()
    np.testing.assert_allclose(slow, expected, rtol=1e-6, atol=1e-6)
