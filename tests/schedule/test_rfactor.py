"""Primitive rfactor: partial results of a reduction."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text
from tests.schedule.programs import matmul, softmax
from tests.schedule.random_nests import functions, sums_of_products

MATMUL, SOFTMAX = matmul(6, 10, 5), softmax(4, 9)


def test_partial_maxima_begin_at_minus_infinity():
    source = """
@function
def most(a: f32[4, 9], m: f32[4]):
    for i in serial(4):
        for k in serial(9):
            m[i] = max(m[i], a[i, k])
"""
    assert body(scheduled(source, 'rfactor("k", "p")')) == text("""
        with alloc(f32[4, 9] in workspace) as p:
            for p_init_i in serial(4):
                for p_init_k in serial(9):
                    p[p_init_i, p_init_k] = -inf
            for i in serial(4):
                for k in serial(9):
                    p[i, k] = max(p[i, k], a[i, k])
            for p_i in serial(4):
                for p_k in serial(9):
                    m[p_i] = max(m[p_i], p[p_i, p_k])
    """)


def test_conditions_on_points_guard_the_end_too():
    source = """
@function
def total(a: f32[10, 3], s: f32[10]):
    for o in serial(3):
        for i in serial(4):
            for k in serial(3):
                if 4 * o + i < 10:
                    s[4 * o + i] = s[4 * o + i] + a[4 * o + i, k]
"""
    assert body(scheduled(source, 'rfactor("k", "p")')).splitlines()[-3:] == [
        "            for p_k in serial(3):",
        "                if 4 * p_o + p_i < 10:",
        "                    s[4 * p_o + p_i] = s[4 * p_o + p_i] + p[p_o, p_i, p_k]",
    ]


def test_the_loop_may_become_lanes():
    steps = ('split("norm_k", 4, "o", "l")', 'rfactor("l", "p")', 'vectorize("l")')
    assert "for l in vectorized(4):" in body(scheduled(SOFTMAX, *steps))


def test_it_refuses_a_loop_over_results():
    reason = "y is indexed by y_n: it is no loop of a reduction"
    assert_refused(MATMUL, 'rfactor("y_n", "p")', reason)


def test_it_refuses_a_copy():
    assert_refused(SOFTMAX, 'rfactor("y_j", "p")', "y_j holds no update x = x op e")


def test_it_refuses_a_name_that_is_taken():
    assert_refused(MATMUL, 'rfactor("y_k", "w")', "there is a buffer w already")


def test_it_refuses_a_loop_that_is_not_there():
    assert_refused(MATMUL, 'rfactor("q", "p")', "there is no loop q; the loops are y_init_m")


def test_it_refuses_several_statements():
    source = """
@function
def two(a: f32[4], m: f32[1], n: f32[1]):
    for k in serial(4):
        m[0] = m[0] + a[k]
        n[0] = n[0] + a[k]
"""
    assert_refused(source, 'rfactor("k", "p")', "k holds more than one update of one element")


def test_it_keeps_results():
    nests = st.one_of(functions(), sums_of_products())
    assert_keeps_results("rfactor", lambda dice: (dice.loop(), "p"), nests, least=10)
