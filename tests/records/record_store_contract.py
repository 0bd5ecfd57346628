"""The guarantees of `farrier.records.RecordStore` as tests, for every store that there is.

A module of tests imports the class and subclasses it; what `pytest` collects there is the contract.
Optuna holds its storages to theirs in the same way (`optuna/testing/pytest_storages.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farrier.errors import StorageError
from farrier.records import Context, RecordStore, RuleId, TuningRecord, best, usable
from farrier_device.measurement import Status

# Each example empties the store itself, and each class has stores of its own.
ONE_STORE_FOR_ALL_EXAMPLES = settings(
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.differing_executors,
    ]
)


TILE = RuleId("register_tile", version=6)
# As the commits wrote it that had one version for all rules.
OLD_LINE = (
    '{"context":"alone","created":1.5,"decisions":[["nb",2],["tx",14]],"fingerprint":"host",'
    '"rule":"register_tile","samples_ns":[1500,1000,1100],"seed":3,"status":"ok","task":"a1",'
    '"threads":2,"trace":"split(conv_oc, 32)\\nvectorize(conv_oc_i)","version":6}'
)


def a_record(**changes: object) -> TuningRecord:
    """A record of a candidate that ran."""
    fields: dict[str, object] = {
        "task": "a1",
        "fingerprint": "host",
        "threads": 2,
        "rule": TILE.name,
        "version": TILE.version,
        "decisions": (("nb", 2), ("tx", 14)),
        "trace": "split(conv_oc, 32)\nvectorize(conv_oc_i)",
        "status": Status.OK,
        "samples_ns": (1500, 1000, 1100),
        "seed": 3,
        "created": 1.5,
    }
    return TuningRecord(**{**fields, **changes})


def records(names: st.SearchStrategy[str]) -> st.SearchStrategy[TuningRecord]:
    """Records of any content, whose texts are drawn from `names`."""
    return st.builds(
        TuningRecord,
        task=names,
        fingerprint=names,
        threads=st.integers(1, 64),
        rule=names,
        version=st.integers(0, 9),
        decisions=st.dictionaries(names, st.integers()).map(lambda d: tuple(sorted(d.items()))),
        trace=names,
        status=st.sampled_from(Status),
        samples_ns=st.lists(st.integers(0, 2**60)).map(tuple),
        seed=st.integers(0, 2**31),
        created=st.floats(0, 1e10),
        context=st.sampled_from(Context),
    )


_AWKWARD = st.text(alphabet="a:/\\ \n\"'", max_size=3)


class RecordStoreContract:
    """The promises of every RecordStore. A subclass defines the fixture `new_store`."""

    @pytest.fixture
    def new_store(self) -> Callable[[], RecordStore]:
        """Make an empty store, the only one in use from then on."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, new_store: Callable[[], RecordStore]) -> RecordStore:
        return new_store()

    def test_an_empty_store_finds_nothing(self, store):
        assert store.find("a1", "host") == []
        assert list(store) == []

    def test_what_was_added_is_found_by_task_and_target_in_order(self, store):
        first, second = a_record(seed=9), a_record(seed=1)
        other_task, other_target = a_record(task="b2"), a_record(fingerprint="board")
        for record in (first, other_task, second, other_target):
            store.add(record)
        assert store.find("a1", "host") == [first, second]
        assert store.find("b2", "host") == [other_task]
        assert store.find("a1", "board") == [other_target]
        assert store.find("b2", "board") == []
        assert list(store) == [first, other_task, second, other_target]

    @pytest.mark.parametrize(
        "changes",
        [
            *({"status": status, "samples_ns": ()} for status in Status if status != Status.OK),
            {"version": TILE.version + 1},
            {"threads": 64},
            {"context": Context.MODEL},
            {"rule": "rows"},
        ],
        ids=str,
    )
    def test_find_gives_records_of_every_kind(self, store, changes):
        records = [a_record(), a_record(**changes)]
        for record in records:
            store.add(record)
        assert store.find("a1", "host") == records

    def test_adding_twice_stores_once_where_it_was(self, store):
        for record in (a_record(), a_record(seed=4), a_record()):
            store.add(record)
        assert store.find("a1", "host") == list(store) == [a_record(), a_record(seed=4)]

    @pytest.mark.parametrize(
        "changes",
        [
            {"samples_ns": (1500, 1000)},
            {"trace": ""},
            {"decisions": (("nb", 2),)},
            {"created": 1.25},
            {"context": Context.MODEL},
        ],
        ids=str,
    )
    def test_records_that_differ_in_one_field_are_two(self, store, changes):
        for record in (a_record(), a_record(**changes)):
            store.add(record)
        assert list(store) == [a_record(), a_record(**changes)]

    def test_find_hands_out_a_list_of_the_callers_own(self, store):
        store.add(a_record())
        store.find("a1", "host").clear()
        assert store.find("a1", "host") == [a_record()]

    def test_adding_does_not_disturb_who_iterates(self, store):
        before = [a_record(seed=seed) for seed in range(3)]
        for record in before:
            store.add(record)
        seen = []
        for record in store:
            seen.append(record)
            store.add(a_record(seed=100))
        assert seen[:3] == before
        assert list(store) == [*before, a_record(seed=100)]

    def test_names_that_read_the_same_when_joined_are_two_places(self, store):
        first, second = (
            a_record(task="a:b", fingerprint="c"),
            a_record(task="a", fingerprint="b:c"),
        )
        store.add(first)
        store.add(second)
        assert store.find("a:b", "c") == [first]
        assert store.find("a", "b:c") == [second]

    def test_strange_text_is_kept(self, store):
        record = a_record(task='q"\\\n\u2028é', trace="a\nb\r\n\x00", rule="\U0001f600")
        store.add(record)
        assert store.find(record.task, "host") == list(store) == [record]

    @ONE_STORE_FOR_ALL_EXAMPLES
    @given(added=st.lists(records(_AWKWARD), max_size=6), again=st.randoms(use_true_random=False))
    def test_it_is_an_ordered_set_of_any_records(self, new_store, added, again):
        store = new_store()
        for record in added:
            store.add(record)
            store.add(again.choice(added[: added.index(record) + 1]))
        distinct = list(dict.fromkeys(added))
        assert list(store) == distinct
        tasks = {record.task for record in added}
        for task in tasks:
            for fingerprint in {record.fingerprint for record in added}:
                assert store.find(task, fingerprint) == [
                    r for r in distinct if (r.task, r.fingerprint) == (task, fingerprint)
                ]

    def test_what_is_usable_and_what_is_best(self, store):
        slow, fast = a_record(), a_record(samples_ns=(900,), seed=1, decisions=(("nb", 1),))
        failed = a_record(status=Status.WRONG, samples_ns=(), seed=2)
        others = [
            a_record(samples_ns=(1,), **change)
            for change in ({"version": 5}, {"version": 7}, {"rule": "rows"})
        ]
        for record in (*others, slow, fast, failed):
            store.add(record)
        assert usable(store, "a1", "host", 2, TILE) == [slow, fast, failed]
        assert best(store, "a1", "host", 2, TILE) == fast
        assert best(store, "a1", "host", 2, RuleId("register_tile", 7)) == others[1]
        assert list(store) == [*others, slow, fast, failed]


class LastingRecordStoreContract(RecordStoreContract):
    """The further promises of a store that outlives its object."""

    def reopen(self, store: RecordStore) -> RecordStore:
        """Another object of the same store."""
        raise NotImplementedError

    def broken(self, store: RecordStore) -> contextlib.AbstractContextManager[None]:
        """Within, the store has no room for another record."""
        raise NotImplementedError

    def plant(self, store: RecordStore, line: str) -> None:
        """Put a line among the records of task a1 on the target host, as another version would."""
        raise NotImplementedError

    def test_what_was_added_is_there_for_another_object(self, store):
        records = [a_record(), a_record(task="b2"), a_record(seed=4)]
        for record in records:
            store.add(record)
        again = self.reopen(store)
        assert list(again) == records
        assert again.find("a1", "host") == [records[0], records[2]]
        for record in reversed(records):
            again.add(record)
        assert list(self.reopen(again)) == records

    def test_a_record_that_has_no_room_is_added_once_there_is(self, store):
        store.add(a_record())
        with self.broken(store), pytest.raises(StorageError) as caught:
            store.add(a_record(seed=4))
        assert caught.value.hint
        store.add(a_record(seed=4))
        assert list(store) == [a_record(), a_record(seed=4)]
        assert list(self.reopen(store)) == [a_record(), a_record(seed=4)]

    def test_lines_of_one_version_for_all_rules_count_for_the_rule(self, store):
        self.plant(store, OLD_LINE)
        self.plant(store, OLD_LINE.replace('"version":6', '"version":5'))
        again = self.reopen(store)
        assert list(again) == [a_record(), a_record(version=5)]
        assert usable(again, "a1", "host", 2, TILE) == [a_record()]
        again.add(a_record())
        assert list(self.reopen(again)) == [a_record(), a_record(version=5)]

    @pytest.mark.parametrize(
        "line",
        [
            a_record().to_line().replace('"rule":', '"colour":1,"rule":'),
            a_record().to_line().replace('"status":"ok"', '"status":"dreaming"'),
            "{",
        ],
        ids=["a newer field", "a newer status", "damage"],
    )
    def test_what_cannot_be_read_is_passed_over(self, store, line):
        store.add(a_record())
        self.plant(store, line)
        again = self.reopen(store)
        again.add(a_record(seed=4))
        assert again.find("a1", "host") == [a_record(), a_record(seed=4)]
        assert list(self.reopen(again)) == [a_record(), a_record(seed=4)]
