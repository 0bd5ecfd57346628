"""Scores of rankings: of figures small enough to count by hand, and what holds of all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.cost_model.scores import pairwise, regret, top

times = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=40).map(np.array)


def test_pairs_that_differ_enough_are_counted():
    seconds = np.array([1.0, 1.01, 2.0])
    assert pairwise(np.array([1.0, 0.5, 2.0]), seconds, 0.02) == 1.0
    assert pairwise(np.array([3.0, 0.5, 2.0]), seconds, 0.02) == 0.5
    assert pairwise(np.array([1.0, 1.0, 1.0]), seconds, 0.02) == 0.5
    assert pairwise(np.array([1.0, 2.0, 3.0]), seconds, 2.0) is None


def test_regret_is_of_the_first_choice():
    assert regret(np.array([2.0, 1.0, 3.0]), np.array([1.0, 1.5, 3.0])) == pytest.approx(0.5)


def test_more_choices_find_the_best_sooner():
    predicted, seconds = np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 1.0])
    assert [top(predicted, seconds, count) for count in (1, 2, 3)] == [0.5, 0.5, 1.0]


@given(times)
def test_the_true_order_is_perfect_and_its_reverse_the_worst(seconds):
    assert pairwise(seconds, seconds, 0.02) in (1.0, None)
    assert pairwise(-seconds, seconds, 0.02) in (0.0, None)
    assert regret(seconds, seconds) == 0
    assert top(seconds, seconds, 1) == 1
    assert regret(-seconds, seconds) == pytest.approx(seconds.max() / seconds.min() - 1)
