"""Tests of the output of a compilation while it runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from farrier.cli.show import ProgressView, UploadView
from farrier.progress import TimeSpent
from farrier.sdk.client import Sending


@pytest.mark.parametrize(
    ("works", "line"),
    [
        (
            {"compile": 12.4, "measure": 30.0, "transfer": 0.2, "wait": 7.6},
            "tuned in 60 s of 61: search 50 s, race 10 s (compile 12 s, measure 30 s, wait 8 s)",
        ),
        ({"measure": 0.4}, "tuned in 60 s of 61: search 50 s, race 10 s"),
    ],
)
def test_the_time_to_tune_is_told_with_what_it_was_spent_on(works, line):
    said = io.StringIO()
    ProgressView(Console(file=said, width=200))(TimeSpent(61.0, {"search": 50, "race": 10}, works))
    assert said.getvalue() == line + "\n"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_upload_shows_on_a_terminal_alone(is_terminal):
    said = io.StringIO()
    with UploadView(Console(file=said, width=120, force_terminal=is_terminal)) as view:
        view(Sending("models/m.onnx", 50, 100, sent=False))
        view(Sending("models/[b]m.onnx.data", 5_000_000, 10_000_000, sent=True))
    assert ("sending [b]m.onnx.data" in said.getvalue()) is is_terminal
    assert ("5.0/10.0 MB" in said.getvalue()) is is_terminal
    assert is_terminal or said.getvalue() == ""
