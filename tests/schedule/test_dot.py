"""Primitive dot: the products of a loop added up at once."""

from __future__ import annotations

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text
from tests.schedule.programs import matmul, softmax
from tests.schedule.random_nests import sums_of_products

MATMUL = matmul(6, 10, 5)
GUARDED = """
@function
def multiply(a: f32[2], b: f32[16, 2], t: f32[16]):
    for i in serial(16):
        for k in serial(2):
            if {}:
                t[i] = t[i] + a[k] * b[i, k]
"""


def test_a_condition_on_other_loops_is_put_around_the_loop():
    assert body(scheduled(GUARDED.format("i < 9"), 'dot("k")')) == text("""
        for i in serial(16):
            if i < 9:
                for k in dot(2):
                    t[i] = t[i] + a[k] * b[i, k]
    """)


def test_it_refuses_a_condition_on_the_loop():
    assert_refused(GUARDED.format("k < 1"), 'dot("k")', "a condition within k depends on it")


def test_it_refuses_a_loop_that_walks_over_elements():
    assert_refused(MATMUL, 'dot("y_n")', "y_n holds something else than a sum into one element")


def test_it_refuses_a_sum_of_something_else():
    assert_refused(softmax(4, 9), 'dot("norm_k")', "norm_k adds something else than products")


def test_it_refuses_a_loop_that_has_a_kind():
    assert_refused(MATMUL, 'dot("y_k")', "y_k is vectorized", after=('vectorize("y_k")',))


def test_it_refuses_a_loop_that_is_not_there():
    assert_refused(MATMUL, 'dot("q")', "there is no loop q; the loops are y_init_m")


def test_it_keeps_results():
    assert_keeps_results("dot", lambda dice: (dice.loop(),), sums_of_products())
