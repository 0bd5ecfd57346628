"""Tests of the farm at a glance: the counters agree with the items."""

from __future__ import annotations

import contextlib
import dataclasses
import time

import pytest

from farrier.errors import UsageError
from farrier.options import CompileOptions
from farrier.records import TuningRecord
from farrier_device.measurement import CandidateResult, MeasureResult, Status
from farrier_farm.devices.devices import DeviceState
from farrier_farm.events.farm_events import RECENT
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from farrier_farm.measurements.async_batches import Report
from farrier_farm.overview import FINISHED, MINUTES
from tests.here import HERE, TARGET

MODEL = "5e" * 32
RESULT = MeasureResult(results=(CandidateResult(Status.OK, (1271,), 3e-6),) * 2)


def _record(number: int) -> TuningRecord:
    return TuningRecord(
        task="k",
        fingerprint="f",
        threads=2,
        rule="tile",
        version=3,
        decisions=(("ti", number),),
        trace="",
        status=Status.OK,
        samples_ns=(1000,),
    )


def test_jobs_by_state_what_runs_and_what_ended_last(farm: Farm) -> None:
    ended = []
    for number in range(FINISHED + 2):
        farm.jobs.submit(MODEL, CompileOptions(target=TARGET, seed=number))
        lease = farm.jobs.lease("w", 0)
        assert lease is not None
        farm.jobs.fail(lease, UsageError("no"))
        ended.append(lease.item)
    for number in (90, 91):
        farm.jobs.submit(MODEL, CompileOptions(target=TARGET, seed=number))
    running = farm.jobs.lease("w", 0)
    assert running is not None
    shown = farm.overview()
    assert shown.jobs == {
        **dict.fromkeys(State, 0),
        State.FAILED: len(ended),
        State.QUEUED: 1,
        State.RUNNING: 1,
    }
    assert [job.id for job in shown.running] == [running.item]
    assert [job.id for job in shown.finished] == ended[:1:-1]
    assert len(shown.minutes) == MINUTES
    assert shown.minutes[-1].time <= shown.time < shown.minutes[-1].time + 60
    assert sum(minute.finished for minute in shown.minutes) == len(ended)
    assert shown.minutes[0].time == shown.minutes[-1].time - 60 * (MINUTES - 1)


def test_trials_and_batches_count_once(farm: Farm, device_side, connect_device, request_of) -> None:
    farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    lease = farm.jobs.lease("w", 0)
    assert lease is not None
    records = farm.records.of_job(lease.item)
    for number in (1, 2, 2, 3):
        records.add(_record(number))
    farm.records.add(_record(9))  # nobody's trial
    device, session = connect_device("d")
    batch_id = farm.measurements.submit(request_of("ab" * 32), HERE, lease)
    batch = device_side.lease(device, session, 5)
    assert farm.overview().devices.busy == 1
    assert farm.devices.get(device).busy > 0
    for _ in range(2):  # The first answer was lost.
        words = (device, session, batch_id, batch.lease.fence, RESULT)
        assert device_side.report(*words) is Report.ACCEPTED
    shown = farm.overview()
    assert sum(minute.trials for minute in shown.minutes) == 3
    assert sum(minute.batches for minute in shown.minutes) == 1
    assert shown.records == 4
    [load] = farm.devices.get(device).load
    assert load.batches == 1
    assert 0 < load.busy_s < 60


def test_how_devices_stand(farm: Farm, device_side, connect_device) -> None:
    connect_device("idle")
    connect_device("emulated", emulated=True)
    sick, session = connect_device("sick")
    for fence in range(farm.settings.quarantine_faults):
        device_side.settle(sick, session, "batch", fence, fault=True)
    assert farm.devices.get(sick).state is DeviceState.QUARANTINED
    counts = farm.devices.counts()
    assert (counts.connected, counts.busy, counts.quarantined, counts.emulated) == (3, 0, 1, 1)
    farm.devices.release(sick)
    assert farm.devices.counts().quarantined == 0
    hasty = dataclasses.replace(farm.settings, device_expiry_s=0.2)
    time.sleep(0.3)
    with contextlib.closing(Farm.open(hasty)) as late:
        counts = late.devices.counts()
    assert (counts.connected, counts.emulated) == (0, 0)


@pytest.mark.parametrize("minutes", [0, 3, 45])
def test_a_batch_counts_in_each_minute_that_it_took(
    farm: Farm, device_side, connect_device, request_of, minutes: int
) -> None:
    device, session = connect_device("d")
    farm.measurements.submit(request_of("ab" * 32), HERE)
    batch = device_side.lease(device, session, 5)
    key = f"farrier:device:{device}"
    held = int(farm.client.command("HGET", key, "held")) - 60_000 * minutes
    farm.client.command("HSET", key, "held", held)
    words = (device, session, batch.lease.item, batch.lease.fence, RESULT)
    assert device_side.report(*words) is Report.ACCEPTED
    snapshot = farm.devices.get(device)
    busy_s = sum(minute.busy_s for minute in snapshot.load)
    assert min(minutes, 29) * 60 <= busy_s <= min(minutes, 29) * 60 + 60
    assert len(snapshot.load) <= 30
    assert all(minute.busy_s <= 60 for minute in snapshot.load)
    assert [minute.batches for minute in snapshot.load if minute.batches] == [1]
    assert snapshot.busy == pytest.approx(min(minutes / 10, 1), abs=0.12)


def test_news_are_the_newest_warnings_and_events_of_devices(farm: Farm) -> None:
    for number in range(RECENT + 2):
        farm.news.warn("worker", f"warning {number}")
    for number in range(3):
        farm.jobs.submit(MODEL, CompileOptions(target=TARGET, seed=number))
    items = farm.overview().news
    assert [item.data["message"] for item in items] == [
        f"warning {number}" for number in range(RECENT + 1, 1, -1)
    ]
    assert {item.data["role"] for item in items} == {"worker"}
