"""Batches: one device at a time, results once, faults retried elsewhere, dropped with their job."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest

from farrier.errors import CancelledError, NotFoundError, ServiceError
from farrier.options import CompileOptions
from farrier_device.measurement import CandidateResult, DeviceFault, MeasureResult, Status
from farrier_farm.devices import Devices, DeviceState
from farrier_farm.errors import StaleSessionError
from farrier_farm.farm import Farm
from farrier_farm.measurements import Report

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
    """Ends the rest of a device after a fault."""

    def rest(device_id: str) -> None:
        farm.client.command("HSET", f"farrier:device:{device_id}", "rest_until", 0)

    return rest


def test_a_batch_goes_to_a_device_and_its_result_comes_back(
    farm: Farm, request_of, connect_device
) -> None:
    device = connect_device("d")
    request = request_of(LIBRARY)
    batch_id = farm.measurements.submit(request, "host")
    assert farm.measurements.wait(batch_id, 0) is None
    batch = farm.measurements.lease(*device, 1)
    assert batch.request == request
    assert farm.devices.get("d").state is DeviceState.BUSY
    fence = batch.lease.fence
    for _ in range(2):  # the device repeats a report whose answer was lost
        report = farm.measurements.report(*device, batch_id, fence, RESULT)
        assert report is Report.ACCEPTED
    found = farm.measurements.wait(batch_id, 0)
    assert found == dataclasses.replace(RESULT, device="d")
    after = farm.devices.get("d")
    assert (after.state, after.measured) == (DeviceState.IDLE, 1)


def test_a_waiter_wakes_when_the_result_comes(farm: Farm, request_of, connect_device) -> None:
    device = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), "host")
    fence = farm.measurements.lease(*device, 0).lease.fence
    timer = threading.Timer(0.2, farm.measurements.report, [*device, batch_id, fence, RESULT])
    timer.start()
    begin = time.monotonic()
    assert farm.measurements.wait(batch_id, 10).results == RESULT.results
    assert time.monotonic() - begin < 0.9
    timer.join()


def test_devices_get_only_what_they_can_run(farm: Farm, request_of, connect_device) -> None:
    board = connect_device("pi", arch="aarch64")
    farm.measurements.submit(request_of(LIBRARY), "x86-64-v2")
    assert farm.measurements.lease(*board, 0) is None
    assert farm.measurements.lease(*connect_device("d"), 0) is not None


@pytest.mark.parametrize("how", ["draining", "quarantined", "resting"])
def test_some_devices_get_nothing(farm: Farm, request_of, connect_device, rested, how) -> None:
    device = connect_device("d")
    farm.measurements.submit(request_of(LIBRARY), "host")
    if how == "draining":
        farm.devices.heartbeat(*device, draining=True)
    for fence in range({"draining": 0, "quarantined": 5, "resting": 1}[how]):
        farm.devices.settle(*device, "b", fence, fault=True)
    if how == "quarantined":
        rested("d")
    assert farm.measurements.lease(*device, 0) is None
    farm.devices.heartbeat(*device, draining=False)
    farm.devices.release("d")
    assert farm.measurements.lease(*device, 0) is not None


def test_a_fault_sends_the_batch_to_another_device(farm: Farm, request_of, connect_device) -> None:
    bad, good = connect_device("bad"), connect_device("good")
    batch_id = farm.measurements.submit(request_of(LIBRARY), "host")
    fence = farm.measurements.lease(*bad, 0).lease.fence
    assert farm.measurements.report(*bad, batch_id, fence, FAULT) is Report.ACCEPTED
    assert farm.measurements.lease(*bad, 0) is None  # it rests
    batch = farm.measurements.lease(*good, 0)
    assert (batch.lease.item, batch.lease.attempt) == (batch_id, 2)
    assert farm.measurements.report(*bad, batch_id, fence, RESULT) is Report.STALE
    farm.measurements.report(*good, batch_id, batch.lease.fence, RESULT)
    assert farm.measurements.wait(batch_id, 0).device == "good"
    assert farm.devices.get("bad").faults == 1


@pytest.mark.parametrize("crashes_left", [0, 1])
def test_a_fault_that_is_reported_again_is_accepted_and_counts_once(
    farm: Farm, request_of, connect_device, rested, crashes_left
) -> None:
    bad, good = connect_device("bad"), connect_device("good")
    batch_id = farm.measurements.submit(request_of(LIBRARY), "host")
    for _ in range(farm.settings.batch_attempts - 1 - crashes_left):
        lease = farm.measurements.lease(*good, 0).lease
        farm.measurements.leases.give_back(lease, crashed=True, reason="another")
    fence = farm.measurements.lease(*bad, 0).lease.fence
    reports = [farm.measurements.report(*bad, batch_id, fence, FAULT) for _ in range(2)]
    if crashes_left:
        farm.measurements.lease(*good, 0)
    reports.append(farm.measurements.report(*bad, batch_id, fence, FAULT))
    assert set(reports) == {Report.ACCEPTED}
    assert farm.measurements.report(*bad, batch_id, fence + 9, FAULT) is Report.STALE
    assert farm.devices.get("bad").faults == 1
    if crashes_left:
        assert farm.devices.get("good").lease == batch_id


@pytest.mark.parametrize("result", [RESULT, FAULT])
def test_a_report_in_whose_middle_redis_fails_counts_when_it_is_repeated(
    farm: Farm, request_of, connect_device, monkeypatch, result
) -> None:
    device = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), "host")
    fence = farm.measurements.lease(*device, 0).lease.fence

    def fail(*_: object, **__: object) -> None:
        raise ServiceError("Redis does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(Devices, "settle", fail)
        with pytest.raises(ServiceError):
            farm.measurements.report(*device, batch_id, fence, result)
    for _ in range(2):
        report = farm.measurements.report(*device, batch_id, fence, result)
        assert report is Report.ACCEPTED
    after = farm.devices.get("d")
    assert after.lease is None
    assert (after.measured, after.faults) == ((1, 0) if result is RESULT else (0, 1))


def test_a_batch_that_cannot_be_handed_out_is_the_next_device_s(
    farm: Farm, request_of, connect_device, monkeypatch
) -> None:
    """The device connects anew while its old session waits for work."""
    old = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), "host")
    take = farm.measurements.leases.take

    def take_late(*words: object) -> object:
        connect_device("d")
        return take(*words)

    with monkeypatch.context() as patch:
        patch.setattr(farm.measurements.leases, "take", take_late)
        with pytest.raises(StaleSessionError):
            farm.measurements.lease(*old, 0)
    batch = farm.measurements.lease(*connect_device("other"), 0)
    assert batch.lease.item == batch_id
    assert farm.measurements.leases.fields(batch_id)["crashes"] == "0"
    assert farm.devices.get("d").faults == 0


def test_a_batch_that_always_faults_ends_with_the_fault(
    farm: Farm, request_of, connect_device, rested
) -> None:
    device = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), "host")
    for _ in range(farm.settings.batch_attempts):
        rested("d")
        fence = farm.measurements.lease(*device, 0).lease.fence
        fault = MeasureResult(fault=DeviceFault.NO_SPACE, message="/tmp is full")
        farm.measurements.report(*device, batch_id, fence, fault)
    result = farm.measurements.wait(batch_id, 0)
    assert (result.fault, result.results) == (DeviceFault.NO_SPACE, ())
    assert "/tmp is full" in result.message


def test_a_lost_device_loses_its_lease(farm: Farm, request_of, connect_device, expire) -> None:
    lost, other = connect_device("lost"), connect_device("other")
    batch_id = farm.measurements.submit(request_of(LIBRARY), "host")
    old = farm.measurements.lease(*lost, 0).lease
    assert farm.measurements.renew_held("lost", [batch_id]) == []
    expire(farm.measurements.leases, old)
    new = farm.measurements.lease(*other, 0).lease
    assert farm.measurements.renew_held("lost", [batch_id]) == [batch_id]
    assert farm.devices.get("lost").lease is None
    assert farm.measurements.report(*lost, batch_id, old.fence, RESULT) is Report.STALE
    assert farm.measurements.report(*other, batch_id, new.fence, RESULT) is Report.ACCEPTED


def test_waiting_notices_that_every_device_was_lost(
    farm: Farm, request_of, connect_device, expire
) -> None:
    device = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), "host")
    for _ in range(farm.settings.batch_attempts):
        expire(farm.measurements.leases, farm.measurements.lease(*device, 0).lease)
        farm.measurements.wait(batch_id, 0.01)
    assert farm.measurements.wait(batch_id, 0).fault is DeviceFault.LOST


def test_an_old_session_gets_and_reports_nothing(farm: Farm, request_of, connect_device) -> None:
    old = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), "host")
    fence = farm.measurements.lease(*old, 0).lease.fence
    new = connect_device("d")
    for call in (
        lambda: farm.measurements.lease(*old, 0),
        lambda: farm.measurements.report(*old, batch_id, fence, RESULT),
    ):
        with pytest.raises(StaleSessionError):
            call()
    # The agent that reconnected still has the result.
    assert farm.measurements.report(*new, batch_id, fence, RESULT) is Report.ACCEPTED


def test_a_cancelled_job_takes_its_batches_along(farm: Farm, request_of, connect_device) -> None:
    device = connect_device("d")
    job = farm.jobs.submit("5e" * 32, CompileOptions())
    lease = farm.jobs.lease("w", 0)
    batches = [farm.measurements.submit(request_of(LIBRARY), "host", lease) for _ in range(3)]
    other = farm.measurements.submit(request_of(LIBRARY), "host")
    running = farm.measurements.lease(*device, 0)
    assert running.lease.item == batches[0]
    farm.cancel(job.id)
    assert farm.measurements.renew_held("d", batches) == batches
    for batch in batches:
        with pytest.raises(CancelledError):
            farm.measurements.wait(batch, 1)
    assert farm.measurements.lease(*device, 0).lease.item == other
    assert farm.measurements.drop(job.id) == 0


def test_batches_of_an_attempt_that_was_taken_over_are_not_measured(
    farm: Farm, request_of, connect_device, expire
) -> None:
    device = connect_device("d")
    farm.jobs.submit("5e" * 32, CompileOptions())
    old = farm.jobs.lease("w1", 0)
    orphan = farm.measurements.submit(request_of(LIBRARY), "host", old)
    expire(farm.jobs.leases, old)
    new = farm.jobs.lease("w2", 0)
    wanted = farm.measurements.submit(request_of(LIBRARY), "host", new)
    assert farm.measurements.lease(*device, 0).lease.item == wanted
    with pytest.raises(CancelledError):
        farm.measurements.wait(orphan, 0)


def test_open_batches_keep_their_blobs(farm: Farm, request_of, connect_device) -> None:
    device = connect_device("d")
    done = farm.measurements.submit(request_of("01" * 32), "host")
    farm.measurements.report(*device, done, farm.measurements.lease(*device, 0).lease.fence, RESULT)
    farm.measurements.submit(request_of("02" * 32), "host")
    farm.measurements.submit(request_of("03" * 32), "host")
    farm.measurements.lease(*device, 0)
    found = [farm.references.are_there(f"{n:02}" * 32) for n in (1, 2, 3)]
    assert found == [False, True, True]


def test_unknown_batches(farm: Farm, connect_device) -> None:
    device = connect_device("d")
    with pytest.raises(NotFoundError):
        farm.measurements.wait("nothing", 0)
    assert farm.measurements.report(*device, "nothing", 1, RESULT) is Report.STALE
