"""Primitive inline: a buffer computed where it is read."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text
from tests.schedule.programs import conv_bias_relu, softmax

TWO_STEPS = """
@function
def steps(a: f32[8], b: f32[4]):
    with alloc(f32[8] in workspace) as t:
        for i in serial(8):
            {0}
        for j in serial(4):
            {1}
"""
PLAIN = TWO_STEPS.format("t[i] = a[i] + 1.0", "b[j] = t[j]")
OVERWRITTEN = """
@function
def swap(a: f32[4], b: f32[4]):
    with alloc(f32[4] in workspace) as t:
        for i in serial(4):
            t[i] = a[i] + 1.0
        for j in serial(4):
            a[j] = 0.0
        for k in serial(4):
            b[k] = t[k]
"""


def test_each_read_computes_its_own_element():
    source = TWO_STEPS.format("t[i] = a[i] + 1.0", "b[j] = t[2 * j] * t[7 - j]")
    assert body(scheduled(source, 'inline("t")')) == text("""
        for j in serial(4):
            b[j] = (a[2 * j] + 1.0) * (a[7 - j] + 1.0)
    """)


def test_axes_may_be_written_in_any_order():
    source = """
@function
def turn(a: f32[3, 4], b: f32[4, 3]):
    with alloc(f32[4, 3] in workspace) as t:
        for i in serial(3):
            for j in serial(4):
                t[j, i] = a[i, j]
        for k in serial(4):
            for l in serial(3):
                b[k, l] = t[k, l]
"""
    assert body(scheduled(source, 'inline("t")')) == text("""
        for k in serial(4):
            for l in serial(3):
                b[k, l] = a[l, k]
    """)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            TWO_STEPS.format("t[i] = a[i]", "b[j] = a[j]")
            .replace(" t:", " u:")
            .replace("t[i]", "u[i]"),
            "no buffer t is allocated; the allocated ones: u",
        ),
        (PLAIN.replace("t[i] =", "t[7 - i] ="), "t is not written at distinct loop variables"),
        (TWO_STEPS.format("t[i] = t[i] + a[i]", "b[j] = t[j]"), "t is computed from itself"),
        (
            TWO_STEPS.format("if i < 4: t[i] = a[i]", "b[j] = t[j]"),
            "t is written under a condition",
        ),
        (TWO_STEPS.format("t[i] = a[i]", "prefetch(t[j], level=2)"), "t is prefetched"),
        (OVERWRITTEN, "t is computed from a, which change in between"),
    ],
    ids=["absent", "backwards", "itself", "condition", "prefetch", "overwritten"],
)
def test_it_refuses(source, reason):
    assert_refused(source, 'inline("t")', reason)


def test_it_refuses_a_sum():
    reason = "conv is written by 2 stores; only a plain stage can be inlined"
    assert_refused(conv_bias_relu(3, 8, 6), 'inline("conv")', reason)


def test_it_refuses_after_a_split():
    step, after = 'inline("power")', ('split("power_i", 2, "o", "p")',)
    assert_refused(softmax(4, 9), step, "power is not written at distinct loop", after=after)


def test_it_keeps_results():
    assert_keeps_results("inline", lambda dice: (dice.buffer(),))
