"""A job whose only device measures nothing, or gets no work any more, ends, and says why."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator

import pytest

from farrier.options import CompileOptions
from farrier_device.describe import describe
from farrier_device.measurement import Blame, DeviceFault, MeasureResult
from farrier_farm.devices.devices import DeviceState
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from farrier_worker.supervisor import JOB_COMMAND
from tests.here import TARGET
from tests.waiting import wait_until
from tests.worker.test_job import _model

FAULT = MeasureResult(
    fault=DeviceFault.BROKEN, blame=Blame.LIBRARY, message="the reference kernel crashed"
)


@pytest.fixture
def worker_settings(worker_settings):
    return dataclasses.replace(
        worker_settings, lease_s=10.0, device_expiry_s=2.0, quarantine_faults=2, batch_attempts=2
    )


@contextlib.contextmanager
def lone_device(farm: Farm, device_side, after: Callable[[], None]) -> Iterator[None]:
    """A device on which every library fails; `after` each report something happens to it."""
    session = device_side.connect("lone", dataclasses.asdict(describe()))
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.1):
            device_side.heartbeat("lone", session)
            batch = device_side.lease("lone", session, 0.0)
            if batch is not None:
                device_side.report("lone", session, batch.lease.item, batch.lease.fence, FAULT)
                after()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def run_job(farm: Farm, supervise, **options: object):
    wanted = CompileOptions(target=TARGET, **options)
    job = farm.jobs.submit(farm.blobs.put(_model()), wanted, name="mlp")
    supervise(list(JOB_COMMAND))
    return wait_until(lambda: (j := farm.jobs.get(job.id)).state.final and j)


def test_a_job_whose_libraries_fail_ends_and_brings_down_no_device(
    farm: Farm, device_side, supervise
) -> None:
    with lone_device(farm, device_side, lambda: None):
        job = run_job(farm, supervise, trials=8)
    assert job.state is State.FAILED
    assert "the reference kernel crashed" in job.error["message"]
    device = farm.devices.get("lone")
    assert device.state is not DeviceState.QUARANTINED
    assert device.faults_in_a_row == 1
    assert device.faults > farm.settings.quarantine_faults


@pytest.mark.parametrize("how", ["pause", "drain", "unhealthy", "quarantine"])
def test_a_job_whose_device_gets_no_more_work_ends(
    farm: Farm, device_side, supervise, how: str
) -> None:
    session: list[str] = []

    def happens() -> None:
        session[:] = [farm.devices.get("lone").session]
        match how:
            case "unhealthy":
                device_side.heartbeat("lone", session[0], draining=True)
            case "quarantine":
                for fence in range(100, 100 + farm.settings.quarantine_faults):
                    device_side.settle("lone", session[0], "b", fence, fault=True, reason="drifted")
            case _:
                getattr(farm.enrolments, how)("lone")

    with lone_device(farm, device_side, happens):
        job = run_job(farm, supervise, trials=8)
    assert job.state is State.FAILED
    assert job.error["code"] == "no-device"
    words = {
        "pause": ("lone is paused", "farrier devices resume lone"),
        "drain": ("lone is drained", "farrier devices resume lone"),
        "unhealthy": ("lone accepts no work", "the log of the agent of lone"),
        "quarantine": ("lone is in quarantine (the last fault: drifted", "release lone"),
    }[how]
    assert words[0] in job.error["message"]
    assert words[1] in job.error["hint"]
