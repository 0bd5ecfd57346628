"""Records of private jobs: in stores of their own, one a user."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from farrier.options import CompileOptions
from farrier.records import ALL, Pruning, Selection, TuningRecord
from farrier_farm.farm import Farm
from farrier_farm.jobs.jobs import Job
from farrier_farm.records import archives
from farrier_farm.records.archives import all_archives
from farrier_farm.records.records import Records
from tests.farm.records.record_indexes import check_records
from tests.farm.records.test_pruning import records
from tests.records.record_store_contract import RecordStoreContract


class TestPrivateRecords(RecordStoreContract):
    @pytest.fixture
    def new_store(self, farm: Farm) -> Callable[[], Records]:
        def make() -> Records:
            farm.client.command("FLUSHALL")
            return farm.private_records("ann")

        return make


def _running(farm: Farm, owner: str, *, private: bool) -> Job:
    options = CompileOptions(verify=False, target="rpi4")
    farm.jobs.submit(farm.blobs.put(b"model"), options, owner=owner, private=private)
    lease = farm.jobs.lease("worker", 1)
    assert lease is not None
    return farm.jobs.get(lease.item)


def _find(farm: Farm, job: Job, record: TuningRecord) -> list[TuningRecord]:
    place = farm.jobs.admitted(job).place
    store = farm.job_records(farm.records_of(job), place, farm.runner(place))
    return store.find(record.task, record.fingerprint)


def test_a_private_record_is_found_by_its_owners_private_jobs_alone(farm: Farm) -> None:
    shared, own = records(2)
    own = dataclasses.replace(own, task=shared.task, fingerprint=shared.fingerprint)
    farm.records.add(shared)
    job = _running(farm, "ann", private=True)
    farm.records_of(job).add(own, job.id)
    assert list(farm.records) == [shared]
    assert list(farm.private_records("ann")) == [own]
    assert list(farm.private_records("ben")) == []
    assert set(_find(farm, job, own)) == {shared, own}
    for owner, private in [("ann", False), ("ben", True), ("ben", False)]:
        assert _find(farm, _running(farm, owner, private=private), own) == [shared]
    [trial], _ = farm.trials.list(job.id, after="", limit=10)
    assert farm.records_of(job).lines([trial.record]) == [own.to_line()]
    assert farm.records.lines([trial.record]) == [None]


def test_of_records_in_both_stores_the_last_made_comes_last(farm: Farm) -> None:
    """As those of one store do: what counts of a schedule is its latest record."""
    [first] = records(1)
    copies = [dataclasses.replace(first, created=float(when)) for when in (3, 1, 2)]
    farm.records.add_all(copies[1:])
    job = _running(farm, "ann", private=True)
    farm.records_of(job).add(copies[0], job.id)
    assert [record.created for record in _find(farm, job, first)] == [1.0, 2.0, 3.0]


def test_all_that_is_done_with_records_is_done_within_a_store(
    farm: Farm, audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "ARCHIVED_AT_ONCE", 16)
    all_records, private = records(60), farm.private_records("ann")
    farm.records.add_all(all_records[:40])
    private.add_all(all_records[20:])
    for store in (farm.records, private, farm.private_records("ben")):
        check_records(farm, store)
    audit(farm)
    done = farm.record_pruning.step(private, Pruning(Selection(failed=True)))
    gone = [record for record in all_records[20:] if not record.samples_ns]
    assert done.records == len(gone) > 0
    assert list(private) == [record for record in all_records[20:] if record.samples_ns]
    assert list(farm.records) == all_records[:40]
    assert private.page(ALL).lines == [record.to_line() for record in private]
    assert sum(record.records for record in private.classes()) == private.count() == 40 - len(gone)
    assert private.load([record.to_line().encode() for record in gone]) == (len(gone), 0)
    check_records(farm, private)
    audit(farm)


def test_garbage_is_not_what_private_archives_hold(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "ARCHIVED_AT_ONCE", 16)
    private = farm.private_records("ann")
    private.add_all(records(20))
    old = Farm.open(dataclasses.replace(farm.settings, blob_age_s=0.0))
    farm.client.command("SADD", private.store + "stale", *_archive_ids(farm, private))
    old.collect_garbage()
    old.close()
    assert not farm.client.command("EXISTS", private.store + "stale")
    [digest] = [
        digest_of_archive
        for archives in all_archives(farm.client, farm.blobs)
        for digest_of_archive in archives
    ]
    lines = farm.blobs.verified(digest).read_text().splitlines()
    assert lines == list(private.export())


def _archive_ids(farm: Farm, private: Records) -> list[str]:
    entries = farm.client.command("XRANGE", private.store + "archived-up-to", "-", "+")
    return [entry_id for entry_id, _ in entries]
