"""Whole schedules keep the result, replay from their trace, and leave clean code behind."""

from __future__ import annotations

import pytest

from farrier.ir.expr import MemoryScope
from farrier.ir.loop import Alloc, For, If, LoopKind, Store
from farrier.ir.statements import walk_stmts
from farrier.ir.substitute import loads, variables
from farrier.ir.verify_kernel import verify_function
from farrier.lower.loops import to_loops
from farrier.schedule import Trace, replay
from tests.lowering import finalize
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
        s
        for s in walk_stmts(body)
        if isinstance(s, Alloc) and s.buffer.scope is MemoryScope.REGISTER
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
