"""Definitions of tasks as lines, which strangers' processes write."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.records import TaskDefinition
from farrier.records.definition import MOST_CHARACTERS

ONE = TaskDefinition("t", "host", 2, "kernel f():\n  'ü'", '{"cpu":"znver5"}')


@given(st.builds(TaskDefinition, st.text(), st.text(), st.integers(1), st.text(), st.text()))
def test_a_line_reads_back(definition):
    assert TaskDefinition.from_line(definition.to_line()) == definition
    assert "\n" not in definition.to_line()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"threads": True}, "threads: True is not of type int"),
        ({"threads": 0}, "threads: 0 is not in the range 1 to"),
        ({"program": None}, "program: None"),
        ({"task": ["t"] * 1000}, "task: "),
        ({"more": 1}, "an unknown field 'more'"),
        ({"program": "x" * (MOST_CHARACTERS + 1)}, "program: .* is longer than"),
    ],
)
def test_what_is_no_definition_is_refused(changes, complaint):
    raw = {**json.loads(ONE.to_line()), **changes}
    with pytest.raises(ValueError, match=complaint) as refused:
        TaskDefinition.from_line(json.dumps(raw))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("line", ["", "{", "[]", "3", "9" * 9999, "[" * 100_000])
def test_what_is_no_object_is_refused(line):
    with pytest.raises(ValueError):
        TaskDefinition.from_line(line)
