"""Primitive reuse_buffer: what the next iteration reads again is kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.ir.run_loops import run_loops
from tests.schedule.checks import assert_refused, scheduled

WINDOW = """
@function
def window(a: i32[{rows}, {columns}], b: i32[{m}, {n}]):
    for i in serial({m}):
        for j in serial({n}):
            b[i, j] = i32(0)
            for k in serial({height}):
                for l in serial({width}):
                    b[i, j] = b[i, j] * i32(3) + a[{down} * i + k, {right} * j + l]
"""


@given(st.integers(2, 4), st.integers(2, 4), st.integers(1, 3), st.integers(1, 3), st.data())
def test_lines_and_windows_keep_results(height, width, down, right, data):
    down, right = min(down, height - 1), min(right, width - 1)
    m, n = data.draw(st.integers(2, 4)), data.draw(st.integers(2, 5))
    rows, columns = down * (m - 1) + height, right * (n - 1) + width
    text = WINDOW.format(**locals())
    steps = ['reuse_buffer("a", "i", "t")', 'reuse_buffer("t", "j", "w")']
    a = np.random.default_rng(0).integers(-99, 99, (rows, columns), np.int32)
    before = run_loops(scheduled(text), {"a": a})["b"]
    for count in (1, 2):
        after = run_loops(scheduled(text, *steps[:count]), {"a": a})["b"]
        np.testing.assert_array_equal(after, before)


TEXT = WINDOW.format(rows=6, columns=7, m=4, n=5, height=3, width=3, down=1, right=1)


@pytest.mark.parametrize(
    ("text", "step", "reason"),
    [
        (TEXT, 'reuse_buffer("c", "i", "t")', "nothing within i reads c"),
        (TEXT, 'reuse_buffer("b", "i", "t")', "i writes b, so what is kept would grow old"),
        (TEXT, 'reuse_buffer("a", "k", "t")', "iterations of k read 1 of a and move by 1"),
        (TEXT, 'reuse_buffer("a", "i", "b")', "there is a buffer b already"),
        (TEXT.replace("1 * i", "3 * i"), 'reuse_buffer("a", "i", "t")', "move by 3"),
        (
            TEXT.replace("1 * j", "i + 1 * j").replace("7]", "10]"),
            'reuse_buffer("a", "i", "t")',
            "the box of a moves along 2 axes with i, not one",
        ),
    ],
)
def test_it_refuses(text, step, reason):
    assert_refused(text, step, reason)


def test_it_refuses_a_loop_that_has_a_kind():
    assert_refused(TEXT, 'reuse_buffer("a", "i", "t")', "i is parallel", after=('parallel("i")',))
