"""Primitive bind: the blocks of a launch and the threads of a block."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled
from tests.schedule.programs import matmul, softmax

MATMUL = matmul(6, 10, 5)
BLOCKS = 'bind("y_m", "block")'
TILE = """
@function
def tile(a: f32[2, 4], b: f32[2, 4]):
    for i in serial(2):
        with alloc(f32[4] in local) as t:
            for j in serial(4):
                t[3 - j] = a[i, j]
            for k in serial(4):
                b[i, k] = t[k]
"""
SHEAR = """
@function
def shear(x: f32[8, 8]):
    for b in serial(1):
        for i in serial(7):
            x[i + 1, b] = x[i, b] + 1.0
"""


def test_loops_of_a_nest_are_bound_from_the_outermost():
    text = body(scheduled(MATMUL, BLOCKS, 'bind("y_n", "thread")'))
    assert "for y_m in block(6):\n    for y_n in thread(10):\n        for y_k in serial(5):" in text


def test_it_refuses_a_sum():
    after = (BLOCKS, 'bind("y_n", "thread")')
    reason = "iterations of y_k conflict"
    assert_refused(MATMUL, 'bind("y_k", "thread")', reason, after=after)


def test_it_refuses_iterations_that_depend_on_each_other():
    step, after = 'bind("i", "thread")', ('bind("b", "block")',)
    assert_refused(SHEAR, step, "iterations of i conflict", after=after)


@pytest.mark.parametrize(
    ("step", "reason", "after"),
    [
        ('bind("y_m", "warp")', "y_m cannot be bound to warp, only to block or thread", ()),
        ('bind("y_m", "thread")', "y_m stands in no block loop", ()),
        ('bind("y_n", "block")', "y_n stands within y_m, which is not bound to blocks", ()),
        (BLOCKS, "y_m stands around y_n, which is bound already", ('parallel("y_n")',)),
        ('bind("y_m", "thread")', "y_m is block already", (BLOCKS,)),
        ('bind("y_n", "thread")', "y_n is parallel already", ('parallel("y_n")',)),
        ('parallel("y_n")', "y_n within or around y_m, which is bound to blocks", (BLOCKS,)),
    ],
)
def test_it_refuses_another_place(step, reason, after):
    assert_refused(MATMUL, step, reason, after=after)


def test_it_refuses_threads_that_would_share_what_is_local():
    after = ('bind("i", "block")',)
    reason = r"t is local, and has no part [j] for each thread"
    assert_refused(TILE, 'bind("j", "thread")', reason, after=after)
    shared = scheduled(
        TILE, *after, 'set_scope("t", "workgroup")', 'bind("j", "thread")', 'bind("k", "thread")'
    )
    assert "with alloc(f32[4] in workgroup) as t:" in body(shared)


def test_it_refuses_blocks_that_would_share_what_is_local():
    reason = "the blocks of power_i would share the local buffer most"
    step, after = 'bind("power_i", "block")', ('set_scope("most", "local")',)
    assert_refused(softmax(4, 9), step, reason, after=after)


@pytest.mark.parametrize(
    ("step", "reason", "after"),
    [
        ('set_scope("t", "workgroup")', "t stands in no block loop", ()),
        (
            'set_scope("t", "workspace")',
            "the blocks of i would share the workspace buffer t",
            ('bind("i", "block")',),
        ),
        (
            'set_scope("t", "local")',
            "t is shared by the threads of k",
            ('bind("i", "block")', 'set_scope("t", "workgroup")', 'bind("k", "thread")'),
        ),
    ],
)
def test_scopes_of_buffers_fit_blocks_and_threads(step, reason, after):
    assert_refused(TILE, step, reason, after=after)


def test_it_keeps_results():
    def arguments(dice):
        return dice.loop(), "block"

    assert_keeps_results("bind", arguments)
