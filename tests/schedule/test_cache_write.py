"""Primitive cache_write: a buffer computed in another one first."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text
from tests.schedule.programs import matmul

SUM = """
@function
def total(a: f32[4], y: f32[4], v: f32[4]):
    for y_init_i in serial(4):
        y[y_init_i] = a[y_init_i]
    for j in serial(4):
        {0}
    for y_i in serial(4):
        y[y_i] = y[y_i] + 1.0
"""


def test_what_stands_between_the_nests_stays_before_the_copy():
    assert body(scheduled(SUM.format("v[j] = a[j]"), 'cache_write("y", "acc")')) == text("""
        with alloc(f32[4] in workspace) as acc:
            for j in serial(4):
                v[j] = a[j]
            for acc_init_i in serial(4):
                acc[acc_init_i] = a[acc_init_i]
            for acc_i in serial(4):
                acc[acc_i] = acc[acc_i] + 1.0
            for y_i in serial(4):
                y[y_i] = acc[y_i]
    """)


def test_a_layout_stays_with_the_buffer():
    source = SUM.format("v[j] = a[j]").replace("y: f32[4]", "y: f32[4] @ layout(0 / 2, 0 % 2)")
    assert "alloc(f32[4] in workspace) as acc" in body(scheduled(source, 'cache_write("y", "acc")'))


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        ("v[j] = y[j]", "y is used between the nests that write it"),
        ("a[j] = 0.0", "y is computed from a, which change in between"),
        ("y[j] = 0.0", "y is not written by its own nests alone"),
    ],
)
def test_it_refuses_what_happens_between_the_nests(between, reason):
    assert_refused(SUM.format(between), 'cache_write("y", "acc")', reason)


def test_it_refuses_a_buffer_that_nothing_begins():
    lines = SUM.format("v[j] = a[j]").splitlines(keepends=True)
    source = "".join([*lines[:3], *lines[5:]])
    assert_refused(source, 'cache_write("y", "acc")', "y is computed from what it held before")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('cache_write("x", "acc")', "no nest writes x"),
        ('cache_write("y", "w")', "there is a buffer w already"),
    ],
)
def test_it_refuses(step, reason):
    assert_refused(matmul(6, 10, 5), step, reason)


def test_it_refuses_after_a_split():
    step, after = 'cache_write("y", "acc")', ('split("y_m", 2, "tile", "row")',)
    assert_refused(matmul(6, 10, 5), step, "y is not written by its own nests", after=after)


def test_it_refuses_nests_that_cover_other_parts():
    source = SUM.format("v[j] = a[j]").replace("for y_i in serial(4)", "for y_i in serial(3)")
    assert_refused(source, 'cache_write("y", "acc")', "the nests of y do not cover it alike")


def test_it_keeps_results():
    assert_keeps_results("cache_write", lambda dice: (dice.any_buffer(), "acc"))
