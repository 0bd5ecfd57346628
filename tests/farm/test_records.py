"""Tuning records in Redis: a `RecordStore` like the others, exported, imported, archived."""

from __future__ import annotations

import contextlib
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
