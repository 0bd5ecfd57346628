"""Tests of the cost model over REST: its state, and the rollback."""

from __future__ import annotations

import pytest

from farrier.errors import ConflictError, NotFoundError
from farrier.records.outcome import Figures, Outcome, SetAside

ASIDE = SetAside("t", "rule", (("tile", 4),), "class", "liar", "1 µs, where others take 10 µs")
UNSEEN = {"trained": Figures(0.81, 0.2, 0.95), "analytic": Figures(0.72, 0.3, 0.91)}
BETTER = Outcome(
    True,
    "it is better",
    {"trained": Figures(0.9, 0.1, 0.99)},
    {"amd-epyc": UNSEEN},
    records=300,
    tasks=9,
    set_aside=1,
    shown=(ASIDE,),
    damaged={"u": "no program"},
)


def publish(farm, count):
    for number in range(1, count + 1):
        turn = farm.cost_models.state().turn
        assert farm.cost_models.decide(turn, 300, BETTER, f"model {number}".encode()) == number


def test_before_the_first_training_jobs_begin_with_the_one_that_ships(service):
    with service.client() as sdk:
        shown = sdk.cost_model()
        assert (shown["in_use"], shown["versions"], shown["last"]) == (0, [], None)
        with pytest.raises(ConflictError, match="no version"):
            sdk.roll_back_cost_model()


def test_versions_are_shown_and_rolled_back(service):
    farm = service.farm
    publish(farm, 3)
    with service.client() as sdk:
        shown = sdk.cost_model()
        assert [(version["number"], version["in_use"]) for version in shown["versions"]] == [
            (1, False),
            (2, False),
            (3, True),
        ]
        training = shown["versions"][2]["training"]
        assert training["figures"] == {"trained": {"pairs": 0.9, "regret": 0.1, "top5": 0.99}}
        assert training["unseen"]["amd-epyc"]["trained"]["pairs"] == 0.81
        assert training["shown"][0]["decisions"] == {"tile": 4}
        assert sdk.roll_back_cost_model()["in_use"] == 2
        assert sdk.roll_back_cost_model(0)["in_use"] == 0
        assert sdk.roll_back_cost_model(3)["in_use"] == 3
        with pytest.raises(NotFoundError, match="no version 7"):
            sdk.roll_back_cost_model(7)
