"""Sorts, scans and scatters by many threads: the interpreter of loops, that of threads, which finds
races, and the adapter of this machine compute what the operator means."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.graph import Constant, Graph, Node, Value, attributes
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.run_threads import run_threads
from farrier.ir.types import DType, TensorType
from farrier.ir.verify_kernel import verify_function
from farrier.lower.region import lower_region
from farrier.lower.runner import run_loop_passes
from farrier.ops import lookup, run_node
from farrier.ops.operator import THREADED
from farrier.targets import parse_target
from farrier.targets.gpu import points
from farrier.targets.gpu.device import LEAST
from tests.targets.webgpu import webgpu

TARGET = parse_target("webgpu")
REDUCTIONS = ["none", "add", "mul", "min", "max"]
# Items that one thread goes through, lines of several, a prime, and enough for three merges.
LENGTHS = [1, 5, 32, 33, 67, 200]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def kernel_of(op, arrays, static=(), **attrs):
    """Return the loops of a node for many threads, and its inputs by parameter."""
    values = [
        Value(f"x{i}", TensorType(DType.from_numpy(a.dtype), a.shape)) for i, a in enumerate(arrays)
    ]
    operator = lookup(op)
    if operator.counts:
        attrs["extent"] = "n"
    constants = {position: arrays[position] for position in static}
    kinds = operator.infer([value.type for value in values], constants, attrs)
    outputs = tuple(Value(f"y{i}", kind) for i, kind in enumerate(kinds))
    node = Node(op, tuple(values), outputs, attributes(**attrs, **{THREADED: 1}))
    held = tuple(Constant(values[position], arrays[position]) for position in static)
    inputs = tuple(value for i, value in enumerate(values) if i not in static)
    function = lower_region(Graph("g", inputs, held, (node,), outputs), "kernel", ())
    verify_function(function)
    assert parse_ir(print_ir(function)) == function
    by_name = {value.name: array for value, array in zip(values, arrays, strict=True)}
    feeds = {p.name: by_name[p.name].reshape(p.shape) for p in function.params if p.name[0] == "x"}
    return node, function, feeds


def check(op, arrays, static=(), tolerance=0.0, **attrs):
    node, function, feeds = kernel_of(op, arrays, static, **attrs)
    references = run_node(node, arrays)
    space = points.space(function, LEAST.packed)
    assert not space.slow_reason
    loops = space.schedule(space.default()).function
    kernel = run_loop_passes(loops, TARGET.backend.loop_passes(TARGET))
    runs = (run_loops(function, feeds, seed=3), run_threads(kernel, feeds))
    for results in (*runs, webgpu.run(kernel, feeds)):
        for array, reference in zip(results.values(), references, strict=True):
            counted = array.reshape(-1)[: reference.size].reshape(reference.shape)
            np.testing.assert_allclose(counted, reference, rtol=tolerance, atol=tolerance)


def values_of(rng, shape, dtype):
    """Return numbers of which many are equal; those of i64 have more than 32 bits."""
    numbers = rng.integers(-4, 5, shape).astype(dtype)
    return numbers * 2**33 if dtype == np.int64 else numbers


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.int8])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(rng, largest, dtype):
    for shape, axis, k in [((2, 33), 1, 5), ((67, 3), 0, 67), ((1, 200), 1, 1), ((1,), 0, 1)]:
        x = values_of(rng, shape, dtype)
        check("TopK", [x, np.array([k])], (1,), axis=axis, largest=largest)


@pytest.mark.parametrize("largest", [0, 1])
def test_nan_is_the_greatest(rng, largest):
    x = values_of(rng, (3, 67), np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    x[:, 7], x[:, 50] = np.inf, -np.inf
    check("TopK", [x, np.array([67])], (1,), axis=1, largest=largest)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("ordered", [0, 1])
def test_unique(rng, ordered, dtype):
    for shape, axis in [((1,), 0), ((67,), 0), ((40, 2), 0), ((2, 70, 3), 1)]:
        x = values_of(rng, shape, dtype) if len(shape) == 1 else rng.integers(0, 2, shape)
        check("Unique", [x.astype(dtype)], axis=axis, sorted=ordered)
    check("Unique", [values_of(rng, (6, 11), dtype)], sorted=ordered)


def test_one_of_all_that_is_no_number():
    x = np.array([2, np.nan, 1, np.nan, np.inf, -np.inf], np.float32)
    check("Unique", [x])


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
@pytest.mark.parametrize(("reverse", "exclusive"), [(0, 0), (1, 1), (0, 1)])
def test_prefixes(rng, op, reverse, exclusive):
    for shape, axis in [((1,), 0), ((200,), 0), ((3, 67, 2), 1), ((67, 3), 0)]:
        x = rng.choice([-1, 1], shape)
        arrays = [x.astype(np.int32), np.array(axis)]
        check(op, arrays, (1,), reverse=reverse, exclusive=exclusive)
    wide = [x * (2**33 if op == "CumSum" else 1), np.array(0)]
    check(op, wide, (1,), reverse=reverse, exclusive=exclusive)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_prefixes_of_floats(rng, dtype):
    x = rng.standard_normal((2, 131)).astype(dtype)
    x[1, 70] = np.inf
    check("CumSum", [x, np.array(1)], (1,), tolerance=2e-2 if dtype == np.float16 else 1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scattered_elements(rng, reduction, dtype):
    for shape, indexed, axis in [((3, 7), (3, 5), 1), ((9, 40), (7, 40), 0), ((5,), (67,), 0)]:
        x, updates = (rng.choice([-1, 1, 2], s).astype(dtype) for s in (shape, indexed))
        at = rng.integers(-shape[axis], shape[axis], indexed)
        if reduction == "mul":
            updates = np.sign(updates)
        check("ScatterElements", [x, at, updates], axis=axis, reduction=reduction)
    check("ScatterElements", [x, at.astype(np.int32), updates], axis=0, reduction=reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scattered_rows(rng, reduction):
    for shape, lead, depth in [((7, 3), (67,), 1), ((2, 3, 7), (5,), 2), ((3, 4), (2, 5), 2)]:
        x, updates = (rng.choice([-1.0, 1, 2], s) for s in (shape, lead + shape[depth:]))
        at = np.stack([rng.integers(-s, s, lead) for s in shape[:depth]], -1)
        arrays = [x.astype(np.float32), at, np.sign(updates).astype(np.float32)]
        check("ScatterND", arrays, reduction=reduction)


def test_indices_beyond_the_axis_name_its_ends():
    at = np.array([-99, 2**40, -(2**40), 1])
    check("ScatterElements", [np.zeros(5, np.float32), at, np.arange(4, dtype=np.float32)])


def test_scattered_bytes_share_words(rng):
    x, updates = rng.random(13) < 0.5, rng.random(31) < 0.5
    check("ScatterND", [x, rng.integers(-13, 13, (31, 1)), updates])


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(rng, length):
    x = values_of(rng, (2, length), np.float32)
    check("TopK", [x, np.array([length])], (1,), axis=1)
    check("CumSum", [x, np.array(1)], (1,))
    check("ScatterElements", [x, rng.integers(0, length, (2, length)), x], axis=1)
