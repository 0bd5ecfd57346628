"""Primitive choose: a number for a size that a nest leaves open."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_refused, body, scheduled

PARTS = """
@function(n=dim(1, 9, 5), parts=choice(1, 8, 3))
def fill(y: f32[n]):
    for part in independent(parts):
        with alloc(f32[parts] in register) as one:
            for u in unrolled(parts):
                one[u] = 1.0
            if parts < 2:
                for i in serial(n):
                    y[i] = one[0]
            else:
                for j in serial(-((-n) // parts)):
                    if part * (-((-n) // parts)) + j < n:
                        y[part * (-((-n) // parts)) + j] = one[parts - 1]
"""


@pytest.mark.parametrize("parts", [1, 2, 8])
def test_the_number_stands_wherever_the_choice_did(parts):
    chosen = scheduled(PARTS, f'choose("parts", {parts})')
    assert not chosen.choices
    text = body(chosen)
    assert f"for part in independent({parts}):" in text
    assert f"alloc(f32[{parts}] in register)" in text
    assert ("y[i]" in text) == (parts == 1)
    assert ("part * " in text) == (parts > 1)
    assert "if parts" not in text


def test_it_refuses_what_is_no_choice_and_what_is_out_of_range():
    assert_refused(PARTS, 'choose("n", 2)', "there is no choice n; the choices are parts")
    for value in (0, 9):
        reason = f"parts is {value}, and must be between 1 and 8"
        assert_refused(PARTS, f'choose("parts", {value})', reason)
