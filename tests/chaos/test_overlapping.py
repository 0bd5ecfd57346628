"""Faults that overlap, on the service as users start it, while it tunes: nothing that was
acknowledged is lost, every job ends as it should, nothing is recorded twice, and the API is back
within seconds.

`FARRIER_CHAOS_SEED` repeats the schedule of a run that failed, `FARRIER_CHAOS_FAULTS` is how many
faults there are: `make chaos FAULTS=100` is the long form."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import shutil
import tempfile
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import farrier
from farrier.cost_model import CostModel
from farrier.errors import ServiceError, StorageError
from farrier.records import TuningRecord
from farrier.sdk.client import Client
from farrier_device.measurement import Status
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from farrier_farm.redis.retry import PROBE
from farrier_farm.settings import Settings
from tests.chaos.faults import Injury, Line, Watch, schedule
from tests.farm.conftest import audit  # noqa: F401
from tests.small_disk import SmallDisk, small_disk
from tests.up import Up, write_model
from tests.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

SEED = int(os.environ.get("FARRIER_CHAOS_SEED") or "44")
FAULTS = int(os.environ.get("FARRIER_CHAOS_FAULTS") or "20")
AWAY_S = float(os.environ.get("FARRIER_CHAOS_AWAY_S") or "10")
SHAPE = (1, 3, 13, 17)
DISK_MIB = 256
# A killed process is not to blame here.
LENIENT = {
    "FARRIER_JOB_CRASHES": "1000",
    "FARRIER_BATCH_ATTEMPTS": "1000",
    "FARRIER_QUARANTINE_FAULTS": "100000",
    "FARRIER_BUILDERS": "2",
    "FARRIER_TRAIN_S": "1",
    "FARRIER_TRAIN_RECORDS": "1",
}


class Submitter:
    """A thread that keeps some jobs of two owners in progress until it is stopped."""

    def __init__(self, url: str, tokens: list[str], model) -> None:
        self.acknowledged: list[str] = []
        self._url = url
        self._tokens = tokens
        self._model = model
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            with contextlib.suppress(ServiceError, StorageError):
                with Client(self._url, self._tokens[number % 2]) as client:
                    if sum(not job.final for job in client.jobs(limit=6)) >= 3:
                        self._stop.wait(0.5)
                        continue
                    job = client.submit(
                        self._model,
                        shapes={"x": SHAPE},
                        trials=12,
                        seed=number,
                        idempotency_key=f"job {number}",
                    )
                self.acknowledged.append(job.id)
                number += 1
                continue
            self._stop.wait(0.2)  # The API is away; the same request is repeated with its key.


def records_kept(settings: Settings) -> int | None:
    """Return the number of records, or None if Redis does not answer."""
    with contextlib.suppress(ServiceError):
        farm = Farm.open(settings, PROBE)
        try:
            return farm.records.count()
        finally:
            farm.close()
    return None


def recorded_twice(farm: Farm) -> list[str]:
    """The candidates that a job has several records of. Jobs differ by their seed here."""
    counts = collections.Counter(
        (r.seed, r.task, r.fingerprint, r.rule, r.version, r.decisions, r.context)
        for r in farm.records
    )
    return [f"{count} times {candidate}" for candidate, count in counts.items() if count > 1]


@pytest.fixture
def disk() -> Iterator[SmallDisk | None]:
    """One to be filled; None where none may be mounted, and full disks are left out."""
    with contextlib.ExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk(DISK_MIB))
        except pytest.skip.Exception:
            disk = None
        yield disk


@pytest.fixture
def up(disk: SmallDisk | None) -> Iterator[Up]:
    home = Path(tempfile.mkdtemp(prefix="farrier-")) if disk is None else disk.home
    up = Up(home, **LENIENT)
    try:
        yield up.start()
    finally:
        if disk is not None:
            disk.free()
        up.clean_up()
        if disk is None:
            shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "net.onnx")


@pytest.mark.timeout(3000)
def test_faults_that_overlap_cost_time_and_nothing_else(
    up,
    disk,
    model,
    tmp_path,
    audit,  # noqa: F811
):
    faults = schedule(SEED, FAULTS, has_disk=disk is not None)
    print(f"FARRIER_CHAOS_SEED={SEED} FARRIER_CHAOS_FAULTS={FAULTS}", *faults, sep="\n")
    settings = Settings(home=up.home, min_free_bytes=1)
    port = int(up.url.rsplit(":", 1)[1])
    line, watch = Line(port), Watch(port)
    added = up.command("tokens", "add", "ann")
    submitter = Submitter(line.url, [up.token, added.stdout.strip()], model)
    seen = [0]

    def nothing_is_lost() -> None:
        count = records_kept(settings)
        if count is not None:
            assert count >= seen[-1]
            seen.append(count)

    try:
        wait_until(lambda: records_kept(settings))  # it tunes
        begin = Injury(up, line, disk).run(faults, nothing_is_lost)
    finally:
        submitter.stop()
        line.close()
    wait_until(lambda: up.command("jobs").returncode == 0)
    watch.close()
    away = watch.away(begin, faults)
    print("the API was away:", *(f"{s:.1f} s at {at:.1f} s" for s, at in away[:5]), sep="\n  ")
    jobs = submitter.acknowledged
    assert len(jobs) == len(set(jobs)) >= 2

    def ended() -> bool:
        with contextlib.suppress(ServiceError, StorageError), up.client() as client:
            return all(client.job(job).final for job in jobs)
        return False

    wait_until(ended)
    x = np.random.default_rng(SEED).standard_normal(SHAPE, np.float32)
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    farm = Farm.open(settings)
    try:
        with up.client() as client:
            for number, job in enumerate(jobs):
                client.job(job).raise_for_state()
                artifact = farrier.load(client.fetch(job, tmp_path / f"{number}.farrier"))
                (result,) = artifact.run({"x": x}).values()
                np.testing.assert_allclose(result, expected, atol=1e-5)
                events = farm.events.read(job, limit=100_000)
                assert [event.data.get("state") for event in events if event.last] == ["succeeded"]
                ids = [tuple(map(int, event.id.split("-"))) for event in events]
                assert ids == sorted(set(ids))
        assert farm.records.count() >= seen[-1] > 0
        assert recorded_twice(farm) == []
        assert farm.cost_models.state().decided is not None
        for version in farm.cost_models.state().versions:
            CostModel.load(farm.blobs.verified(version.blob).read_bytes())
        for leases in (farm.jobs.leases, farm.measurements.leases, farm.builds.leases):
            for state in (State.QUEUED, State.RUNNING):
                wait_until(lambda: not leases.members(state=state, limit=1))  # noqa: B023
        audit(farm)
    finally:
        farm.close()
    assert away[0][0] <= AWAY_S
    code, said = up.end()
    assert code == 0, said
    assert "no sign of life" not in said  # No role counts as hanging that only had to wait.
    assert up.pids("") == []


def test_a_seed_says_what_happens_and_when() -> None:
    faults = schedule(7, 100, has_disk=True)
    assert faults == schedule(7, 100, has_disk=True) != schedule(8, 100, has_disk=True)
    assert {fault.what for fault in faults} == {"kill", "stop", "cut", "fill"}
    overlaps = sum(
        earlier.at_s + earlier.lasts_s > following.at_s
        for earlier, following in itertools.pairwise(faults)
    )
    assert overlaps > 20
    assert all(fault.what != "fill" for fault in schedule(7, 100, has_disk=False))


def test_a_candidate_of_a_job_that_is_recorded_twice_is_found() -> None:
    records = [
        TuningRecord("task", "target", 1, "rule", 1, (("tile", tile),), "", Status.OK, (1,), seed)
        for tile, seed in ((1, 1), (2, 1), (1, 2), (2, 1))
    ]
    assert len(recorded_twice(types.SimpleNamespace(records=records))) == 1
    assert recorded_twice(types.SimpleNamespace(records=records[:3])) == []
