"""Primitive merge_axes: two axes of a buffer become one."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text
from tests.schedule.programs import conv_bias_relu


def test_indices_become_a_number_of_the_element():
    source = """
@function
def window(a: f32[3, 4], b: f32[2, 3]):
    with alloc(f32[3, 4] in workspace) as t:
        for i in serial(3):
            for j in serial(4):
                t[i, j] = a[i, j]
        for k in serial(2):
            for l in serial(3):
                b[k, l] = t[k + 1, l + 1]
"""
    assert body(scheduled(source, 'merge_axes("t", 0)')) == text("""
        with alloc(f32[12] in workspace) as t:
            for i in serial(3):
                for j in serial(4):
                    t[i * 4 + j] = a[i, j]
            for k in serial(2):
                for l in serial(3):
                    b[k, l] = t[k * 4 + l + 5]
    """)


def test_axes_may_be_merged_that_lie_together_in_blocks():
    actual = body(scheduled(conv_bias_relu(3, 8, 6, block=4), 'merge_axes("conv", 2)'))
    assert "with alloc(f32[1, 8, 36] @ layout(0, 1 / 4, 2, 1 % 4) in workspace) as conv:" in actual


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('merge_axes("conv", 0)', "axes 0 and 1 of conv do not lie together"),
        ('merge_axes("conv", 3)', "conv has no axes 3 and 4"),
        ('merge_axes("conv", -1)', "conv has no axes -1 and 0"),
        ('merge_axes("x", 2)', "no buffer x is allocated; the allocated ones: conv"),
    ],
)
def test_it_refuses(step, reason):
    assert_refused(conv_bias_relu(3, 8, 6, block=4), step, reason)


def test_it_keeps_results():
    assert_keeps_results("merge_axes", lambda dice: (dice.buffer(), dice.number(0, 1)))
