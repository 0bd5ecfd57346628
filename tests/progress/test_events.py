"""Tests that the events of a compilation are unchanged after a passage as JSON."""

from __future__ import annotations

import json

import pytest

from farrier import progress
from farrier.progress import events

SCHEDULE = progress.TaskSchedule(
    "k", "conv", 2, 0.5, "tile", 3, 99, {"t": 1}, 8.0, {"t": 2}, "tuned", 7.5
)
SAID: list[progress.Event] = [
    progress.StageStarted("import"),
    progress.StageFinished("import", 0.5, "well"),
    progress.SizesSettled(["n: 1 to 8"], ["n < 9"]),
    progress.TasksFound(3, 4),
    progress.TasksScheduled([SCHEDULE], {"n": 4}),
    progress.TuningStarted("version 3"),
    progress.TrialsMeasured(16, None, 1.5, 3.0, "conv", 1),
    progress.VariantsCompared("schedules", 3, 1),
    progress.TimeSpent(60.0, {"finals": 3.0}, {"compile": 2.0}),
    progress.Verified(1e-6, 1.5, None, "local"),
    progress.Raced("onnxruntime", "1.2", "local", 2, {"median": 2.0}, {"median": 1.0}, 0.5, 1e-7),
    progress.VersionAdded(2, 1.5, None),
    progress.RolledBack(1),
    progress.Warned("slow"),
]


def test_there_is_one_of_each_kind():
    assert {type(event) for event in SAID} == set(events._KINDS.values())


@pytest.mark.parametrize("event", SAID, ids=lambda event: type(event).__name__)
def test_an_event_is_read_as_it_was_said(event):
    assert progress.from_dict(json.loads(json.dumps(progress.to_dict(event)))) == event
