"""Primitive vectorize: the iterations of a loop in lockstep."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled
from tests.schedule.programs import matmul
from tests.schedule.random_nests import functions, shifts

MATMUL = matmul(6, 10, 5)
PREFIX = """
@function
def running(x: f32[8], y: f32[9]):
    for i in serial(8):
        y[i + 1] = {}
"""


def test_lanes_that_add_to_one_element_are_a_horizontal_sum():
    assert "for y_k in vectorized(5):" in body(scheduled(MATMUL, 'vectorize("y_k")'))


def test_a_loop_of_straight_lines_may_be_one_of_several_stores():
    source = """
@function
def two(x: f32[8], y: f32[8], z: f32[8]):
    for i in serial(8):
        y[i] = x[i] + 1.0
        if i < 5:
            z[i] = y[i] * 2.0
"""
    assert "for i in vectorized(8):" in body(scheduled(source, 'vectorize("i")'))


def test_it_refuses_lanes_that_read_what_others_write():
    step, reason = 'vectorize("i")', "lanes of i conflict: one reads y, another writes y"
    assert_refused(PREFIX.format("y[i] + x[i]"), step, reason)


def test_it_refuses_lanes_that_store_into_one_element():
    source = PREFIX.format("x[i]").replace("y[i + 1]", "y[0]")
    assert_refused(source, 'vectorize("i")', "lanes of i conflict: one writes y, another writes y")


def test_it_refuses_a_loop_of_loops():
    assert_refused(MATMUL, 'vectorize("y_n")', "y_n is not innermost")


@pytest.mark.parametrize("kind", ["parallel", "unroll", "vectorize"])
def test_it_refuses_a_loop_that_has_a_kind(kind):
    step = 'vectorize("y_init_n")'
    assert_refused(MATMUL, step, "y_init_n is", after=(f'{kind}("y_init_n")',))


def test_it_refuses_a_loop_that_is_not_there():
    assert_refused(MATMUL, 'vectorize("q")', "there is no loop q; the loops are y_init_m")


def test_it_keeps_results():
    nests = st.one_of(functions(), shifts())
    assert_keeps_results("vectorize", lambda dice: (dice.loop(),), nests)
