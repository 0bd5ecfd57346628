"""Tests of doubted measurements: none that agree, each that is far from all others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from farrier.cost_model.plausible import FAR, outliers

KNOBS = 3
VALUES = 3
GRID = np.stack(np.meshgrid(*[np.arange(VALUES)] * KNOBS, indexing="ij")).reshape(KNOBS, -1).T
NO_BOUND = 0.0


def times(low, high, count=len(GRID)):
    return st.lists(st.floats(low, high), min_size=count, max_size=count).map(np.array)


def doubted(rows, seconds, bound=NO_BOUND):
    reasons = outliers(rows, np.asarray(seconds), np.full(len(rows), bound))
    return [at for at, reason in enumerate(reasons) if reason]


@given(times(1e-6, FAR * 1e-6), st.randoms())
def test_what_is_within_a_factor_is_believed_however_it_is_spread(seconds, random):
    order = list(range(len(GRID)))
    random.shuffle(order)
    repeated = np.concatenate([GRID, GRID[order]])
    assert doubted(repeated, np.concatenate([seconds, seconds])) == []


@given(
    times(1e-6, 2e-6), st.integers(0, len(GRID) - 1), st.floats(2 * FAR + 0.1, 1e3), st.booleans()
)
def test_what_is_far_from_all_its_neighbours_is_doubted_and_nothing_else(seconds, at, far, fast):
    seconds[at] = seconds[at] / far if fast else seconds[at] * far
    assert doubted(GRID, seconds) == [at]


@given(times(1e-6, 2e-6), st.integers(0, len(GRID) - 1), st.floats(2 * FAR + 0.1, 1e3))
def test_what_is_far_from_the_same_candidate_elsewhere_is_doubted(seconds, at, far):
    rows = np.concatenate([GRID, GRID[[at, at, at]]])
    again = np.concatenate([seconds, [1.5e-6, 1.6e-6, 1.5e-6 * far]])
    assert doubted(rows, again) == [len(rows) - 1]


@given(times(1e-9, 1e-3), st.floats(1e-9, 1e-3), st.randoms())
def test_each_is_judged_alike_in_any_order(seconds, bound, random):
    order = list(range(len(GRID)))
    random.shuffle(order)
    bounds = np.full(len(GRID), bound)
    reasons = outliers(GRID, seconds, bounds)
    assert outliers(GRID[order], seconds[order], bounds) == [reasons[at] for at in order]


@given(times(1e-9, 1e-3), st.floats(1e-9, 1e-3))
def test_what_no_device_could_do_is_doubted(seconds, bound):
    too_fast = {at for at, time in enumerate(seconds) if time * FAR < bound}
    assert too_fast <= set(doubted(GRID, seconds, bound))


def test_what_failed_is_believed_and_says_nothing_of_others():
    seconds = np.full(len(GRID), np.inf)
    seconds[0] = 1e-6
    assert doubted(GRID, seconds) == []


def test_few_neighbours_say_nothing():
    assert doubted(GRID[:3], [1e-6, 1e-3, 1e-3]) == []
