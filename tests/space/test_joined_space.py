"""Several rules' schedules as one space: a candidate is of one rule, and search sees them all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.cost_model import CostModel
from farrier.errors import CompilerError
from farrier.records import Context, RuleId
from farrier.schedule_search import EvolutionarySearch, Trial
from farrier.space import Estimate, JoinedSpace, Knob, Space
from farrier_device.measurement import CandidateResult, Status


def a_space(rule, knobs, limit, speed=1.0, beside=0.0):
    """Knobs by name whose sum must not exceed `limit`, and costs what it is; `beside` is the share
    that a kernel measured alone does not pay."""

    def total(columns):
        return sum(columns.values())

    return Space(
        RuleId(rule, 1),
        tuple(Knob(name, tuple(values)) for name, values in knobs.items()),
        lambda columns: total(columns) <= limit,
        lambda columns: Estimate(
            (1.0 + total(columns)) / speed,
            {"compute": 0.5 + 0 * total(columns)},
            beside * (1.0 + total(columns)) / speed,
        ),
        lambda decisions: decisions,
    )


def built_in(limit=7):
    return a_space("built-in", {"rows": (1, 2, 4), "columns": (1, 3, 5)}, limit)


def beside(limit=9):
    knobs = {"mine.rows": (1, 2, 3), "mine.depth": (3, 6)}
    return a_space("mine", knobs, limit, speed=100.0, beside=0.5)


def joined():
    own = built_in()
    return JoinedSpace([own, beside()], own)


limits = st.integers(4, 12)


@given(limits, limits, st.booleans(), st.integers(0, 2**32 - 1))
def test_each_candidate_is_of_one_rule_and_nothing_leaves_its_constraint(
    first_knob, other, first, seed
):
    own, mine = built_in(first_knob), beside(other)
    space = JoinedSpace([mine, own] if first else [own, mine], own)
    rows = space.candidates()
    assert len(rows) == len(own.candidates()) + len(mine.candidates())
    assert space.valid(rows).all()
    for row in rows:
        decisions = space.decisions(row)
        assert own.contains(decisions) != mine.contains(decisions)
        assert space.contains(decisions)
        assert (space.row(decisions) == row).all()
        assert str(space.rule_of(decisions)) == ("built-in" if "rows" in decisions else "mine")
    rng = np.random.default_rng(seed)
    parents, mates = (rows[rng.integers(len(rows), size=80)] for _ in range(2))
    children = [space.mutate(parents, rng), space.crossover(parents, mates, rng)]
    children += map(space.neighbours, rows)
    assert all(
        space.contains(space.decisions(row)) for rows_of_child in children for row in rows_of_child
    )
    assert all(len(rows_of_child) for rows_of_child in children[:2])
    assert space.sample(31, rng).shape == (31, 4)


def test_the_default_is_that_of_the_first_rule():
    own, mine = built_in(), beside()
    assert JoinedSpace([own, mine], own).default() == own.default()
    assert JoinedSpace([mine, own], own).default() == mine.default()
    assert JoinedSpace([mine, own], own).rule == mine.rule


def test_unmeasured_no_rule_is_ahead_of_the_known_one():
    own, mine = built_in(), beside()
    space = JoinedSpace([own, mine], own)
    costs = space.cost(space.candidates())
    assert (costs[: len(own.candidates())] == own.cost(own.candidates())).all()
    assert costs.min() == costs[len(own.candidates()) :].min() == own.seconds(own.default())
    assert space.seconds(mine.default()) == own.seconds(own.default())


def test_features_say_nothing_of_the_other_rule_s_knobs():
    space = joined()
    rows = space.candidates()[::-1]
    features, seconds = space.described(rows, Context.MODEL)
    theirs = np.array(["mine.rows" in space.decisions(row) for row in rows])
    assert (np.isnan(features.column("knob.rows")) == theirs).all()
    assert (np.isnan(features.column("knob.mine.depth")) == ~theirs).all()
    assert (seconds == space.cost(rows)).all()


def test_rules_compare_by_their_defaults_wherever_candidates_are_measured():
    own, mine = built_in(), beside()
    space = JoinedSpace([own, mine], own)
    firsts = np.stack([space.row(part.default()) for part in (own, mine)])
    for context in Context:
        for costs in (space.cost(firsts, context), space.described(firsts, context)[1]):
            assert costs == pytest.approx(own.cost(own.row(own.default())[None], context)[0])


def test_what_no_candidate_can_beat_is_what_its_rule_says():
    space = joined()
    rows = space.candidates()[::-1]
    assert (space.bounds(rows) == 0.5).all()


def test_decisions_of_no_rule_are_refused():
    space = joined()
    assert not space.contains({"rows": 1, "mine.rows": 1})
    assert not space.contains({"rows": 4, "columns": 5})
    for decisions in ({"rows": 1, "mine.rows": 1}, {"rows": 4, "columns": 5}):
        with pytest.raises(CompilerError, match=r"has no knobs|does not allow"):
            space.schedule(decisions)


def test_some_rows_cost_what_they_cost_among_all():
    space = joined()
    rows = space.candidates()[[1, 4, -1]]
    some = space.only(rows)
    assert some.rules == space.rules
    assert (some.cost(rows) == space.cost(rows)).all()
    assert some.candidates().tolist() == rows.tolist()


def test_a_panel_s_width_is_found_in_whichever_rule_has_it():
    space = joined()
    assert space.first_with("mine.depth", 6)[0] == {"mine.rows": 1, "mine.depth": 6}
    assert space.first_with("columns", 3)[0] == {"rows": 1, "columns": 3}
    assert space.first_with("depth", 3) is None


def test_the_first_candidates_are_the_default_of_every_rule():
    """A rule is measured however slow its estimates call it."""
    space = joined()
    search = EvolutionarySearch("t", space, CostModel(0))
    assert search.propose(2) == space.defaults() == [part.default() for part in space.spaces]


@pytest.mark.parametrize("faster", ["rows", "mine.rows"])
def test_search_measures_both_rules_and_finds_the_faster(faster):
    search = EvolutionarySearch("task", joined(), CostModel())
    batch = search.propose(8)
    assert batch[0] == built_in().default()
    assert {"mine.rows" in decisions for decisions in batch} == {True, False}
    while batch:
        taken = [(1000 if faster in d else 3000) + 10 * sum(d.values()) for d in batch]
        search.update(
            Trial(d, CandidateResult(Status.OK, (ns,))) for d, ns in zip(batch, taken, strict=True)
        )
        batch = search.propose(8)
    assert len(search.trials) == len(joined().candidates())
    assert faster in search.best.decisions
