"""Primitives cooperate and split_axes."""

from __future__ import annotations

import pytest

from farrier.schedule import Schedule, ScheduleError, Trace
from tests.schedule.checks import (
    assert_keeps_results,
    assert_refused,
    body,
    function_of,
    scheduled,
)

STAGE = """
@function
def stage(a: f32[3, 5, 7], b: f32[3, 5, 7]):
    for i in block(3):
        for j in serial(5):
            for k in serial(7):
                b[i, j, k] = a[i, j, k]
"""
TILE = """
@function
def tile(a: f32[6, 8], b: f32[6, 8]):
    with alloc(f32[6, 8] in local) as t:
        for i in serial(6):
            for j in serial(8):
                t[i, j] = a[i, j]
        for k in serial(6):
            for l in serial(8):
                b[k, l] = t[k, l]
"""


@pytest.mark.parametrize(("threads", "row"), [(1, 1), (4, 1), (5, 7), (16, 2), (64, 1), (3, 64)])
def test_threads_share_the_points_of_a_nest(threads, row):
    text = body(scheduled(STAGE, f'cooperate("j", {threads}, {row}, "t")'))
    rows = -(-35 // min(row, 35))
    assert f"for t in thread({min(threads, rows)}):" in text


def test_all_loops_of_a_nest_are_shared():
    deep = """
@function
def deep(a: f32[1, 2, 3, 4, 5], b: f32[1, 2, 3, 4, 5]):
    for h in block(1):
        for i in serial(2):
            for j in serial(3):
                for k in serial(4):
                    for l in serial(5):
                        b[h, i, j, k, l] = a[h, i, j, k, l]
"""
    text = body(scheduled(deep, 'cooperate("i", 8, 5, "t")'))
    assert "for t in thread(8):\n        for t_turn in serial(3):" in text


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('cooperate("j", 0, 1, "t")', "0 threads for j, 1 neighbours each"),
        ('cooperate("q", 4, 1, "t")', "there is no loop q"),
        ('cooperate("i", 4, 1, "t")', "i is block already"),
    ],
)
def test_it_refuses_what_threads_cannot_share(step, reason):
    (wrong,) = Trace.parse(step).steps
    with pytest.raises(ScheduleError, match=reason):
        Schedule(function_of(STAGE)).apply(wrong.primitive, *wrong.args)


def test_axes_are_split_into_quotients_and_remainders():
    steps = (
        'split("i", 2, "io", "ii")',
        'split("j", 4, "jo", "ji")',
        'reorder(("io", "jo", "ii", "ji"))',
        'split_axes("t", (2, 4))',
    )
    text = body(scheduled(TILE, *steps))
    assert "with alloc(f32[3, 2, 2, 4] in local) as t:" in text
    assert "t[io, jo, ii, ji] = a[io * 2 + ii, jo * 4 + ji]" in text


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('split_axes("t", (2,))', "1 factors for the 2 axes of t"),
        ('split_axes("t", (4, 4))', "an axis of t has 6 elements, not a multiple of 4"),
        ('split_axes("a", (2, 2))', "no buffer a is allocated"),
    ],
)
def test_it_refuses_parts_that_do_not_fit(step, reason):
    assert_refused(TILE, step, reason)


def test_they_keep_results():
    def arguments(dice):
        return dice.buffer(), dice.pick([(1,), (2,), (1, 2), (2, 1), (1, 1, 1)])

    assert_keeps_results("split_axes", arguments, least=5)
