"""Pruning: what goes is gone from every index, in steps that may die anywhere."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from farrier.options import CompileOptions
from farrier.records import MemoryRecords, Pruning, RuleId, Selection, TuningRecord, best
from farrier_device.measurement import Status
from farrier_farm.farm import Farm
from farrier_farm.records import archives, pruning
from farrier_farm.records.entry import RecordEntry
from tests.farm.records.record_indexes import check_records
from tests.here import TARGET

TILE = RuleId("tile", 1)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch) -> None:
    monkeypatch.setattr(pruning, "LOOKED_AT", 7)
    monkeypatch.setattr(pruning, "_REMOVED_AT_ONCE", 3)
    monkeypatch.setattr(pruning, "_RENEWED", 2)
    monkeypatch.setattr(archives, "ARCHIVED_AT_ONCE", 5)


def records(count: int) -> list[TuningRecord]:
    """Return records of few tasks and schedules, some of which failed."""
    chance = random.Random(count)
    created = []
    for number in range(count):
        fails = chance.random() < 0.2
        created.append(
            TuningRecord(
                task=f"t{chance.randrange(3)}",
                fingerprint=f"f{chance.randrange(2)}",
                threads=2,
                rule=chance.choice(["tile", "rows"]),
                version=1,
                decisions=(("ti", chance.randrange(6)),),
                trace="",
                status=Status.TIMEOUT if fails else Status.OK,
                samples_ns=() if fails else (chance.randrange(1, 9),),
                created=float(chance.randrange(50)),
                device_class=chance.choice(["", "a76"]),
                seed=number,
            )
        )
    return created


def prune(farm: Farm, pruning: Pruning, *, is_dry: bool = False) -> int:
    """Step by step, until nothing is left to do; returns how many went."""
    total, after = 0, ""
    while True:
        done = farm.record_pruning.step(farm.records, pruning, after=after, is_dry=is_dry)
        total += done.records
        if not done.next:
            return total
        after = done.next


@pytest.mark.parametrize(
    "pruning",
    [
        Pruning(Selection(device_class="a76")),
        Pruning(Selection(before=25.0)),
        Pruning(Selection(failed=True)),
        Pruning(Selection(rules=frozenset({TILE}))),
        Pruning(Selection(), keep=1),
        Pruning(Selection(before=40.0, device_class=""), keep=2),
        Pruning(Selection(before=99.0)),
    ],
    ids=["class", "age", "failed", "versions", "keep", "old ones but some", "all"],
)
def test_what_is_pruned_is_gone_from_everywhere(farm: Farm, pruning, audit) -> None:
    all_records = records(60)
    for record in all_records:
        farm.records.add(record)
    check_records(farm)
    places = {(record.task, record.fingerprint) for record in all_records}
    of = {p: [r for r in all_records if (r.task, r.fingerprint) == p] for p in places}
    doomed = {record for each in of.values() for record in pruning.records_to_remove(each)}
    assert doomed
    assert prune(farm, pruning, is_dry=True) == len(doomed)
    assert farm.records.count() == len(all_records)
    assert prune(farm, pruning) == len(doomed)
    left = [record for record in all_records if record not in doomed]
    assert list(farm.records) == left
    assert not farm.client.command("EXISTS", "farrier:records:stale")
    check_records(farm)
    audit(farm)
    for place in places:
        assert farm.records.find(*place) == MemoryRecords(left).find(*place)
        if pruning.keep is not None:
            assert best(farm.records, *place, 2, TILE) == best(
                MemoryRecords(all_records), *place, 2, TILE
            )
    assert prune(farm, pruning) == 0
    for record in all_records:  # An import adds them again, after the records that stayed.
        farm.records.add(record)
    assert list(farm.records) == [*left, *(record for record in all_records if record in doomed)]
    check_records(farm)


def test_what_another_version_wrote_is_not_forgotten(farm: Farm) -> None:
    record = records(1)[0]
    newer = record.to_line().replace('"rule":', '"colour":1,"rule":')
    farm.records._add_entries([RecordEntry.of_line(line) for line in (newer, "{")])
    farm.records.add(record)
    assert prune(farm, Pruning(Selection(before=1e9))) == 1
    assert list(farm.records.export()) == [newer, "{"]
    check_records(farm)


def test_a_trial_whose_record_is_pruned_is_not_shown(farm: Farm) -> None:
    job = farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET)).id
    farm.jobs.lease("w", 0)
    first, second = records(2)
    for record in (first, dataclasses.replace(second, created=1000.0)):
        farm.records.of_job(job).add(record)
    prune(farm, Pruning(Selection(before=1000.0)))
    trials, _ = farm.trials.list(job, after="", limit=10)
    assert [line is None for line in farm.records.lines([trial.record for trial in trials])] == [
        True,
        False,
    ]


def test_records_that_come_while_an_archive_is_written_are_in_the_next(farm, monkeypatch) -> None:
    """Records that are removed meanwhile leave it stale, and it is written anew."""
    for record in records(4):
        farm.records.add(record)
    put = farm.blobs.put

    def slow(data: bytes) -> str:
        monkeypatch.setattr(farm.records.archives._blobs, "put", put)
        prune(farm, Pruning(Selection(failed=True)))
        prune(farm, Pruning(Selection(device_class="a76")))
        return put(data)

    monkeypatch.setattr(farm.records.archives._blobs, "put", slow)
    assert farm.records.archives.write() is not None
    check_records(farm)
    assert farm.client.command("EXISTS", "farrier:records:stale")
    assert not farm.records.archives.renew(10)
    check_records(farm)


PRUNES = """
    import sys
    from farrier.records import Pruning, Selection
    from farrier_farm.records import pruning
    from farrier_farm.farm import Farm
    from farrier_farm.settings import Settings
    pruning.LOOKED_AT, pruning._REMOVED_AT_ONCE = 20, 2
    farm = Farm.open(Settings.from_environment())
    print(flush=True)
    after = ""
    while True:
        pruning = Pruning(Selection(failed=True), keep=1)
        done = farm.record_pruning.step(farm.records, pruning, after=after)
        after = done.next
        if not after:
            break
"""


@pytest.mark.long
def test_kill_9_at_any_moment_and_begun_again(farm: Farm, audit) -> None:
    farm.records.add_all(records(1500))
    pruning = Pruning(Selection(failed=True), keep=1)
    due = farm.records.count() - prune(farm, pruning, is_dry=True)
    chance, killed = random.Random(4), 0
    environment = {**os.environ, **farm.settings.to_environment()}
    code = "\n".join(line.removeprefix("    ") for line in PRUNES.splitlines())
    while farm.records.count() > due and killed < 4:
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.1))
            child.send_signal(signal.SIGKILL)
        killed += child.returncode == -signal.SIGKILL
        check_records(farm)
    assert killed
    prune(farm, pruning)
    assert farm.records.count() == due
    check_records(farm)
    audit(farm)


def test_nothing_is_lost_where_redis_dies_too(installation) -> None:
    with contextlib.closing(Farm.open(installation.settings)) as farm:
        farm.records.add_all(records(40))
        farm.record_pruning.step(farm.records, Pruning(Selection(failed=True)))
        installation.kill_redis()
        installation.start_redis()
        check_records(farm)
        prune(farm, Pruning(Selection(failed=True)))
        assert all(record.samples_ns for record in farm.records)
        check_records(farm)


def test_what_a_device_measured_goes_from_the_records_of_all(farm: Farm, audit) -> None:
    names = ("rogue", "good", "good,rogue", "rogue2")
    all_records = [
        dataclasses.replace(record, device=names[number % 4])
        for number, record in enumerate(records(60))
    ]
    stores = [farm.records, farm.private_records("ann"), farm.private_records("bo")]
    for number, store in enumerate(stores):
        store.add_all(all_records[20 * number : 20 * (number + 1)])
    late = [
        record for record in all_records if "rogue" in record.measured_by and record.created >= 30
    ]
    every = [record for record in all_records if "rogue" in record.measured_by]

    def dropped(since: float | None) -> int:
        pruning, count, after = Pruning(Selection(device="rogue", since=since)), 0, ""
        while True:
            done = farm.record_pruning.drop(farm.records_of_owner, pruning, after=after)
            count, after = count + done.records, done.next
            if not after:
                return count

    assert dropped(30.0) == len(late) > 0
    assert dropped(None) == len(every) - len(late) > 0
    left = [record for store in stores for record in store]
    assert sorted(map(repr, left)) == sorted(
        repr(record) for record in all_records if record not in every
    )
    assert {record.device for record in left} == {"good", "rogue2"}
    for store in stores:
        check_records(farm, store)
