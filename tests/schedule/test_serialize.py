"""Primitive serialize: a parallel loop in order on one thread."""

from __future__ import annotations

import contextlib

from farrier.schedule import ScheduleError
from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled
from tests.schedule.programs import matmul

MATMUL = matmul(6, 10, 5)


def test_it_takes_back_what_parallel_did():
    steps = ('parallel("y_m")', 'serialize("y_m")')
    assert scheduled(MATMUL, *steps) == scheduled(MATMUL)


def test_another_loop_may_be_parallel_then():
    actual = body(scheduled(MATMUL, 'parallel("y_m")', 'serialize("y_m")', 'parallel("y_n")'))
    assert "for y_n in parallel(10):" in actual


def test_it_refuses_what_is_serial():
    assert_refused(MATMUL, 'serialize("y_m")', "y_m is serial")


def test_it_refuses_a_vector():
    assert_refused(MATMUL, 'serialize("y_k")', "y_k is vectorized", after=('vectorize("y_k")',))


def test_it_refuses_a_loop_that_is_not_there():
    assert_refused(MATMUL, 'serialize("q")', "there is no loop q; the loops are y_init_m")


def test_it_keeps_results():
    def before(dice, schedule):
        for loop in dice.loops:
            with contextlib.suppress(ScheduleError):
                schedule.parallel(loop)

    assert_keeps_results("serialize", lambda dice: (dice.loop(),), before=before)
