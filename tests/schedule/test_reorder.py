"""Primitive reorder: the loops of a perfect nest in another order."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text
from tests.schedule.programs import matmul
from tests.schedule.random_nests import functions, shifts

SHEAR = """
@function
def shear(x: f32[8, 8]):
    for i in serial(7):
        for j in serial(7):
            x[i + 1, j] = x[i, j + 1] + 1.0
"""
SLANT = SHEAR.replace("x[i, j + 1]", "x[i, j]")


def test_loops_that_are_not_named_keep_their_places():
    actual = body(scheduled(matmul(6, 10, 5), 'reorder(("y_k", "y_m"))'))
    assert actual.split("0.0\n")[1] == text("""
        for y_k in serial(5):
            for y_n in serial(10):
                for y_m in serial(6):
                    y[y_m, y_n] = y[y_m, y_n] + x[y_m, y_k] * w[y_k, y_n]
    """)


def test_loops_keep_their_kinds():
    steps = ('unroll("y_m")', 'vectorize("y_k")', 'reorder(("y_n", "y_m"))')
    actual = body(scheduled(matmul(6, 10, 5), *steps))
    assert [line.strip() for line in actual.splitlines()[-4:-1]] == [
        "for y_n in serial(10):",
        "for y_m in unrolled(6):",
        "for y_k in vectorized(5):",
    ]


def test_iterations_may_change_places_that_depend_on_earlier_ones_either_way():
    """Each row is made of the one before it, whichever loop is the outer one."""
    assert body(scheduled(SLANT, 'reorder(("j", "i"))')) == text("""
        for j in serial(7):
            for i in serial(7):
                x[i + 1, j] = x[i, j] + 1.0
    """)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('reorder(("y_m", "y_init_n"))', "y_init_n not in the perfect nest of y_m"),
        ('reorder(("y_m", "q"))', "there is no loop q; the loops are y_init_m"),
        ('reorder(("y_m",))', "an order names two or more distinct loops, not y_m"),
        ('reorder(("y_m", "y_m"))', "an order names two or more distinct loops, not y_m, y_m"),
    ],
)
def test_it_refuses(step, reason):
    assert_refused(matmul(6, 10, 5), step, reason)


def test_it_refuses_to_swap_iterations_that_depend_on_their_order():
    assert_refused(SHEAR, 'reorder(("j", "i"))', "iterations of i, j depend on their order")


def test_it_keeps_results():
    def arguments(dice):
        if dice.nested and dice.number(0, 1):
            return (dice.pick(dice.nested)[::-1],)
        at, count = dice.number(0, len(dice.loops) - 1), dice.number(2, 4)
        return (tuple(dice.data.draw(st.permutations(dice.loops[at : at + count]))),)

    assert_keeps_results("reorder", arguments, st.one_of(functions(), shifts()), least=15)
