"""Primitive group: neighbours in memory stored at once."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text
from tests.schedule.programs import matmul
from tests.schedule.random_nests import functions, shifts

MATMUL = matmul(6, 10, 5)
GUARDED = """
@function
def pair(v: f32[2, 16], pairs: f32[16, 2]):
    for n in serial(16):
        for k in serial(2):
            if {}:
                pairs[n, k] = v[k, n]
"""


def test_a_condition_on_other_loops_is_put_around_the_loop():
    assert body(scheduled(GUARDED.format("n < 9"), 'group("k")')) == text("""
        for n in serial(16):
            if n < 9:
                for k in group(2):
                    pairs[n, k] = v[k, n]
    """)


def test_it_refuses_a_condition_on_the_loop():
    assert_refused(GUARDED.format("k < 1"), 'group("k")', "a condition within k depends on it")


def test_it_refuses_a_loop_of_loops():
    assert_refused(MATMUL, 'group("y_m")', "y_m holds something else than a store")


def test_it_refuses_a_sum():
    assert_refused(MATMUL, 'group("y_k")', "iterations of y_k conflict")


def test_it_refuses_a_loop_that_has_a_kind():
    assert_refused(MATMUL, 'group("y_init_n")', "y_init_n is", after=('unroll("y_init_n")',))


def test_it_refuses_a_loop_that_is_not_there():
    assert_refused(MATMUL, 'group("q")', "there is no loop q; the loops are y_init_m")


def test_it_keeps_results():
    nests = st.one_of(functions(), shifts())
    assert_keeps_results("group", lambda dice: (dice.loop(),), nests)
