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
from farrier_farm.farm import Farm
from farrier_farm.records import archives, older
from farrier_farm.records.entry import RecordEntry
from farrier_farm.records.records import Records
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
        store._add_entries([RecordEntry.of_line(line)])


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
    farm.records._add_entries([RecordEntry.of_line(line)])
    farm.records.add(_record(3))
    assert list(farm.records.export()) == [line, _record(3).to_line()]


def test_export_and_import_carry_everything_over(farm: Farm) -> None:
    for number in range(1203):  # several pages
        farm.records.add(_record(number))
    lines = list(farm.records.export())
    assert len(lines) == 1203
    before = list(farm.records)
    farm.client.command("FLUSHALL")
    encoded = [line.encode() for line in lines]
    assert farm.records.load([*encoded[:600], b"", *(line + b"\n" for line in encoded[500:])]) == (
        1203,
        100,
    )
    assert list(farm.records) == before
    assert farm.records.load(encoded) == (0, 1203)


def test_a_malformed_line_is_named(farm: Farm) -> None:
    good, other = (_record(number).to_line().encode() for number in (1, 2))
    with pytest.raises(UsageError, match=r"line 13 .*not JSON.*the others are not"):
        farm.records.load([good, b"", b"{", other], first=11)
    assert list(farm.records) == [_record(1)]


def test_records_are_archived_as_they_come(farm: Farm, monkeypatch) -> None:
    monkeypatch.setattr(archives, "ARCHIVED_AT_ONCE", 16)
    for number in range(50):
        farm.records.add(_record(number))
    assert len(list(farm.records.archives)) == 3
    assert farm.records.archives.write() is not None
    assert farm.records.archives.write() is None
    assert archived(farm) == list(farm.records.export())


def archived(farm: Farm) -> list[str]:
    """The lines of all archives."""
    blobs = [farm.blobs.verified(digest).read_bytes() for digest in farm.records.archives]
    return b"".join(blobs).decode().splitlines()


def test_archiving_at_once_archives_once(farm: Farm) -> None:
    for number in range(20):
        farm.records.add(_record(number))
    threads = [threading.Thread(target=farm.records.archives.write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(farm.records.archives)) == 1


def _of_class(number: int, device_class: str, task: str = "t1") -> TuningRecord:
    return dataclasses.replace(_record(number, task), device_class=device_class)


def _counts(farm: Farm) -> dict[str, tuple[int, int, float, float]]:
    classes = farm.records.classes()
    return {
        entry.device_class: (entry.records, entry.tasks, entry.oldest, entry.newest)
        for entry in classes
    }


def test_records_are_counted_by_class_when_they_are_added(farm: Farm) -> None:
    assert _counts(farm) == {}
    for number, task in ((4, "t1"), (2, "t2"), (6, "t1"), (6, "t1")):
        farm.records.add(_of_class(number, "a76", task))
    farm.records.add(_of_class(3, ""))
    due = {"a76": (3, 2, 3.0, 9.0), "": (1, 1, 4.5, 4.5)}
    assert _counts(farm) == due
    tile = farm.records.classes()[1].rules
    assert [(summary.rule, summary.records, summary.failed) for summary in tile] == [("tile", 3, 0)]


def _add_as_older(farm: Farm, record: TuningRecord) -> None:
    """As the version before this one did: what it counted by class is of no use any more."""
    line, command = record.to_line(), farm.client.command
    digest = RecordEntry.of_line(line).words[0]
    assert command("HSETNX", "farrier:records:lines", digest, line) == 1
    command("RPUSH", "farrier:records:order", digest)
    command("RPUSH", f"farrier:records:of:{record.task}:{record.fingerprint}", digest)
    command("SADD", "farrier:records:classes", record.device_class)
    command("SADD", f"farrier:records:tasks:{record.device_class}", record.task)
    command("HSET", f"farrier:records:class:{record.device_class}", "records", 1)
    command("INCR", "farrier:records:counted")


def test_what_an_older_version_added_is_taken_in(farm: Farm, monkeypatch, audit) -> None:
    monkeypatch.setattr(older, "_ADOPTED_AT_ONCE", 3)
    records = [_of_class(number, f"c{number % 2}", f"t{number % 5}") for number in range(10)]
    for record in records:
        farm.records.add(record)
    due = _counts(farm)
    farm.client.command("FLUSHALL")
    for record in records[:6]:
        _add_as_older(farm, record)
    farm.client.command("RPUSH", "farrier:records:archives", "ab" * 32)
    farm.client.command("SET", "farrier:records:archived", 4)
    # This is before the older records are moved to the log.
    assert farm.records.find("t1", "f1") == [records[1]]
    farm.records.add(records[1])
    farm.records.add(records[6])
    assert farm.records.count() == 7
    assert farm.records.find("t1", "f1") == [records[1], records[6]]
    for record in records[7:]:  # An older version may run along with this one.
        _add_as_older(farm, record)
    assert list(farm.records) == [records[6], *records[:6], *records[7:]]
    assert farm.records.find("t1", "f1") == [records[6], records[1]]
    assert _counts(farm) == due
    left = ("order", "of:*", "class*", "tasks:*", "counted", "archived", "archives")
    assert not [
        key for name in left for key in farm.client.command("KEYS", f"farrier:records:{name}")
    ]
    farm.records.archives.write()
    assert archived(farm) == list(farm.records.export())
    audit(farm)
