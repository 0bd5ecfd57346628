"""A space as search sees it: populations that never leave the constraint, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.errors import CompilerError
from farrier.records import RuleId
from farrier.space import Estimate, Features, Knob, Space


def a_space(values, limit=None, recipe=None):
    """A space of knobs with the given values whose sum must not exceed `limit`."""
    knobs = tuple(Knob(f"k{i}", tuple(v)) for i, v in enumerate(values))

    def total(columns):
        return sum(columns.values())

    return Space(
        RuleId("test", 1),
        knobs,
        lambda c: np.ones(len(c["k0"]), bool) if limit is None else total(c) <= limit,
        lambda c: Estimate(1e-6 * (1.0 + total(c)), {"compute": 1e-7 * (1.0 + total(c))}),
        recipe or (lambda decisions: decisions),
    )


knob_values = st.lists(
    st.lists(st.integers(0, 40), min_size=1, max_size=6, unique=True), min_size=1, max_size=6
)


@given(knob_values, st.integers(0, 2**32 - 1), st.data())
def test_nothing_ever_leaves_the_constraint(values, seed, data):
    low = sum(min(v) for v in values)
    space = a_space(values, data.draw(st.integers(low, low + 60)))
    rng = np.random.default_rng(seed)
    rows = space.candidates()
    assert space.valid(rows).all()
    assert len(np.unique(rows, axis=0)) == len(rows)
    parents = rows[rng.integers(len(rows), size=50)]
    mates = rows[rng.integers(len(rows), size=50)]
    for children in (
        space.mutate(parents, rng),
        space.crossover(parents, mates, rng),
        space.neighbours(rows[0]),
    ):
        assert children.shape[1] == len(values)
        assert space.valid(children).all()
    near = space.neighbours(rows[0])
    assert ((near != rows[0]).sum(axis=1) == 1).all()


@given(knob_values)
def test_rows_and_decisions_are_the_same_thing(values):
    space = a_space(values)
    for row in space.candidates()[:20]:
        assert (space.row(space.decisions(row)) == row).all()
        assert space.contains(space.decisions(row))


def test_candidates_are_all_that_is_allowed():
    space = a_space([(0, 1, 2), (0, 5)], limit=5)
    assert space.candidates().tolist() == [[0, 0], [0, 5], [1, 0], [2, 0]]
    assert space.size == 6
    assert space.is_whole


def test_a_large_space_is_sampled_deterministically():
    space = a_space([tuple(range(64))] * 6, limit=190)
    assert not space.is_whole
    rows = space.candidates(5000, seed=3)
    assert 1000 < len(rows) <= 5000
    assert space.valid(rows).all()
    assert (rows == space.candidates(5000, seed=3)).all()
    assert not np.array_equal(rows, space.candidates(5000, seed=4))


def test_an_empty_space_is_a_defect_of_its_rule():
    with pytest.raises(CompilerError, match="empty"):
        a_space([(1, 2)], limit=0).candidates()


@pytest.mark.parametrize("decisions", [{"k0": 3}, {"k0": 1, "k1": 5}, {"k0": 2, "k1": 9, "z": 0}])
def test_decisions_that_are_not_allowed_do_not_build(decisions):
    space = a_space([(1, 2), (4, 5, 9)], limit=5)
    assert not space.contains(decisions)
    with pytest.raises(CompilerError):
        space.schedule(decisions)


def test_the_default_is_the_cheapest():
    space = a_space([(3, 1, 2), (7, 5, 6)])
    assert space.default() == {"k0": 1, "k1": 5}
    rows = space.candidates()
    assert space.cost(rows).min() == space.cost(space.row(space.default())[None])[0]


def test_seconds_are_the_cost_of_one_candidate():
    space = a_space([(3, 1, 2), (7, 5)])
    rows = space.candidates()
    seconds = [space.seconds(space.decisions(row)) for row in rows]
    assert seconds == space.cost(rows).tolist()


def test_features_have_names_that_mean_the_same_in_every_space():
    small, large = a_space([(1, 2)]), a_space([(1, 2), (3, 4), (5, 6)])
    large.about = {"machine.lanes": 4.0}
    small_features, large_features = (
        space.described(space.candidates())[0] for space in (small, large)
    )
    assert small_features.names == ("seconds", "compute", "knob.k0")
    assert large_features.names == (*small_features.names, "knob.k1", "knob.k2", "machine.lanes")
    assert len(np.unique(large_features.table, axis=0)) == 8
    assert np.isfinite(large_features.table).all()
    both = Features.joined([small_features, large_features])
    assert both.names == large_features.names
    assert np.isnan(both.column("knob.k1")).sum() == len(small_features) == 2
    assert (both[np.arange(10) >= 2].table == large_features.table).all()
    assert (both.under(small_features.names)[:2] == small_features.table).all()


def test_a_knob_that_packs_several_numbers_shows_each():
    def halves(values):
        return {"high": values // 10, "low": values % 10}

    space = Space(
        RuleId("test", 1),
        (Knob("tile", (11, 37), halves),),
        lambda columns: np.ones(len(columns["tile"]), bool),
        lambda columns: Estimate(np.ones(len(columns["tile"])), {}),
        lambda decisions: decisions,
    )
    features = space.described(space.candidates())[0]
    assert features.column("knob.tile.high").tolist() == pytest.approx([1, 2])
    assert features.column("knob.tile.low").tolist() == pytest.approx([1, 3])


def test_a_space_of_some_rows_has_no_others():
    space = a_space([(3, 1, 2), (7, 5, 6)])
    rows = space.candidates()[[1, 4, 5]]
    some = space.only(rows)
    assert some.is_whole
    assert (some.candidates() == rows).all()
    assert (some.cost(rows) == space.cost(rows)).all()
    assert some.valid(space.candidates()).sum() == 3
    near = some.neighbours(rows[0])
    assert len(near)
    assert some.valid(near).all()


def test_the_bound_is_below_every_cost():
    space = a_space([(3, 1, 2), (7, 5, 6)])
    assert 0 < space.bound <= space.cost(space.candidates()).min()
