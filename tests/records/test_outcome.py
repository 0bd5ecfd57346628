"""Tests of the outcome of a training, reported by a process that may have been taken over."""

from __future__ import annotations

import json

import pytest

from farrier.records.outcome import Figures, Outcome, SetAside

ONE = Outcome(
    is_better=True,
    reason="it is",
    of={"trained": Figures(0.9, 0.1, 0.99), "analytic": Figures(0.7, 0.2, 0.9)},
    unseen={"c1": {"trained": Figures(0.8, 0.1, 1.0)}},
    records=7,
    tasks=3,
    held_out=1,
    set_aside=1,
    shown=(SetAside("t", "rule", (("a", 1),), "c1", "d1", "too fast"),),
    damaged={"t2": "no program"},
)


def test_it_reads_back():
    assert Outcome.from_dict(json.loads(json.dumps(ONE.to_dict()))) == ONE


@pytest.mark.parametrize(
    "changes",
    [
        {"is_better": 1},
        {"reason": "x" * 1001},
        {"reason": "\ud800"},
        {"records": -1},
        {"records": 1.5},
        {"tasks": True},
        {"of": {"trained": {"pairs": float("nan"), "regret": 0, "top5": 0}}},
        {"of": {"trained": {"pairs": 1}}},
        {"of": {str(n): {"pairs": 1, "regret": 0, "top5": 0} for n in range(21)}},
        {"of": []},
        {"unseen": {"c": 3}},
        {"shown": [{}]},
        {"shown": [{**ONE.to_dict()["shown"][0], "decisions": [["a", 1 << 70]]}]},
        {"shown": None},
        {"damaged": {"t": 3}},
    ],
)
def test_what_no_training_gives_is_refused(changes):
    with pytest.raises(ValueError, match="outcome"):
        Outcome.from_dict({**ONE.to_dict(), **changes})
