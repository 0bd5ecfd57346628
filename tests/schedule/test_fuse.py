"""Primitive fuse: two loops become one."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text
from tests.schedule.programs import matmul


def test_an_outer_loop_of_one_iteration_leaves_no_division():
    source = """
@function
def copy(a: f32[1, 4], b: f32[1, 4]):
    for i in serial(1):
        for j in serial(4):
            b[i, j] = a[i, j]
"""
    assert body(scheduled(source, 'fuse("i", "j", "f")')) == text("""
        for f in serial(4):
            b[0, f] = a[0, f]
    """)


def test_three_loops_become_one_in_two_steps():
    steps = ('fuse("y_m", "y_n", "f")', 'fuse("f", "y_k", "g")')
    assert "for g in serial(300):" in body(scheduled(matmul(6, 10, 5), *steps))


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('fuse("y_m", "y_k", "f")', "y_k does not stand directly within y_m"),
        ('fuse("y_n", "y_m", "f")', "y_m does not stand directly within y_n"),
        ('fuse("y_m", "q", "f")', "there is no loop q; the loops are y_init_m"),
        ('fuse("y_m", "y_n", "y_k")', "there is a loop y_k already"),
    ],
)
def test_it_refuses(step, reason):
    assert_refused(matmul(6, 10, 5), step, reason)


@pytest.mark.parametrize("loop", ["y_m", "y_n"])
def test_it_refuses_loops_that_have_a_kind(loop):
    step, reason = 'fuse("y_m", "y_n", "f")', f"{loop} is unrolled already"
    assert_refused(matmul(6, 10, 5), step, reason, after=(f'unroll("{loop}")',))


def test_it_keeps_results():
    assert_keeps_results("fuse", lambda dice: (*dice.pick(dice.nested or [("a", "b")]), "f"))
