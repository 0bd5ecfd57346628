"""Primitive partition: the elements of an axis in banks."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.run_loops import run_loops
from tests.schedule.checks import assert_refused, scheduled

LINES = """
@function
def lines(a: i32[3, 8], b: i32[4]):
    with alloc(i32[3, 8] in local) as t:
        for i in serial(3):
            for j in serial(8):
                t[i, j] = a[i, j]
        for k in serial(4):
            b[k] = t[0, 2 * k] + t[1, 2 * k + 1] + t[2, 7 - k]
"""


def test_axes_are_dealt_out_one_by_one_and_the_meaning_stays():
    kernel = scheduled(LINES, 'partition("t", 0, 3)', 'partition("t", 1, 2)')
    a = np.arange(24, dtype=np.int32).reshape(3, 8)
    expected = a[0, :8:2] + a[1, 1:8:2] + a[2, 7:3:-1]
    np.testing.assert_array_equal(run_loops(kernel, {"a": a})["b"], expected)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('partition("t", 2, 2)', "t has no axis 2"),
        ('partition("t", 0, 1)', "1 banks of t"),
        ('partition("a", 0, 3)', "no buffer a is allocated"),
    ],
)
def test_it_refuses(step, reason):
    assert_refused(LINES, step, reason)


def test_it_refuses_an_axis_that_is_divided():
    after = ('partition("t", 1, 4)',)
    assert_refused(LINES, 'partition("t", 1, 2)', "axis 1 of t is divided already", after=after)
