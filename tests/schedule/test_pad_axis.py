"""Primitive pad_axis: room along an axis that nothing uses."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled
from tests.schedule.programs import conv_bias_relu

CONV = conv_bias_relu(3, 8, 6, block=4)


def test_only_the_shape_changes():
    before, after = (body(scheduled(CONV, *steps)) for steps in ((), ('pad_axis("conv", 2, 9)',)))
    assert after == before.replace("alloc(f32[1, 8, 6, 6]", "alloc(f32[1, 8, 9, 6]")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('pad_axis("conv", 2, 5)', "axis 2 of conv has 6 elements, not 5"),
        ('pad_axis("conv", 4, 9)', "conv has no axis 4"),
        ('pad_axis("conv", -1, 9)', "conv has no axis -1"),
        ('pad_axis("x", 2, 9)', "no buffer x is allocated; the allocated ones: conv"),
    ],
)
def test_it_refuses(step, reason):
    assert_refused(CONV, step, reason)


def test_it_keeps_results():
    def arguments(dice):
        return dice.buffer(), dice.number(0, 1), dice.number(1, 9)

    assert_keeps_results("pad_axis", arguments)
