"""Primitive prefetch: what the next iteration reads, fetched ahead."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled
from tests.schedule.programs import matmul
from tests.schedule.random_nests import sums_of_products

MATMUL = matmul(6, 64, 5)


def test_all_is_fetched_at_once_where_the_loop_is_the_panel_itself():
    """A panel is a row of 5 elements, 20 bytes: one line."""
    actual = body(scheduled(MATMUL, 'prefetch("x", "y_m", "y_m", 1)'))
    assert "for x_ahead in unrolled(1):" in actual
    assert "prefetch(x[y_m + 1, x_ahead * 16], level=1)" in actual


def test_many_lines_are_fetched_in_a_loop():
    actual = body(scheduled(matmul(2, 8, 4096), 'prefetch("x", "y_m", "y_m", 2)'))
    assert "for x_ahead in serial(256):" in actual


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('prefetch("w", "y_m", "y_n", 2)', "what y_m reads of w is the same in each iteration"),
        ('prefetch("w", "y_n", "y_m", 2)', "y_m does not stand within y_n"),
        ('prefetch("w", "y_init_m", "y_init_m", 2)', "nothing within y_init_m reads w"),
        ('prefetch("w", "q", "y_n", 2)', "there is no loop q; the loops are y_init_m"),
    ],
)
def test_it_refuses(step, reason):
    assert_refused(MATMUL, step, reason)


@pytest.mark.parametrize("level", [0, 4])
def test_it_refuses_a_cache_that_is_not_there(level):
    reason = f"there is no cache level {level} for w"
    assert_refused(MATMUL, f'prefetch("w", "y_n", "y_k", {level})', reason)


def test_it_refuses_to_fetch_twice():
    step = 'prefetch("x", "y_m", "y_n", 2)'
    assert_refused(MATMUL, step, "there is a loop x_ahead already", after=(step,))


def test_it_keeps_results():
    def arguments(dice):
        return dice.any_buffer(), dice.loop(), dice.loop(), dice.number(1, 3)

    assert_keeps_results("prefetch", arguments, sums_of_products(), least=10)
