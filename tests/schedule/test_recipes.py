"""Whole schedules keep the result, replay from their trace, and leave clean code behind."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.expr import Scope
from farrier.ir.loop import Alloc, For, If, LoopKind, Store
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.statements import walk_stmts
from farrier.ir.substitute import loads, variables
from farrier.lower.finalize import finalize
from farrier.lower.loops import to_loops
from farrier.ops.verify import verify_function
from farrier.schedule import Schedule, Trace, replay
from tests.ir.bind import bind
from tests.schedule.programs import assert_same_result, conv_bias_relu, matmul
from tests.schedule.recipes import conv_tiles, matmul_tiles, pointwise_tiles

CASES = {
    "3x3": (conv_bias_relu(16, 32, 8), lambda f: conv_tiles(f, 2, 4)),
    "3x3, all tails": (conv_bias_relu(20, 40, 7, halo_out=1), lambda f: conv_tiles(f, 2, 4)),
    "stride 2": (conv_bias_relu(5, 17, 9, stride=2), lambda f: conv_tiles(f, 1, 3)),
    "dilated": (conv_bias_relu(3, 16, 9, dilation=2, padding=2), lambda f: conv_tiles(f, 1, 9)),
    "1x1": (conv_bias_relu(18, 40, 7, kernel=1, padding=0), lambda f: pointwise_tiles(f, 2, 8)),
    "matmul": (matmul(13, 40, 9), lambda f: matmul_tiles(f, 6, 2, 4)),
    "large matmul": (matmul(197, 100, 13), lambda f: matmul_tiles(f, 6, 4, 8)),
    "vector": (matmul(1, 16, 7), lambda f: matmul_tiles(f, 6, 1, 4)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_recipe_keeps_the_result_and_leaves_register_tiles(case):
    program, recipe = CASES[case]
    schedule = recipe(to_loops(program))
    function = finalize(schedule.function)
    verify_function(function)
    assert_same_result(function, program)
    _assert_register_tiles(function.body)
    trace = Trace.parse(str(schedule.trace))
    assert trace == schedule.trace
    assert replay(trace, to_loops(program)) == schedule.function


def _assert_register_tiles(body):
    """Register buffers are indexed by unrolled and vectorized loops alone, and no guard is
    within."""
    fixed = {
        s.var
        for s in walk_stmts(body)
        if isinstance(s, For) and s.kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED)
    }
    allocations = [
        s for s in walk_stmts(body) if isinstance(s, Alloc) and s.buffer.scope is Scope.REGISTER
    ]
    assert allocations
    for allocation in allocations:
        for stmt in walk_stmts(allocation.body):
            assert not isinstance(stmt, If)
            if isinstance(stmt, Store):
                elements = [*loads(stmt.value), stmt]
                for element in elements:
                    if element.buffer.name == allocation.buffer.name:
                        assert {v for i in element.indices for v in variables(i)} <= fixed


_CHUNKS_OF_13 = """
@function
def doubled(x: f32[49], y: f32[49]):
    with alloc(f32[49] in workspace) as t:
        for i in serial(49):
            t[i] = x[i] * 2.0
        for j in serial(49):
            y[j] = t[j] + 1.0
"""


@pytest.mark.parametrize(("loop", "extent"), [("chunk", 13), ("tile", 5)])
def test_compute_at_computes_no_more_than_guarded_reads_let_through(loop, extent):
    """Chunks of 13 are read in tiles of 5: a chunk's last tile ends with the chunk."""
    function = parse_ir(_CHUNKS_OF_13)
    schedule = Schedule(function)
    schedule.split("j", 13, "chunk", "in_chunk")
    schedule.split("in_chunk", 5, "tile", "point")
    schedule.compute_at("t", loop)
    (alloc,) = [s for s in walk_stmts(schedule.function.body) if isinstance(s, Alloc)]
    assert alloc.buffer.shape == (extent,)
    (nest,) = [s for s in walk_stmts(alloc.body) if isinstance(s, For) and s.var == "i"]
    guards = [print_ir(s.condition) for s in walk_stmts(nest) if isinstance(s, If)]
    assert any("< 13" in guard for guard in guards) is (loop == "tile")
    x = np.random.default_rng(0).standard_normal(49)
    (y,) = run_loops(finalize(schedule.function), {"x": x}).values()
    np.testing.assert_allclose(y, 2 * x + 1)


@pytest.mark.parametrize("extent", [13, 16, 49])
def test_boxes_that_begin_earlier_are_whole_and_unguarded(extent):
    schedule = Schedule(parse_ir(_CHUNKS_OF_13))
    schedule.split("j", extent, "chunk", "in_chunk")
    schedule.compute_whole_at("t", "chunk")
    (alloc,) = [s for s in walk_stmts(schedule.function.body) if isinstance(s, Alloc)]
    assert alloc.buffer.shape == (extent,)
    (nest,) = [s for s in walk_stmts(alloc.body) if isinstance(s, For) and s.var == "i"]
    assert not any(isinstance(s, If) for s in walk_stmts(nest))
    schedule.parallel("chunk")
    assert replay(Trace.parse(str(schedule.trace)), parse_ir(_CHUNKS_OF_13)) == schedule.function
    x = np.random.default_rng(0).standard_normal(49)
    (y,) = run_loops(finalize(schedule.function), {"x": x}).values()
    np.testing.assert_allclose(y, 2 * x + 1)


_COPY = """
@function(n=dim(0, 300, 100))
def copied(x: f32[n], y: f32[n]):
    for i in serial(n):
        y[i] = x[i] + 1.0
"""


@pytest.mark.parametrize("n", [0, 1, 5, 47, 48, 49, 97, 300])
def test_even_chunks_of_a_loop_of_any_extent(n):
    """Multiples of 4 iterations, 24 at most, in pairs of chunks: the last may be shorter."""
    schedule = Schedule(parse_ir(_COPY))
    schedule.split_evenly("i", 2, 24, 4, "chunk", "in_chunk")
    function = schedule.function
    assert parse_ir(print_ir(function)) == function
    assert replay(Trace.parse(str(schedule.trace)), parse_ir(_COPY)) == function
    verify_function(function)
    (symbol,) = function.dims
    bound = bind(function, {symbol: n})
    chunk, inner = (s for s in walk_stmts(bound.body) if isinstance(s, For))
    assert inner.extent % 4 == 0
    assert inner.extent <= 24
    assert chunk.extent * inner.extent >= n > (chunk.extent - 1) * inner.extent - (n == 0)
    if n >= 48:
        assert chunk.extent >= -(-n // 24)
    x = np.arange(float(n))
    (y,) = run_loops(bind(finalize(function), {symbol: n}), {"x": x}).values()
    np.testing.assert_array_equal(y, x + 1)
