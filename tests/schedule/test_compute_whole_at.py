"""Primitive compute_whole_at: boxes that begin earlier instead of being cut."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.loop import Alloc, For, If
from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.statements import walk_stmts
from farrier.schedule import Schedule, Trace, replay
from tests.lowering import finalize
from tests.schedule.checks import assert_keeps_results, assert_refused
from tests.schedule.programs import conv_bias_relu, softmax

CHUNKS = """
@function
def doubled(x: f32[49], y: f32[49]):
    with alloc(f32[49] in workspace) as t:
        for i in serial(49):
            t[i] = x[i] * 2.0
        for j in serial(49):
            y[j] = t[j] + 1.0
"""


@pytest.mark.parametrize("extent", [13, 16, 49])
def test_boxes_that_begin_earlier_are_whole_and_unguarded(extent):
    schedule = Schedule(parse_ir(CHUNKS))
    schedule.split("j", extent, "chunk", "in_chunk")
    schedule.compute_whole_at("t", "chunk")
    (alloc,) = [s for s in walk_stmts(schedule.function.body) if isinstance(s, Alloc)]
    assert alloc.buffer.shape == (extent,)
    (nest,) = [s for s in walk_stmts(alloc.body) if isinstance(s, For) and s.var == "i"]
    assert not any(isinstance(s, If) for s in walk_stmts(nest))
    schedule.parallel("chunk")
    assert replay(Trace.parse(str(schedule.trace)), parse_ir(CHUNKS)) == schedule.function
    x = np.random.default_rng(0).standard_normal(49)
    (y,) = run_loops(finalize(schedule.function), {"x": x}).values()
    np.testing.assert_allclose(y, 2 * x + 1)


def test_it_refuses_a_read_elsewhere():
    step = 'compute_whole_at("power", "y_i")'
    assert_refused(softmax(4, 9), step, "power is also read outside y_i")


def test_it_refuses_loops_of_its_own():
    reason = "conv_oc is one of the loops that compute conv"
    assert_refused(conv_bias_relu(3, 8, 6), 'compute_whole_at("conv", "conv_oc")', reason)


def test_it_refuses_what_is_not_there():
    reason = "no buffer q is allocated; the allocated ones: t"
    assert_refused(CHUNKS, 'compute_whole_at("q", "j")', reason)


def test_it_keeps_results():
    def arguments(dice):
        buffer = dice.buffer()
        return buffer, dice.pick([loop for loop in dice.loops if not loop.startswith(buffer)])

    assert_keeps_results("compute_whole_at", arguments)
