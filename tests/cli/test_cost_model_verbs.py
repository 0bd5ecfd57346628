"""Tests of `farrier cost-model`: its list of versions, and the rollback."""

from __future__ import annotations

import dataclasses

import pytest

from farrier.records.outcome import Figures, Outcome

BETTER = Outcome(
    True,
    "it is better",
    {"trained": Figures(0.9, 0.1, 0.99)},
    {
        "amd-epyc": {
            "trained": Figures(0.81, 0.2, 0.95),
            "analytic": Figures(0.72, 0.3, 0.91),
        }
    },
    records=300,
    tasks=9,
)
WORSE = dataclasses.replace(BETTER, is_better=False, reason="it is not better", unseen={})


@pytest.fixture
def cost_model(farrier, service):
    """Run `farrier cost-model WORDS` against a farm with two versions; the lines that it says."""
    for number in (1, 2):
        service.farm.cost_models.decide(number - 1, 300, BETTER, f"model {number}".encode())
    environment = {"FARRIER_SERVER": service.url, "FARRIER_TOKEN": service.token}

    def run(*words):
        done = farrier("cost-model", *words, **environment)
        assert done.returncode == 0, done.stderr
        return [line.split() for line in done.stdout.splitlines()]

    run.decide = lambda outcome: service.farm.cost_models.decide(2, 300, outcome)
    return run


def test_figures_are_shown_by_the_class_of_devices_that_was_left_out(cost_model):
    shown = cost_model("show")
    table = [
        ["amd-epyc", "trained", "81.0%", "20.0%", "95.0%"],
        ["amd-epyc", "analytic", "72.0%", "30.0%", "91.0%"],
    ]
    assert shown[-2:] == table
    # The table is shown once, for both have the same.
    assert [line for line in shown if "amd-epyc" in line] == table
    cost_model.decide(WORSE)
    shown = cost_model("show")
    assert [line for line in shown if "amd-epyc" in line] == table
    assert shown[-1] == ["last", "training:", "it", "is", "not", "better"]


def test_a_version_is_gone_back_to_by_its_number(cost_model):
    assert ["jobs", "begin", "with", "the", "built-in", "cost", "model"] not in cost_model("show")
    in_use = [line[0] for line in cost_model("rollback") if line[-2:] == ["in", "use"]]
    assert in_use == ["1"]
    in_use = [line[0] for line in cost_model("rollback", "--to", "2") if line[-2:] == ["in", "use"]]
    assert in_use == ["2"]
    shown = cost_model("rollback", "--to", "0")
    assert ["jobs", "begin", "with", "the", "built-in", "cost", "model"] in shown
