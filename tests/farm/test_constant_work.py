"""Tests of the cost of a heartbeat, a batch and a wait in Redis: the same in a farm of any size."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
from collections.abc import Iterator

import pytest

from farrier.errors import NoDeviceError
from farrier.options import CompileOptions
from farrier.progress import TrialsMeasured
from farrier.records import TuningRecord
from farrier_device.describe import describe
from farrier_device.measurement import CandidateResult, MeasureResult, Status
from farrier_farm.broker import DeviceSide
from farrier_farm.devices.classes import DeviceClass, MeasurementTarget
from farrier_farm.farm import Farm
from farrier_farm.measurements.async_batches import Report
from tests.device_side import BlockingDeviceSide
from tests.here import HERE, TARGET

MANY = 40
TIMED = CandidateResult(Status.OK, (1271, 1303, 1283), 3e-6)
RESULT = MeasureResult(results=(TIMED, TIMED))


def _commands(farm: Farm) -> collections.Counter[str]:
    """Return the number of calls of each command, including those within scripts."""
    statistics = farm.client.command("INFO", "commandstats")
    calls = {name: stats["calls"] for name, stats in statistics.items()}
    return collections.Counter({n: c for n, c in calls.items() if "info" not in n})


async def _steps(farm: Farm, request_of) -> dict[str, collections.Counter[str]]:
    """The commands of each thing that a device and a job do for a batch."""
    side = DeviceSide.of(farm)
    here = dataclasses.asdict(describe())
    costs = {}
    for _ in range(2):  # The first round loads the scripts.
        session = await side.sessions.connect("d", here, "instance")
        standing = await side.sessions.heartbeat("d", session)
        before = _commands(farm)

        def spent(step: str) -> None:
            nonlocal before
            now = _commands(farm)
            costs[step] = now - before
            before = now

        batch_id = farm.measurements.submit(request_of("ab" * 32), HERE)
        spent("submit")
        assert farm.measurements.wait(batch_id, 0) is None
        assert farm.admission.is_served(HERE)
        spent("wait")
        batch = await side.batches.take("d", session, standing.queues)
        assert batch is not None
        spent("take")
        await side.sessions.heartbeat("d", session, draining=False)
        assert await side.batches.renew_held("d", [batch_id]) == []
        spent("heartbeat")
        words = ("d", session, batch_id, batch.lease.fence, RESULT)
        assert await side.batches.report(*words) is Report.ACCEPTED
        spent("report")
        assert farm.measurements.wait(batch_id, 0) is not None
        spent("result")
    await side.close()
    return costs


@pytest.fixture
def farm(farm: Farm) -> Iterator[Farm]:
    """One whose leases last so long that no look at the clock adds a command."""
    settings = dataclasses.replace(farm.settings, lease_s=600.0, device_expiry_s=600.0)
    with contextlib.closing(Farm.open(settings)) as own:
        yield own


def test_no_step_costs_more_in_a_larger_farm(farm: Farm, request_of) -> None:
    few = asyncio.run(_steps(farm, request_of))
    unlike = dataclasses.replace(describe(), cores=96)
    elsewhere = MeasurementTarget(DeviceClass.of(unlike).id)
    with BlockingDeviceSide(farm) as device_side:
        for n in range(MANY):
            device_side.connect(f"like-{n}", dataclasses.asdict(describe()))
            device_side.connect(f"unlike-{n}", dataclasses.asdict(unlike))
            farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET, seed=n))
            farm.measurements.submit(request_of("cd" * 32), elsewhere)
            farm.measurements.submit(request_of("cd" * 32), MeasurementTarget("", f"like-{n}"))
    many = asyncio.run(_steps(farm, request_of))
    assert {step: c["cmdstat_evalsha"] for step, c in few.items()} == {
        "submit": 1,
        "wait": 1,
        "take": 2,
        "heartbeat": 2,
        "report": 3,
        "result": 0,
    }
    assert many == few


def test_a_submission_costs_the_same_whatever_devices_were_ever_known(farm: Farm) -> None:
    """Those of one class, and for a target of each kind; refused ones as well."""
    unlike = dataclasses.asdict(dataclasses.replace(describe(), cores=96))

    def costs() -> dict[str, collections.Counter[str]]:
        by_target = {}
        for target in ("host", "x86-64-v2", f"class:{HERE.device_class}", "device:like", "rpi4"):
            before = _commands(farm)
            farm.jobs.submit("5e" * 32, CompileOptions(target=target))
            by_target[target] = _commands(farm) - before
        before = _commands(farm)
        with pytest.raises(NoDeviceError, match="no device for class:none"):
            farm.admission.require(MeasurementTarget("none"))
        by_target["refused"] = _commands(farm) - before
        return by_target

    def connect(*names: str) -> None:
        """Connect devices of this machine's class, and of a class that is offline by then."""
        with BlockingDeviceSide(farm) as device_side:  # The broker looks for batches meanwhile.
            for name in names:
                device_side.connect(f"like{name}", dataclasses.asdict(describe()))
                device_side.connect(f"gone{name}", unlike)
                _take_offline(farm, f"gone{name}")

    connect("")
    costs()  # The first call loads the scripts.
    few = costs()
    connect(*(f"-{n}" for n in range(MANY)))
    for n in range(MANY):
        farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET, seed=n))
    assert costs() == few
    # One script reads the connected classes, the other adds the job.
    assert few["host"]["cmdstat_evalsha"] == 2


def _take_offline(farm: Farm, device: str) -> None:
    """Have a device be seen last an hour ago, for a farm that waits ten minutes for one."""
    fields = farm.client.command("HMGET", f"farrier:device:{device}", "seen", "class")
    seen, its_class = int(fields[0]) - 3_600_000, fields[1]
    farm.client.command("HSET", f"farrier:device:{device}", "seen", seen)
    for key in ("beating", f"present:{its_class}", f"connected:{its_class}"):
        farm.client.command("ZADD", f"farrier:{key}", "XX", seen, device)


def test_a_build_costs_the_same_in_a_larger_farm(farm: Farm) -> None:
    def costs() -> dict[str, collections.Counter[str]]:
        by_step, before = {}, _commands(farm)

        def spent(step: str) -> None:
            nonlocal before
            now = _commands(farm)
            by_step[step] = now - before
            before = now

        build_id = farm.builds.submit("{}", job)
        spent("submit")
        build = farm.builds.take("b", 0.0)
        assert build is not None
        spent("take")
        farm.builds.beat("b", 2)
        assert farm.builds.renew("b", [build]) == []
        spent("beat")
        farm.builds.finish(build, "answer")
        spent("finish")
        assert farm.builds.wait(build_id, lambda: False).answer == "answer"
        spent("result")
        return by_step

    farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET))
    job = farm.jobs.lease("w", 0)
    assert job is not None
    farm.builds.submit("{}", job)
    assert farm.builds.take("another", 0.0) is not None  # A queue that becomes empty is closed.
    costs()  # The first call loads the scripts.
    few = costs()
    for n in range(MANY):
        farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET, seed=n))
        other = farm.jobs.lease(f"w{n}", 0)
        assert other is not None
        farm.builds.submit("{}", other)
        assert farm.builds.take(f"b{n}", 0.0) is not None
    assert costs() == few
    scripts = {step: c["cmdstat_evalsha"] for step, c in few.items()}
    assert scripts == {"submit": 1, "take": 1, "beat": 2, "finish": 1, "result": 1}


def test_a_trial_costs_no_more_in_a_long_job(farm: Farm) -> None:
    farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET))
    lease = farm.jobs.lease("w", 0)
    assert lease is not None
    records = farm.records.of_job(lease.item)

    def costs(numbers: range) -> list[collections.Counter[str]]:
        by_trial = []
        for number in numbers:
            before = _commands(farm)
            measured = TrialsMeasured(number, None, 9.0, None, "k")
            farm.jobs.say(lease, number, measured)
            records.add(_record(number))
            by_trial.append(_commands(farm) - before)
        return by_trial

    few = costs(range(1, 20))[-1]
    costs(range(20, 400))
    many = costs(range(400, 420))
    assert all(cost == few for cost in many)


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
        samples_ns=(1000 + number,),
    )
