"""Tests of tuning records: their JSON lines, the stores of one process, damage on disk, usable
records."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.errors import StorageError, UsageError
from farrier.records import (
    LONGEST_LINE,
    Context,
    Damage,
    FileRecords,
    MemoryRecords,
    RuleId,
    TuningRecord,
    best,
    usable,
)
from farrier_device.measurement import Status
from tests.records.record_store_contract import (
    TILE,
    LastingRecordStoreContract,
    RecordStoreContract,
    a_record,
    records,
)


@given(records(st.text(max_size=20)))
def test_a_line_reads_back_and_is_one_line(record):
    line = record.to_line()
    assert "\n" not in line
    assert TuningRecord.from_line(line) == record


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("threads", "2"),
        ("threads", True),
        ("status", "great"),
        ("samples_ns", [1, -2]),
        ("samples_ns", 7),
        ("decisions", [["nb"]]),
        ("decisions", [["nb", 2.5]]),
        ("trace", None),
        ("created", "now"),
        ("context", "nowhere"),
    ],
)
def test_a_wrong_field_is_an_error(field, value):
    raw = json.loads(a_record().to_line())
    raw[field] = value
    with pytest.raises(ValueError):
        TuningRecord.from_line(json.dumps(raw))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '"a"', a_record().to_line()[:-5]])
def test_text_that_is_no_record_is_an_error(text):
    with pytest.raises(ValueError):
        TuningRecord.from_line(text)


def test_an_unknown_field_is_an_error():
    raw = json.loads(a_record().to_line())
    with pytest.raises(ValueError, match="colour"):
        TuningRecord.from_line(json.dumps({**raw, "colour": 1}))


def test_seconds_are_of_the_fastest_quarter_and_infinite_for_a_failure():
    quarter = (1000, 9000, 1200, 5000, 2000, 2000, 2000, 3000)
    assert a_record(samples_ns=quarter).seconds == pytest.approx(1.1e-6)
    assert a_record(samples_ns=(1300, 1200)).seconds == pytest.approx(1.2e-6)
    assert a_record(status=Status.CRASHED, samples_ns=()).seconds == float("inf")


class TestMemoryRecords(RecordStoreContract):
    @pytest.fixture
    def new_store(self):
        return MemoryRecords


class TestFileRecords(LastingRecordStoreContract):
    @pytest.fixture
    def new_store(self, tmp_path):
        def make():
            path = tmp_path / "records.jsonl"
            path.unlink(missing_ok=True)
            return FileRecords(path)

        return make

    def reopen(self, store):
        return FileRecords(store.path)

    @contextlib.contextmanager
    def broken(self, store):
        """The next record is cut short: no file of this process may grow by more than 20 bytes."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (store.path.stat().st_size + 20, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    def plant(self, store, line):
        with store.path.open("a") as file:
            file.write(f"{line}\n")

    def test_every_truncation_keeps_the_whole_lines(self, store):
        store.add(a_record())
        store.add(a_record(seed=9))
        data = store.path.read_bytes()
        first = data.index(b"\n") + 1
        for end in range(first + 1, len(data) - 1, 7):
            store.path.write_bytes(data[:end])
            torn = self.reopen(store)
            assert list(torn) == [a_record()]
            assert [d.line for d in torn.damaged] == [2]

    def test_a_torn_line_does_not_swallow_the_next_record(self, store):
        store.add(a_record())
        store.path.write_bytes(store.path.read_bytes() + b'{"task": "a')
        self.reopen(store).add(a_record(seed=5))
        again = self.reopen(store)
        assert list(again) == [a_record(), a_record(seed=5)]
        assert len(again.damaged) == 1

    def test_garbage_in_the_middle_is_reported_with_its_line(self, store):
        line = a_record().to_line().encode()
        other = a_record(seed=6).to_line().encode()
        store.path.write_bytes(line + b"\n\xff\xfe\n\n" + other + b"\n")
        again = self.reopen(store)
        assert list(again) == [a_record(), a_record(seed=6)]
        assert [d.line for d in again.damaged] == [2]

    def test_a_line_that_is_too_long_is_damaged_and_stays(self, new_store):
        store = new_store()
        long = '{"trace":"' + "a" * LONGEST_LINE + '"}'
        lines = [a_record().to_line(), long, a_record(seed=6).to_line()]
        store.path.write_text("\n".join(lines))
        again = self.reopen(store)
        assert list(again) == [a_record(), a_record(seed=6)]
        assert again.damaged == (Damage(2, f"it is longer than {LONGEST_LINE} bytes"),)
        again.remove([a_record()])
        assert store.path.read_text().split("\n") == lines[1:]

    def test_another_file_is_refused_and_stays_as_it_is(self, tmp_path):
        path = tmp_path / "records.jsonl"
        path.write_bytes(b"\x93NUMPY\n\x00")
        with pytest.raises(UsageError, match=r"records\.jsonl holds no tuning records: line 1"):
            FileRecords(path)
        path.write_bytes(a_record().to_line().encode()[:20])  # A crash has cut the file short.
        assert [d.line for d in FileRecords(path).damaged] == [1]

    def test_two_processes_append_whole_lines(self, tmp_path):
        path = tmp_path / "records.jsonl"
        code = (
            "import sys; from pathlib import Path\n"
            "from farrier.records import FileRecords, TuningRecord\n"
            "line = sys.stdin.read(); store = FileRecords(Path(sys.argv[1]))\n"
            "import dataclasses\n"
            "for seed in range(int(sys.argv[2]), int(sys.argv[2]) + 20):\n"
            "    store.add(dataclasses.replace(TuningRecord.from_line(line), seed=seed))\n"
        )
        children = [
            subprocess.Popen(
                [sys.executable, "-c", code, path, str(base)], stdin=subprocess.PIPE, text=True
            )
            for base in (0, 100)
        ]
        for child in children:
            child.communicate(a_record().to_line(), timeout=60)
            assert child.returncode == 0
        store = FileRecords(path)
        assert store.damaged == ()
        assert sorted(r.seed for r in store) == [*range(20), *range(100, 120)]

    def test_an_unreadable_file_is_a_storage_error(self, tmp_path):
        (tmp_path / "records.jsonl").mkdir()
        with pytest.raises(StorageError):
            FileRecords(tmp_path / "records.jsonl")

    def test_a_full_disk_is_a_storage_error_and_the_record_is_not_there(self, tmp_path):
        if not os.path.exists("/dev/full"):
            pytest.skip("no /dev/full")
        link = tmp_path / "records.jsonl"
        store = FileRecords(link)
        link.symlink_to("/dev/full")
        with pytest.raises(StorageError):
            store.add(a_record())
        assert list(store) == []


def test_best_is_the_fastest_that_ran():
    slow, fast = a_record(), a_record(samples_ns=(900,), seed=1)
    failed = a_record(status=Status.WRONG, samples_ns=(), seed=2)
    store = MemoryRecords([slow, fast, failed])
    assert best(store, "a1", "host", 2, TILE) == fast
    assert best(store, "a1", "host", 1, TILE) is None
    assert best(store, "a1", "host", 2, RuleId("rows", TILE.version)) is None


def test_best_is_of_those_measured_in_a_model_where_there_are_any():
    alone = a_record(samples_ns=(100,))
    store = MemoryRecords([alone])
    assert best(store, "a1", "host", 2, TILE) == alone
    fast, slow = (a_record(samples_ns=(ns,), seed=ns, context=Context.MODEL) for ns in (800, 900))
    for record in (slow, fast):
        store.add(record)
    assert best(store, "a1", "host", 2, TILE) == fast


def test_of_a_schedule_that_was_measured_again_the_latest_counts():
    lucky = a_record(samples_ns=(100,), created=1.0)
    other = a_record(samples_ns=(500,), created=2.0, decisions=(("rows", 7),))
    again = a_record(samples_ns=(900,), created=3.0)
    assert best(MemoryRecords([again, lucky, other]), "a1", "host", 2, TILE) == other


def test_a_line_that_does_not_say_where_was_measured_alone():
    raw = json.loads(a_record(context=Context.MODEL).to_line())
    del raw["context"]
    assert TuningRecord.from_line(json.dumps(raw)) == a_record()


@pytest.mark.parametrize(
    "change",
    [
        {"version": TILE.version + 1},
        {"version": TILE.version - 1},
        {"rule": "rows"},
        {"fingerprint": "board"},
        {"threads": 4},
        {"task": "b"},
    ],
)
def test_records_of_another_kind_are_never_used(change):
    faster = dataclasses.replace(a_record(samples_ns=(1,)), **change)
    store = MemoryRecords([faster, a_record()])
    assert usable(store, "a1", "host", 2, TILE) == [a_record()]
    assert best(store, "a1", "host", 2, TILE) == a_record()


def test_a_store_that_ignores_the_target_does_no_harm():
    class Careless(MemoryRecords):
        def find(self, task, fingerprint):
            return [r for r in self if r.task == task]

    assert usable(Careless([a_record(fingerprint="board")]), "a1", "host", 2, TILE) == []


class TestFilesThatChange:
    def test_records_are_added_together(self, tmp_path):
        store = FileRecords(tmp_path / "records.jsonl")
        store.add(a_record())
        batch = [a_record(seed=4), a_record(), a_record(seed=4), a_record(seed=5)]
        assert store.add_all(batch) == 2
        assert list(FileRecords(store.path)) == [a_record(), a_record(seed=4), a_record(seed=5)]

    def test_what_is_removed_leaves_the_other_lines_as_they_were(self, tmp_path):
        store = FileRecords(tmp_path / "records.jsonl")
        newer = a_record(seed=7).to_line().replace('"rule":', '"colour":1,"rule":')
        lines = [a_record(seed=1).to_line(), newer, a_record().to_line(), '{"task":']
        store.path.write_text("\n".join(lines))
        store = FileRecords(store.path)
        store.remove([a_record(seed=1), a_record(seed=9)])
        assert store.path.read_text().split("\n") == lines[1:]
        assert list(store) == list(FileRecords(store.path)) == [a_record()]

    def test_a_line_ends_where_it_ends_for_who_reads_it(self, tmp_path):
        path = tmp_path / "records.jsonl"
        spaced = a_record(seed=1).to_line().replace(",", ",\r", 1)
        damaged = f"not\r{a_record().to_line()}"
        path.write_bytes(f"{spaced}\n{a_record().to_line()}\n{damaged}\n".encode())
        store = FileRecords(path)
        assert list(store) == [a_record(seed=1), a_record()]
        store.remove(list(store))
        assert path.read_bytes() == f"{damaged}\n".encode()

    def test_another_process_adds_while_the_file_is_replaced(self, tmp_path):
        path = tmp_path / "records.jsonl"
        records = [a_record(seed=seed) for seed in range(60)]
        FileRecords(path).add_all(records)
        code = (
            "import dataclasses, sys; from pathlib import Path\n"
            "from farrier.records import FileRecords\n"
            "store = FileRecords(Path(sys.argv[1])); print(flush=True)\n"
            "first = next(iter(store))\n"
            "for seed in range(100, 160): store.add(dataclasses.replace(first, seed=seed))\n"
        )
        child = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE)
        child.stdout.readline()
        for record in records:
            FileRecords(path).remove([record])
        assert child.wait(60) == 0
        child.stdout.close()
        assert {record.seed for record in FileRecords(path)} == set(range(100, 160))
