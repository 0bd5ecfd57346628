"""Tests of the division of trials and a budget among rounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.background.rounds import rounds_of
from farrier.options import CompileOptions

BUDGETS = st.none() | st.floats(0.1, 1e5)
TRIALS = st.none() | st.integers(1, 10**6)


@given(BUDGETS, TRIALS)
def test_rounds_spend_what_there_is(budget_s, trials):
    options = CompileOptions(budget_s=budget_s, trials=trials)
    if not options.tunes:
        return
    rounds = rounds_of(options)
    if budget_s is not None:
        assert sum(entry.budget_s for entry in rounds) == pytest.approx(budget_s)
    if trials is not None:
        assert sum(entry.trials for entry in rounds) == trials
    assert all(entry.tunes for entry in rounds)
    assert len({entry.seed for entry in rounds}) == len(rounds)


@pytest.mark.parametrize(
    ("budget_s", "expected"),
    [(8, [8]), (29, [29]), (30, [10, 20]), (300, [20, 40, 80, 160])],
)
def test_each_round_takes_twice_as_long_as_the_one_before(budget_s, expected):
    rounds = rounds_of(CompileOptions(budget_s=budget_s))
    assert [entry.budget_s for entry in rounds] == pytest.approx(expected)


def test_hot_sizes_share_a_round():
    options = CompileOptions(budget_s=300, hot=({"n": 1}, {"n": 2}, {"n": 3}))
    assert len(rounds_of(options)) < len(rounds_of(CompileOptions(budget_s=300)))
