"""Primitive transform_layout: a buffer that lies in another way."""

from __future__ import annotations

import pytest

from farrier.ir.printer import print_ir
from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled
from tests.schedule.programs import conv_bias_relu, matmul, softmax

MATMUL = matmul(6, 10, 5)


def test_constants_are_packed_by_panels():
    step = 'transform_layout("w", Layout(((1, 4, 0), (0, 1, 0), (1, 1, 4))))'
    actual = scheduled(MATMUL, step)
    assert "w: f32[5, 10] @ layout(1 / 4, 0, 1 % 4) in constant" in print_ir(actual)
    assert body(actual) == body(scheduled(MATMUL))  # indices are logical


def test_a_buffer_of_its_own_may_lie_in_any_order():
    actual = body(
        scheduled(softmax(4, 9), 'transform_layout("power", Layout(((1, 1, 0), (0, 1, 0))))')
    )
    assert "with alloc(f32[4, 9] @ layout(1, 0) in workspace) as power:" in actual


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (
            'transform_layout("x", Layout(((0, 4, 0), (1, 1, 0), (0, 1, 4))))',
            "the layout of the argument x is part of the kernel's signature",
        ),
        (
            'transform_layout("w", Layout(((0, 1, 0), (1, 1, 4))))',
            "does not cover axis 1 of w once",
        ),
        (
            'transform_layout("w", Layout(((1, 8, 0), (0, 1, 0), (1, 1, 4))))',
            "does not cover axis 1 of w once",
        ),
        ('transform_layout("w", Layout(((0, 1, 0),)))', "leaves out axis 1 of w"),
        (
            'transform_layout("w", Layout(((0, 1, 0), (1, 1, 0), (2, 1, 0))))',
            "has more axes than w",
        ),
        (
            'transform_layout("w", Layout(((0, 1, 0), (1, 1, 0)), ((1, 1), (0, 0))))',
            "a halo for w, which no nest would fill",
        ),
        ('transform_layout("q", Layout(((0, 1, 0),)))', "no buffer q is allocated"),
    ],
)
def test_it_refuses(step, reason):
    assert_refused(MATMUL, step, reason)


def test_it_refuses_less_memory_than_loops_run_to():
    reason = "axis 1 of conv is used up to 8, the new layout ends at 6"
    step = 'transform_layout("conv", Layout(((0, 1, 0), (1, 1, 0), (2, 1, 0), (3, 1, 0))))'
    assert_refused(conv_bias_relu(3, 6, 4, block=4), step, reason)


def test_it_keeps_results():
    def arguments(dice):
        buffer = dice.buffer()
        return buffer, dice.layout(buffer)

    assert_keeps_results("transform_layout", arguments)
