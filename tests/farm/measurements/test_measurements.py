"""Batches: one device at a time, results once, faults retried elsewhere, dropped with their job."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

import pytest

from farrier.errors import CancelledError, NotFoundError, ServiceError
from farrier.options import CompileOptions
from farrier_device.describe import describe
from farrier_device.measurement import (
    Blame,
    CandidateResult,
    DeviceFault,
    MeasureResult,
    Status,
)
from farrier_farm.devices.devices import DeviceState
from farrier_farm.devices.sessions import Sessions
from farrier_farm.errors import DeviceAwayError, StaleSessionError
from farrier_farm.farm import Farm
from farrier_farm.leases.async_leases import AsyncLeases
from farrier_farm.leases.leases import Lease
from farrier_farm.measurements.async_batches import Report
from tests.here import HERE, TARGET

RESULT = MeasureResult(
    results=(
        CandidateResult(Status.OK, (1271, 1303, 1283), 3e-6),
        CandidateResult(Status.CRASHED, message="SIGSEGV"),
    ),
    sandbox="seccomp",
    run_s=0.25,
)

FAULT = MeasureResult(fault=DeviceFault.DRIFTED, message="the clock fell by 31%")
LIBRARY = "ab" * 32


@pytest.fixture
def rested(farm: Farm):
    """End the rest of a device after a fault."""

    def rest(device_id: str) -> None:
        farm.client.command("HSET", f"farrier:device:{device_id}", "rest_until", 0)

    return rest


def test_a_batch_goes_to_a_device_and_its_result_comes_back(
    farm: Farm, request_of, connect_device, device_side
) -> None:
    device = connect_device("d")
    request = request_of(LIBRARY)
    batch_id = farm.measurements.submit(request, HERE)
    assert farm.measurements.wait(batch_id, 0) is None
    batch = device_side.lease(*device, 1)
    assert batch.request == request
    assert farm.devices.get("d").state is DeviceState.BUSY
    fence = batch.lease.fence
    for _ in range(2):  # The device repeats a report whose answer was lost.
        report = device_side.report(*device, batch_id, fence, RESULT)
        assert report is Report.ACCEPTED
    result = farm.measurements.wait(batch_id, 0)
    assert result == dataclasses.replace(RESULT, device="d")
    after = farm.devices.get("d")
    assert (after.state, after.measured) == (DeviceState.IDLE, 1)


def test_a_waiter_wakes_when_the_result_comes(
    farm: Farm, request_of, connect_device, device_side
) -> None:
    device = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    fence = device_side.lease(*device, 0).lease.fence
    timer = threading.Timer(0.2, device_side.report, [*device, batch_id, fence, RESULT])
    timer.start()
    begin = time.monotonic()
    assert farm.measurements.wait(batch_id, 10).results == RESULT.results
    assert time.monotonic() - begin < 0.9
    timer.join()


def test_devices_get_only_what_is_of_their_class(
    farm: Farm, request_of, connect_device, device_side
) -> None:
    board = connect_device("pi", arch="aarch64", cpu="cortex-a72", features=["asimd", "fp"])
    farm.measurements.submit(request_of(LIBRARY), HERE)
    assert device_side.lease(*board, 0) is None
    assert device_side.lease(*connect_device("d"), 0) is not None


@pytest.mark.parametrize("how", ["draining", "quarantined", "resting"])
def test_some_devices_get_nothing(
    farm: Farm, request_of, connect_device, rested, how, device_side
) -> None:
    device = connect_device("d")
    farm.measurements.submit(request_of(LIBRARY), HERE)
    if how == "draining":
        device_side.heartbeat(*device, draining=True)
    for fence in range({"draining": 0, "quarantined": 5, "resting": 1}[how]):
        device_side.settle(*device, "b", fence, fault=True)
    if how == "quarantined":
        rested("d")
    assert device_side.lease(*device, 0) is None
    device_side.heartbeat(*device, draining=False)
    farm.devices.release("d")
    assert device_side.lease(*device, 0) is not None


def test_a_fault_sends_the_batch_to_another_device(
    farm: Farm, request_of, connect_device, device_side
) -> None:
    bad, good = connect_device("bad"), connect_device("good")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    fence = device_side.lease(*bad, 0).lease.fence
    assert device_side.report(*bad, batch_id, fence, FAULT) is Report.ACCEPTED
    assert device_side.lease(*bad, 0) is None  # it rests
    batch = device_side.lease(*good, 0)
    assert (batch.lease.item, batch.lease.attempt) == (batch_id, 2)
    assert device_side.report(*bad, batch_id, fence, RESULT) is Report.STALE
    device_side.report(*good, batch_id, batch.lease.fence, RESULT)
    assert farm.measurements.wait(batch_id, 0).device == "good"
    assert farm.devices.get("bad").faults == 1


@pytest.mark.parametrize("crashes_left", [0, 1])
def test_a_fault_that_is_reported_again_is_accepted_and_counts_once(
    farm: Farm, request_of, connect_device, rested, crashes_left, device_side
) -> None:
    bad, good = connect_device("bad"), connect_device("good")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    for _ in range(farm.settings.batch_attempts - 1 - crashes_left):
        lease = device_side.lease(*good, 0).lease
        farm.measurements.leases.give_back(lease, crashed=True, reason="another")
    fence = device_side.lease(*bad, 0).lease.fence
    reports = [device_side.report(*bad, batch_id, fence, FAULT) for _ in range(2)]
    if crashes_left:
        device_side.lease(*good, 0)
    reports.append(device_side.report(*bad, batch_id, fence, FAULT))
    assert set(reports) == {Report.ACCEPTED}
    assert device_side.report(*bad, batch_id, fence + 9, FAULT) is Report.STALE
    assert farm.devices.get("bad").faults == 1
    if crashes_left:
        assert farm.devices.get("good").lease == batch_id


@pytest.mark.parametrize("result", [RESULT, FAULT])
def test_a_device_reports_nothing_for_the_lease_of_another(
    farm: Farm, request_of, connect_device, device_side, result
) -> None:
    rogue, good = connect_device("rogue"), connect_device("good")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    device_side.report(*rogue, batch_id, device_side.lease(*rogue, 1).lease.fence, FAULT)
    fence = device_side.lease(*good, 1).lease.fence
    assert device_side.report(*rogue, batch_id, fence, result) is Report.STALE
    assert device_side.report(*rogue, batch_id, fence + 1, result) is Report.STALE
    assert device_side.report(*good, batch_id, fence, RESULT) is Report.ACCEPTED
    assert farm.measurements.wait(batch_id, 0).device == "good"


@pytest.mark.parametrize("result", [RESULT, FAULT])
def test_a_report_in_whose_middle_redis_fails_counts_when_it_is_repeated(
    farm: Farm, request_of, connect_device, monkeypatch, result, device_side
) -> None:
    device = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    fence = device_side.lease(*device, 0).lease.fence

    def fail(*_: object, **__: object) -> None:
        raise ServiceError("Redis does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(Sessions, "settle", fail)
        with pytest.raises(ServiceError):
            device_side.report(*device, batch_id, fence, result)
    for _ in range(2):
        report = device_side.report(*device, batch_id, fence, result)
        assert report is Report.ACCEPTED
    after = farm.devices.get("d")
    assert after.lease is None
    assert (after.measured, after.faults) == ((1, 0) if result is RESULT else (0, 1))


def test_a_batch_that_cannot_be_handed_out_is_the_next_device_s(
    farm: Farm, request_of, connect_device, monkeypatch, device_side
) -> None:
    """The device connects anew while its old session waits for work."""
    old = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    sessions = device_side.side.sessions
    take = AsyncLeases.take

    async def take_late(leases: AsyncLeases, *words: Any) -> Lease | None:
        await sessions.connect("d", dataclasses.asdict(describe()))
        return await take(leases, *words)

    with monkeypatch.context() as patch:
        patch.setattr(AsyncLeases, "take", take_late)
        with pytest.raises(StaleSessionError):
            device_side.lease(*old, 0)
    batch = device_side.lease(*connect_device("other"), 0)
    assert batch.lease.item == batch_id
    assert farm.measurements.leases.fields(batch_id)["crashes"] == "0"
    assert farm.devices.get("d").faults == 0


def test_a_batch_that_always_faults_ends_with_the_fault(
    farm: Farm, request_of, connect_device, rested, device_side
) -> None:
    device = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    for _ in range(farm.settings.batch_attempts):
        rested("d")
        fence = device_side.lease(*device, 0).lease.fence
        fault = MeasureResult(fault=DeviceFault.NO_SPACE, message="/tmp is full")
        device_side.report(*device, batch_id, fence, fault)
    result = farm.measurements.wait(batch_id, 0)
    assert (result.fault, result.results) == (DeviceFault.NO_SPACE, ())
    assert "/tmp is full" in result.message


def _fault(blame: Blame) -> MeasureResult:
    return MeasureResult(fault=DeviceFault.BROKEN, blame=blame, message=f"of the {blame}")


def test_a_device_whose_agent_is_unfit_is_told_so_and_another_one_measures(
    farm: Farm, request_of, connect_device, device_side
) -> None:
    """More often than faults put a device in quarantine, and a batch has attempts."""
    new = connect_device("new")
    for number in range(farm.settings.quarantine_faults + 1):
        batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
        old = connect_device("old", agent_version=f"0.{number}")  # it starts anew
        fence = device_side.lease(*old, 0).lease.fence
        for _ in range(2):  # The answer was lost.
            report = device_side.report(*old, batch_id, fence, _fault(Blame.AGENT))
        assert report is Report.STALE
        unfit = farm.devices.get("old")
        assert (unfit.state, unfit.faults, unfit.lease) == (DeviceState.UNFIT, 0, None)
        assert "of the agent" in unfit.unfit
        assert device_side.lease(*old, 0) is None
        fence = device_side.lease(*new, 0).lease.fence
        device_side.report(*new, batch_id, fence, RESULT)
        assert farm.measurements.wait(batch_id, 0).device == "new"
    farm.devices.release("old")
    assert farm.devices.get("old").state is DeviceState.IDLE


def test_devices_that_are_all_unfit_are_none(
    farm: Farm, request_of, connect_device, device_side
) -> None:
    old = connect_device("old")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    fence = device_side.lease(*old, 0).lease.fence
    device_side.report(*old, batch_id, fence, _fault(Blame.AGENT))
    with pytest.raises(DeviceAwayError, match="old cannot measure: of the agent"):
        farm.admission.require(HERE)


def test_a_batch_that_the_farm_has_spoilt_ends_and_counts_for_nobody(
    farm: Farm, request_of, connect_device, device_side
) -> None:
    device = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    fence = device_side.lease(*device, 0).lease.fence
    for _ in range(2):
        report = device_side.report(*device, batch_id, fence, _fault(Blame.FARM))
        assert report is Report.ACCEPTED
    result = farm.measurements.wait(batch_id, 0)
    assert (result.fault, result.blame) == (DeviceFault.BROKEN, Blame.FARM)
    after = farm.devices.get("d")
    assert (after.state, after.faults, after.measured) == (DeviceState.IDLE, 0, 0)
    assert not after.resting


def test_a_device_that_blames_the_farm_wrongly_has_the_fault(
    farm: Farm, request_of, connect_device, device_side
) -> None:
    rogue, good = connect_device("rogue"), connect_device("good")
    batch_id = farm.measurements.submit(request_of(farm.blobs.put(b"a library")), HERE)
    fence = device_side.lease(*rogue, 0).lease.fence
    for _ in range(2):
        assert device_side.report(*rogue, batch_id, fence, _fault(Blame.FARM)) is Report.ACCEPTED
    assert farm.measurements.wait(batch_id, 0) is None
    assert farm.devices.get("rogue").faults == 1
    fence = device_side.lease(*good, 1).lease.fence
    assert device_side.report(*good, batch_id, fence, RESULT) is Report.ACCEPTED
    assert farm.measurements.wait(batch_id, 0).device == "good"


def test_a_library_that_fails_on_two_devices_is_neithers_fault(
    farm: Farm, request_of, connect_device, device_side
) -> None:
    first, second = connect_device("first"), connect_device("second")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    doubt = _fault(Blame.LIBRARY)
    for device in (first, second):
        fence = device_side.lease(*device, 0).lease.fence
        for _ in range(2):
            report = device_side.report(*device, batch_id, fence, doubt)
            assert report is Report.ACCEPTED
        assert farm.devices.get("first").faults == (device is first)
    assert farm.measurements.wait(batch_id, 0).blame is Blame.LIBRARY
    for device in (first, second):
        after = farm.devices.get(device[0])
        assert (after.faults, after.faults_in_a_row, after.resting) == (0, 0, False)


@pytest.mark.parametrize("is_of_one_job", [True, False])
def test_the_libraries_of_one_job_alone_put_no_device_in_quarantine(
    farm: Farm, request_of, connect_device, rested, device_side, is_of_one_job
) -> None:
    only = connect_device("only")
    for number in range(farm.settings.quarantine_faults):
        rested("only")
        job = Lease("job-0" if is_of_one_job else f"job-{number}", 1, 1, "worker")
        farm.client.command("HSET", f"farrier:job:item:{job.item}", "state", "running", "fence", 1)
        batch_id = farm.measurements.submit(request_of(LIBRARY), HERE, job)
        fence = device_side.lease(*only, 0).lease.fence
        device_side.report(*only, batch_id, fence, _fault(Blame.LIBRARY))
        farm.measurements.cancel(batch_id)
    device = farm.devices.get("only")
    assert device.faults == farm.settings.quarantine_faults
    is_in_quarantine = device.state is DeviceState.QUARANTINED
    assert is_in_quarantine is not is_of_one_job


def test_a_library_that_fails_on_one_device_alone_is_that_ones_fault(
    farm: Farm, request_of, connect_device, rested, device_side
) -> None:
    only = connect_device("only")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    for _ in range(farm.settings.batch_attempts):
        rested("only")
        fence = device_side.lease(*only, 0).lease.fence
        device_side.report(*only, batch_id, fence, _fault(Blame.LIBRARY))
    assert farm.measurements.wait(batch_id, 0).fault is DeviceFault.BROKEN
    assert farm.devices.get("only").faults == farm.settings.batch_attempts


def test_a_lost_device_loses_its_lease(
    farm: Farm, request_of, connect_device, expire, device_side
) -> None:
    lost, other = connect_device("lost"), connect_device("other")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    old = device_side.lease(*lost, 0).lease
    assert device_side.renew_held("lost", [batch_id]) == []
    expire(farm.measurements.leases, old)
    new = device_side.lease(*other, 0).lease
    assert device_side.renew_held("lost", [batch_id]) == [batch_id]
    assert farm.devices.get("lost").lease is None
    assert device_side.report(*lost, batch_id, old.fence, RESULT) is Report.STALE
    assert device_side.report(*other, batch_id, new.fence, RESULT) is Report.ACCEPTED


def test_waiting_notices_that_every_device_was_lost(
    farm: Farm, request_of, connect_device, expire, device_side
) -> None:
    device = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    for _ in range(farm.settings.batch_attempts):
        expire(farm.measurements.leases, device_side.lease(*device, 0).lease)
        farm.measurements.wait(batch_id, 0.01)
    assert farm.measurements.wait(batch_id, 0).fault is DeviceFault.LOST


def test_an_old_session_gets_and_reports_nothing(
    farm: Farm, request_of, connect_device, device_side
) -> None:
    old = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    fence = device_side.lease(*old, 0).lease.fence
    new = connect_device("d")
    for call in (
        lambda: device_side.lease(*old, 0),
        lambda: device_side.report(*old, batch_id, fence, RESULT),
    ):
        with pytest.raises(StaleSessionError):
            call()
    # The agent that reconnected still has the result.
    assert device_side.report(*new, batch_id, fence, RESULT) is Report.ACCEPTED


def test_a_cancelled_job_takes_its_batches_along(
    farm: Farm, request_of, connect_device, device_side
) -> None:
    device = connect_device("d")
    job = farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET))
    lease = farm.jobs.lease("w", 0)
    batches = [farm.measurements.submit(request_of(LIBRARY), HERE, lease) for _ in range(3)]
    other = farm.measurements.submit(request_of(LIBRARY), HERE)
    running = device_side.lease(*device, 0)
    assert running.lease.item == batches[0]
    farm.cancel(job.id)
    assert device_side.renew_held("d", batches) == batches
    for batch in batches:
        with pytest.raises(CancelledError):
            farm.measurements.wait(batch, 1)
    assert device_side.lease(*device, 0).lease.item == other
    assert farm.measurements.drop(job.id) == 0


def test_batches_of_an_attempt_that_was_taken_over_are_not_measured(
    farm: Farm, request_of, connect_device, expire, device_side
) -> None:
    device = connect_device("d")
    farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET))
    old = farm.jobs.lease("w1", 0)
    orphan = farm.measurements.submit(request_of(LIBRARY), HERE, old)
    expire(farm.jobs.leases, old)
    new = farm.jobs.lease("w2", 0)
    wanted = farm.measurements.submit(request_of(LIBRARY), HERE, new)
    assert device_side.lease(*device, 0).lease.item == wanted
    with pytest.raises(CancelledError):
        farm.measurements.wait(orphan, 0)


def test_open_batches_keep_their_blobs(farm: Farm, request_of, connect_device, device_side) -> None:
    device = connect_device("d")
    done = farm.measurements.submit(request_of("01" * 32), HERE)
    device_side.report(*device, done, device_side.lease(*device, 0).lease.fence, RESULT)
    farm.measurements.submit(request_of("02" * 32), HERE)
    farm.measurements.submit(request_of("03" * 32), HERE)
    device_side.lease(*device, 0)
    referred = [farm.references.are_there(f"{n:02}" * 32) for n in (1, 2, 3)]
    assert referred == [False, True, True]


def test_unknown_batches(farm: Farm, connect_device, device_side) -> None:
    device = connect_device("d")
    with pytest.raises(NotFoundError):
        farm.measurements.wait("nothing", 0)
    assert device_side.report(*device, "nothing", 1, RESULT) is Report.STALE
