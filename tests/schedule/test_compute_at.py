"""Primitive compute_at: a buffer computed where an iteration reads it."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.loop import Alloc, For, If
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.statements import walk_stmts
from farrier.schedule import Schedule
from tests.lowering import finalize
from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text
from tests.schedule.programs import conv_bias_relu, softmax

CHUNKS_OF_13 = """
@function
def doubled(x: f32[49], y: f32[49]):
    with alloc(f32[49] in workspace) as t:
        for i in serial(49):
            t[i] = x[i] * 2.0
        for j in serial(49):
            y[j] = t[j] + 1.0
"""
OVERWRITTEN = """
@function
def swap(a: f32[4], b: f32[4]):
    with alloc(f32[4] in workspace) as t:
        for i in serial(4):
            t[i] = a[i] + 1.0
        for j in serial(4):
            a[j] = 0.0
        for k in serial(4):
            b[k] = t[k]
"""
CONV, SOFTMAX = conv_bias_relu(3, 8, 6, block=4), softmax(4, 9)


@pytest.mark.parametrize(("loop", "extent"), [("chunk", 13), ("tile", 5)])
def test_it_computes_no_more_than_guarded_reads_let_through(loop, extent):
    """Chunks of 13 are read in tiles of 5: a chunk's last tile ends with the chunk."""
    function = parse_ir(CHUNKS_OF_13)
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


def test_a_window_is_computed_with_its_borders():
    source = """
@function
def smooth(a: f32[10], b: f32[8]):
    with alloc(f32[10] in workspace) as t:
        for i in serial(10):
            t[i] = a[i] * 2.0
        for o in serial(8):
            b[o] = t[o] + t[o + 2]
"""
    assert body(scheduled(source, 'compute_at("t", "o")')) == text("""
        for o in serial(8):
            with alloc(f32[3] in local) as t:
                for i in serial(3):
                    t[i] = a[o + i] * 2.0
                b[o] = t[0] + t[2]
    """)


def test_a_sum_moves_with_its_beginning():
    actual = body(scheduled(CONV, 'compute_at("conv", "y_oh")'))
    assert actual.index("for y_oh") < actual.index("for conv_init_ow") < actual.index("for conv_ic")
    assert "alloc(f32[1, 1, 1, 6] in local) as conv" in actual


def test_it_refuses_a_read_elsewhere():
    assert_refused(SOFTMAX, 'compute_at("power", "y_i")', "power is also read outside y_i")


def test_it_refuses_loops_of_its_own():
    reason = "conv_oc is one of the loops that compute conv"
    assert_refused(CONV, 'compute_at("conv", "conv_oc")', reason)


def test_it_refuses_after_a_split_of_what_writes():
    step, after = 'compute_at("conv", "y_oh")', ('split("conv_oc", 4, "o", "p")',)
    reason = "conv is not written at distinct loop variables: compute_at before you split"
    assert_refused(CONV, step, reason, after=after)


def test_it_refuses_what_would_be_computed_from_something_else():
    reason = "t is computed from a, which change in between"
    assert_refused(OVERWRITTEN, 'compute_at("t", "k")', reason)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('compute_at("x", "y_oh")', "no buffer x is allocated; the allocated ones: conv"),
        ('compute_at("conv", "q")', "there is no loop q; the loops are conv_init_n"),
    ],
)
def test_it_refuses_what_is_not_there(step, reason):
    assert_refused(CONV, step, reason)


def test_it_keeps_results():
    def arguments(dice):
        buffer = dice.buffer()
        return buffer, dice.pick([loop for loop in dice.loops if not loop.startswith(buffer)])

    assert_keeps_results("compute_at", arguments)
