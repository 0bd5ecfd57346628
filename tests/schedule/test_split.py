"""Primitive split: one loop becomes two."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text
from tests.schedule.programs import matmul, softmax

COPY = """
@function
def copy(a: f32[10], b: f32[10]):
    for i in serial(10):
        b[i] = a[i]
"""


def test_a_factor_that_divides_needs_no_guard():
    assert body(scheduled(COPY, 'split("i", 5, "o", "p")')) == text("""
        for o in serial(2):
            for p in serial(5):
                b[o * 5 + p] = a[o * 5 + p]
    """)


def test_a_factor_beyond_the_extent_takes_all():
    assert body(scheduled(COPY, 'split("i", 64, "o", "p")')) == text("""
        for o in serial(1):
            for p in serial(10):
                b[o * 10 + p] = a[o * 10 + p]
    """)


def test_the_inner_loop_of_a_vectorized_one_is_vectorized():
    assert body(scheduled(COPY, 'vectorize("i")', 'split("i", 5, "o", "p")')) == text("""
        for o in serial(2):
            for p in vectorized(5):
                b[o * 5 + p] = a[o * 5 + p]
    """)


def test_a_loop_over_a_symbol_is_guarded():
    source = COPY.replace("@function", "@function(n=dim(0, 20, 10))").replace("10]", "n]")
    actual = body(scheduled(source.replace("serial(10)", "serial(n)"), 'split("i", 4, "o", "p")'))
    assert actual == text("""
        for o in serial((n + 3) // 4):
            for p in serial(4):
                if o * 4 + p < n:
                    b[o * 4 + p] = a[o * 4 + p]
    """)


MATMUL = matmul(6, 10, 5)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('split("y_q", 2, "o", "p")', "no loop y_q; the loops are y_init_m"),
        ('split("y_m", 0, "o", "p")', "a factor of 0 for y_m"),
        ('split("y_m", 2, "y_n", "p")', "there is a loop y_n already"),
        ('split("y_m", 2, "p", "p")', "there is a loop p already"),
    ],
)
def test_it_refuses(step, reason):
    assert_refused(MATMUL, step, reason)


@pytest.mark.parametrize("kind", ["parallel", "unroll"])
def test_it_refuses_a_loop_that_has_a_kind(kind):
    step = 'split("power_i", 2, "o", "p")'
    assert_refused(softmax(4, 9), step, "power_i is", after=(f'{kind}("power_i")',))


def test_it_keeps_results():
    assert_keeps_results("split", lambda dice: (dice.loop(), dice.number(1, 7), "o", "p"))
