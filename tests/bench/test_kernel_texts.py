"""Tests of `python -m bench.kernel_texts`: equal code yields equal lines; a changed knob is
reported."""

from __future__ import annotations

import pytest

from bench import models
from bench.kernel_texts import Case, code_of, differences, kernel_lines
from farrier.errors import UsageError
from farrier.space import Space

CASE = Case("tiny", "x86-64-v3")


@pytest.fixture(scope="module")
def tiny():
    return models.build("mobilenet_v2", size=32, stages=1)


def test_the_lines_are_the_same_twice(tiny):
    first = kernel_lines(CASE, tiny, {})
    assert first
    assert differences(first, kernel_lines(CASE, tiny, {})) == []


def test_a_changed_knob_is_reported(tiny, monkeypatch):
    before = kernel_lines(CASE, tiny, {})
    default = Space.default

    def other(space):
        rows = space.candidates()
        taken = default(space)
        return next((d for d in map(space.decisions, rows) if d != taken), taken)

    monkeypatch.setattr(Space, "default", other)
    changed = differences(before, kernel_lines(CASE, tiny, {}))
    assert changed
    assert all("knobs" in line and line.startswith("x86-64-v3-f32 tiny ") for line in changed)


def test_new_and_gone_kernels_are_reported():
    line = "x86-64-v3-f32 tiny k rule 00 a=1"
    assert differences([], [line]) == ["x86-64-v3-f32 tiny k: new"]
    assert differences([line], []) == ["x86-64-v3-f32 tiny k: gone"]


def test_what_is_no_output_or_object_is_refused():
    with pytest.raises(UsageError, match="no line of a kernel"):
        differences(["something else"], [])
    with pytest.raises(UsageError, match="not 64-bit"):
        code_of(b"MZ")
