"""Tuning records in Redis: a `RecordStore` like the others, exported, imported, archived."""

from __future__ import annotations

import dataclasses
import json
import threading

import pytest

from farrier.errors import UsageError
from farrier.records import MemoryRecords, TuningRecord, best
from farrier_device.measurement import Status
from farrier_farm import records as records_module
from farrier_farm.farm import Farm


def _record(number: int, task: str = "t1", fingerprint: str = "f1") -> TuningRecord:
    return TuningRecord(
        task=task,
        fingerprint=fingerprint,
        threads=2,
        rule="tile",
        decisions=(("ti", 7), ("tj", number)),
        trace=f"split i 7; split j {number}; comment 'ü'",
        status=Status.OK,
        samples_ns=(1000 + number, 1001 + number),
        created=1.5 * number,
    )


def test_it_answers_like_the_store_in_memory(farm: Farm) -> None:
    memory = MemoryRecords()
    for number in range(40):
        record = _record(number % 31, f"t{number % 3}", f"f{number % 2}")
        memory.add(record)
        farm.records.add(record)
    assert list(farm.records) == list(memory)
    assert farm.records.count() == len(memory)
    for task in ("t0", "t1", "t2", "t3"):
        for fingerprint in ("f0", "f1", "f2"):
            assert farm.records.find(task, fingerprint) == memory.find(task, fingerprint)
    assert best(farm.records, "t1", "f1", 2) == best(memory, "t1", "f1", 2)


def test_a_record_added_twice_counts_once(farm: Farm) -> None:
    failed = dataclasses.replace(_record(3), status=Status.TIMEOUT, samples_ns=())
    for _ in range(3):
        farm.records.add(_record(3))
        farm.records.add(failed)
    assert farm.records.find("t1", "f1") == [_record(3), failed]


def test_records_of_other_schedule_languages_are_kept_apart(farm: Farm) -> None:
    newer = dataclasses.replace(_record(3), version=99)
    farm.records.add(newer)
    assert farm.records.find("t1", "f1") == [newer]
    assert best(farm.records, "t1", "f1", 2) is None


@pytest.mark.parametrize("change", [{"surprise": 1}, {"status": "dreaming"}])
def test_records_that_only_a_newer_worker_reads_are_passed_over(farm: Farm, change) -> None:
    line = json.dumps({**json.loads(_record(2).to_line()), **change})
    farm.records._add_line("t1", "f1", line)
    farm.records.add(_record(3))
    assert farm.records.find("t1", "f1") == [_record(3)]
    assert list(farm.records) == [_record(3)]
    assert line in list(farm.records.export())


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
