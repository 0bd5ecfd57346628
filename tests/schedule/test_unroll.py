"""Primitive unroll: a copy of the body for each iteration."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled
from tests.schedule.programs import matmul

MATMUL = matmul(6, 10, 5)


def test_any_loop_may_be_unrolled_a_sum_and_one_of_loops():
    actual = body(scheduled(MATMUL, 'unroll("y_k")', 'unroll("y_m")'))
    assert "for y_k in unrolled(5):" in actual
    assert "for y_m in unrolled(6):" in actual


@pytest.mark.parametrize("kind", ["parallel", "unroll", "vectorize"])
def test_it_refuses_a_loop_that_has_a_kind(kind):
    step = 'unroll("y_init_n")'
    assert_refused(MATMUL, step, "y_init_n is", after=(f'{kind}("y_init_n")',))


def test_it_refuses_a_loop_that_is_not_there():
    assert_refused(MATMUL, 'unroll("q")', "there is no loop q; the loops are y_init_m")


def test_it_keeps_results():
    assert_keeps_results("unroll", lambda dice: (dice.loop(),))
