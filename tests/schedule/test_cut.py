"""Primitive cut: the first iterations in one loop, the others in another."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text
from tests.schedule.programs import conv_bias_relu, matmul


def test_a_negative_place_counts_from_the_end_and_inner_loops_get_new_names():
    source = """
@function
def border(a: f32[3, 4], b: f32[3, 4]):
    for i in serial(3):
        for j in serial(4):
            if i < 2:
                b[i, j] = a[i, j]
"""
    assert body(scheduled(source, 'cut("i", -1, "r")')) == text("""
        for i in serial(2):
            for j in serial(4):
                if i < 2:
                    b[i, j] = a[i, j]
        for r in serial(1):
            for r_j in serial(4):
                if r + 2 < 2:
                    b[2, r_j] = a[2, r_j]
    """)


def test_what_is_known_of_a_choice_is_left_out():
    source = """
@function
def shift(a: f32[9], b: f32[10]):
    for i in serial(10):
        b[i] = a[i] if i < 9 else 0.0
"""
    assert body(scheduled(source, 'cut("i", -1, "r")')) == text("""
        for i in serial(9):
            b[i] = a[i]
        for r in serial(1):
            b[9] = 0.0
    """)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('cut("y_k", 9, "r")', "y_k has 5 iterations, which 9 does not divide in two parts"),
        ('cut("y_k", 0, "r")', "y_k has 5 iterations, which 0 does not divide in two parts"),
        ('cut("y_k", -5, "r")', "y_k has 5 iterations, which -5 does not divide in two parts"),
        ('cut("y_k", 2, "y_n")', "there is a loop y_n already"),
        ('cut("q", 2, "r")', "there is no loop q; the loops are y_init_m"),
    ],
)
def test_it_refuses(step, reason):
    assert_refused(matmul(6, 10, 5), step, reason)


def test_it_refuses_a_loop_that_has_a_kind():
    step, after = 'cut("y_k", 2, "r")', ('vectorize("y_k")',)
    assert_refused(matmul(6, 10, 5), step, "y_k is vectorized already", after=after)


def test_it_refuses_a_loop_that_allocates():
    after = ('compute_at("conv", "y_oh")',)
    step = 'cut("y_oc", 2, "r")'
    assert_refused(conv_bias_relu(3, 8, 6), step, "y_oc is no nest of stores alone", after=after)


def test_it_keeps_results():
    assert_keeps_results("cut", lambda dice: (dice.loop(), dice.number(-3, 4), "rest"))
