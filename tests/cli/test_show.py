"""What a compilation prints while it runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from farrier.cli.show import ProgressView
from farrier.progress import TimeSpent


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
