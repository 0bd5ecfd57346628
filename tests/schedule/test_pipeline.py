"""Primitive pipeline: iterations that hardware overlaps."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled
from tests.schedule.programs import matmul

MATMUL = matmul(6, 10, 5)


def test_a_loop_is_pipelined_around_unrolled_ones():
    actual = body(scheduled(MATMUL, 'unroll("y_k")', 'pipeline("y_n")'))
    assert "for y_n in pipelined(10):" in actual
    assert "for y_k in unrolled(5):" in actual


def test_it_refuses_a_loop_that_holds_another():
    assert_refused(MATMUL, 'pipeline("y_n")', "y_k within y_n is serial, and must be unrolled")


@pytest.mark.parametrize("kind", ["parallel", "unroll", "vectorize"])
def test_it_refuses_a_loop_that_has_a_kind(kind):
    step = 'pipeline("y_init_n")'
    assert_refused(MATMUL, step, "y_init_n is", after=(f'{kind}("y_init_n")',))


def test_it_keeps_results():
    assert_keeps_results("pipeline", lambda dice: (dice.loop(),))
