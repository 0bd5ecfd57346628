"""Tuning records in Redis: a `RecordStore` like the others, exported, imported, archived."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Callable, Iterator

import pytest

from farrier.errors import ServiceError, UsageError
from farrier.records import TuningRecord
from farrier_device.measurement import Status
from farrier_farm import records as records_module
from farrier_farm.farm import Farm
from farrier_farm.records import Records
from tests.records.record_store_contract import LastingRecordStoreContract


def _record(number: int, task: str = "t1", fingerprint: str = "f1") -> TuningRecord:
    return TuningRecord(
        task=task,
        fingerprint=fingerprint,
        threads=2,
        rule="tile",
        version=1,
        decisions=(("ti", 7), ("tj", number)),
        trace=f"split i 7; split j {number}; comment 'ü'",
        status=Status.OK,
        samples_ns=(1000 + number, 1001 + number),
        created=1.5 * number,
    )


class TestRecords(LastingRecordStoreContract):
    @pytest.fixture
    def new_store(self, farm: Farm) -> Callable[[], Records]:
        def make() -> Records:
            farm.client.command("FLUSHALL")
            return farm.records

        return make

    @pytest.fixture(autouse=True)
    def _another_client(self, farm: Farm) -> Iterator[None]:
        self.farm, self.other = farm, Farm.open(farm.settings)
        yield
        self.other.close()

    def reopen(self, store: Records) -> Records:
        return self.other.records if store is self.farm.records else self.farm.records

    @contextlib.contextmanager
    def broken(self, store: Records) -> Iterator[None]:
        self.farm.client.command("CONFIG", "SET", "maxmemory", "1")
        try:
            yield
        finally:
            self.farm.client.command("CONFIG", "SET", "maxmemory", "0")

    def plant(self, store: Records, line: str) -> None:
        store._add_line("a1", "host", line)


def test_what_survives_a_killed_server(installation) -> None:
    with contextlib.closing(Farm.open(installation.settings)) as farm:
        for number in range(5):
            farm.records.add(_record(number))
        installation.kill_redis()
        installation.start_redis()
        assert list(farm.records) == farm.records.find("t1", "f1") == list(map(_record, range(5)))


def test_a_server_that_is_gone_is_a_service_error(installation) -> None:
    with contextlib.closing(Farm.open(installation.settings)) as farm:
        installation.stop_redis()
        with pytest.raises(ServiceError, match="does not answer"):
            farm.records.add(_record(1))
        installation.start_redis()
        farm.records.add(_record(1))
        assert list(farm.records) == [_record(1)]


def test_lines_that_only_a_newer_worker_reads_are_exported(farm: Farm) -> None:
    line = json.dumps({**json.loads(_record(2).to_line()), "surprise": 1})
    farm.records._add_line("t1", "f1", line)
    farm.records.add(_record(3))
    assert list(farm.records.export()) == [line, _record(3).to_line()]


def test_export_and_import_carry_everything_over(farm: Farm) -> None:
    for number in range(1203):  # several pages
        farm.records.add(_record(number))
    lines = list(farm.records.export())
    assert len(lines) == 1203
    before = list(farm.records)
    farm.client.command("FLUSHALL")
    assert farm.records.load([*lines[:600], "", *(line + "\n" for line in lines[500:])]) == 1203
    assert list(farm.records) == before
    assert farm.records.load(lines) == 0


def test_a_malformed_line_is_named(farm: Farm) -> None:
    good = _record(1).to_line()
    with pytest.raises(UsageError, match=r"line 3 .*not JSON"):
        farm.records.load([good, "", "{"])
    assert farm.records.count() == 1


def test_records_are_archived_as_they_come(farm: Farm, monkeypatch) -> None:
    monkeypatch.setattr(records_module, "ARCHIVED_AT_ONCE", 16)
    for number in range(50):
        farm.records.add(_record(number))
    assert len(farm.records.archives()) == 3
    assert farm.records.archive() is not None
    assert farm.records.archive() is None
    archived = b"".join(
        farm.blobs.verified(digest).read_bytes() for digest in farm.records.archives()
    )
    assert archived.decode().splitlines() == list(farm.records.export())


def test_archiving_at_once_archives_once(farm: Farm) -> None:
    for number in range(20):
        farm.records.add(_record(number))
    threads = [threading.Thread(target=farm.records.archive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(farm.records.archives()) == 1


def _of_class(number: int, device_class: str, task: str = "t1") -> TuningRecord:
    return dataclasses.replace(_record(number, task), device_class=device_class)


def _counts(farm: Farm) -> dict[str, tuple[int, int, float, float]]:
    found = farm.records.classes()
    return {one.device_class: (one.records, one.tasks, one.oldest, one.newest) for one in found}


def test_records_are_counted_by_class_when_they_are_added(farm: Farm) -> None:
    assert _counts(farm) == {}
    for number, task in ((4, "t1"), (2, "t2"), (6, "t1"), (6, "t1")):
        farm.records.add(_of_class(number, "a76", task))
    farm.records.add(_of_class(3, ""))
    due = {"a76": (3, 2, 3.0, 9.0), "": (1, 1, 4.5, 4.5)}
    assert _counts(farm) == due
    farm.records.count_classes()
    assert _counts(farm) == due


def test_what_an_older_version_added_is_counted_once(farm: Farm, monkeypatch) -> None:
    monkeypatch.setattr(records_module, "_COUNTED_AT_ONCE", 3)
    for number in range(10):
        farm.records.add(_of_class(number, f"c{number % 2}", f"t{number % 5}"))
    due = _counts(farm)
    # An older version stores the same and counts nothing; it may go on beside this one.
    for key in farm.client.command("KEYS", "farrier:records:c*"):
        farm.client.command("DEL", key)
    for key in farm.client.command("KEYS", "farrier:records:tasks:*"):
        farm.client.command("DEL", key)
    farm.records.add(_of_class(10, "c0", "t1"))  # not counted before those that precede it
    assert _counts(farm) == {}
    farm.records._add_line("odd", "f", "no JSON")
    farm.records.count_classes()
    records, tasks, oldest, _ = due["c0"]
    assert _counts(farm) == {
        "": (1, 1, 0.0, 0.0),
        "c0": (records + 1, tasks, oldest, 15.0),
        "c1": due["c1"],
    }
    farm.records.add(_of_class(11, "c1"))
    assert _counts(farm)["c1"][0] == due["c1"][0] + 1
