"""Tests of pruning: it removes the selected records, and never a record that decides a schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.errors import UsageError
from farrier.records import (
    Context,
    MemoryRecords,
    Pruning,
    RuleId,
    Selection,
    TuningRecord,
    best,
)
from farrier_device.measurement import Status
from tests.records.record_store_contract import TILE, a_record


def _measured() -> st.SearchStrategy[TuningRecord]:
    """Records of few schedules, so that they meet."""
    times = st.sampled_from([(), (100,), (200,), (300,), (300, 400)])
    return st.builds(
        lambda samples_ns, **fields: a_record(
            samples_ns=samples_ns, status=Status.OK if samples_ns else Status.WRONG, **fields
        ),
        samples_ns=times,
        decisions=st.sampled_from([(("nb", value),) for value in range(4)]),
        context=st.sampled_from(Context),
        created=st.sampled_from([1.0, 2.0, 3.0, 4.0]),
        device_class=st.sampled_from(["", "a76"]),
        version=st.sampled_from([TILE.version, TILE.version + 1]),
        threads=st.sampled_from([1, 2]),
        seed=st.integers(0, 3),
    )


_SELECTIONS = st.builds(
    Selection,
    device_class=st.sampled_from([None, "a76"]),
    before=st.sampled_from([None, 3.0]),
    failed=st.booleans(),
)


def _decisive(records: list[TuningRecord]) -> list[TuningRecord | None]:
    store, rules = MemoryRecords(records), (TILE, RuleId(TILE.name, TILE.version + 1))
    return [best(store, "a1", "host", threads, rule) for threads in (1, 2) for rule in rules]


@given(st.lists(_measured(), max_size=25, unique=True), _SELECTIONS, st.integers(1, 3), st.data())
def test_what_is_best_stays_wherever_it_is_stopped(records, selection, keep, data):
    pruning = Pruning(selection, keep)
    doomed = pruning.records_to_remove(records)
    assert all(selection.admits(record) for record in doomed)
    stopped = doomed[: data.draw(st.integers(0, len(doomed)))]
    left = [record for record in records if record not in stopped]
    assert _decisive(left) == _decisive(records)
    again = pruning.records_to_remove(left)
    assert set(stopped) | set(again) == set(doomed)
    assert pruning.records_to_remove([record for record in left if record not in again]) == []


def test_the_fastest_of_each_class_and_context_stay():
    def timed(us, value, **fields):
        return a_record(samples_ns=(us * 1000,), decisions=(("nb", value),), **fields)

    fast, slow, corrected = timed(1, 1), timed(3, 3), timed(1, 2, created=0.5)
    middle = timed(2, 2)
    elsewhere = timed(9, 3, device_class="a76", threads=4)
    in_model = timed(7, 3, context=Context.MODEL)
    screened = timed(1, 5, context=Context.SCREENED)
    failed = a_record(samples_ns=(), status=Status.WRONG)
    records = [fast, slow, corrected, middle, elsewhere, in_model, screened, failed]
    assert Pruning(Selection(), keep=2).records_to_remove(records) == [
        corrected,
        screened,
        failed,
        slow,
    ]
    assert Pruning(Selection(failed=True), keep=1).records_to_remove(records) == [failed]
    assert Pruning(Selection(device_class="a76")).records_to_remove(records) == [elsewhere]


def test_rules_that_are_not_known_are_told_by_name_and_version():
    other, older = a_record(rule="gone"), a_record(version=TILE.version - 1)
    pruning = Pruning(Selection(rules=frozenset({TILE})))
    assert pruning.records_to_remove([a_record(), other, older]) == [other, older]


@pytest.mark.parametrize("keep", [0, -1])
def test_to_keep_none_is_an_error(keep):
    with pytest.raises(UsageError, match="cannot be kept"):
        Pruning(Selection(), keep)


def test_to_choose_nothing_is_an_error():
    with pytest.raises(UsageError, match="no criterion selects") as caught:
        Pruning(Selection())
    assert caught.value.hint
