"""Tests of references to blobs: exact after every change, and after every crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from farrier.options import CompileOptions
from farrier.records import TuningRecord
from farrier_device.measurement import CandidateResult, MeasureResult, Status
from farrier_farm.farm import Farm
from tests.here import HERE, TARGET

MODEL, ARTIFACT, LIBRARY, OTHER = "5e" * 32, "a7" * 32, "1b" * 32, "2c" * 32
RESULT = MeasureResult(results=(CandidateResult(Status.OK, (5,)),) * 2)


def test_a_job_refers_to_its_model_and_its_artifact(farm: Farm, audit) -> None:
    assert not farm.references.are_there(MODEL)
    farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    assert farm.references.are_there(MODEL)
    assert not farm.references.are_there(ARTIFACT)
    farm.jobs.succeed(farm.jobs.lease("w", 0), ARTIFACT, {})
    assert farm.references.are_there(ARTIFACT)
    audit(farm)


@pytest.mark.parametrize("end", ["report", "cancel", "dead"])
def test_a_batch_refers_to_its_blobs_until_it_ends(
    farm: Farm, request_of, connect_device, audit, end: str, device_side
) -> None:
    device = connect_device("d")
    batch = farm.measurements.submit(request_of(LIBRARY), HERE)
    lease = device_side.lease(*device, 0).lease
    assert (lease.item, farm.references.are_there(LIBRARY)) == (batch, True)
    farm.measurements.submit(request_of(OTHER), HERE)
    if end == "report":
        device_side.report(*device, batch, lease.fence, RESULT)
    elif end == "cancel":
        farm.measurements.cancel(batch)
    else:
        for _ in range(farm.settings.batch_attempts):
            leases = farm.measurements.leases
            leases.give_back(lease, crashed=True, reason="gone")
            taken = [leases.take("d", leases.queues(), 0) for _ in range(2)]
            lease = next(
                (candidate for candidate in taken if candidate and candidate.item == batch), None
            )
        assert lease is None
    assert not farm.references.are_there(LIBRARY)
    assert farm.references.are_there(OTHER)
    audit(farm)


def test_an_archive_of_records_is_referred_to(farm: Farm, audit) -> None:
    farm.records.add(TuningRecord("t", "f", 1, "rule", 1, (), "trace", Status.OK, (1,)))
    archive = farm.records.archives.write()
    assert farm.references.are_there(archive)
    audit(farm)


def test_a_holder_that_is_gone_refers_to_nothing(farm: Farm, audit) -> None:
    jobs = [farm.jobs.submit(MODEL, CompileOptions(target=TARGET, seed=n)).id for n in range(40)]
    for job in jobs[:-1]:
        farm.client.command("DEL", farm.jobs.leases.key(job))
    assert farm.references.are_there(MODEL)
    farm.client.command("DEL", farm.jobs.leases.key(jobs[-1]))
    assert not farm.references.are_there(MODEL)
    audit(farm, indexes=False)  # They still refer to it.


def test_what_an_older_version_wrote_is_kept(farm: Farm, audit, device_side) -> None:
    """The jobs of an older version have no references. A worker of this version adds them, also for
    jobs that older roles write meanwhile."""
    blobs = set()
    for seed in range(2):
        model, artifact = farm.blobs.put(os.urandom(64)), farm.blobs.put(os.urandom(64))
        farm.jobs.submit(model, CompileOptions(target=TARGET, seed=seed))
        farm.jobs.succeed(farm.jobs.lease("w", 0), artifact, {})
        blobs |= {model, artifact}
        for key in farm.client.command("KEYS", "farrier:refs:[0-9a-f]*"):
            farm.client.command("DEL", key)
        for digest in blobs:
            os.utime(farm.blobs.path(digest), (0, 0))
        farm.collect_garbage()
        assert all(farm.blobs.has(digest) for digest in blobs)
        audit(farm)
    farm.client.command("SET", "farrier:adopted:2", time.time() - farm.settings.blob_age_s)
    assert not farm.adoption.is_due(farm.settings.blob_age_s)  # Nothing is examined again.


# Jobs and models come and end without a pause.
BUSY = """
    import itertools, os, sys
    from pathlib import Path
    from farrier.options import CompileOptions
    from farrier_device.describe import describe
    from farrier_device.measurement import *
    from farrier_farm.devices.classes import DeviceClass, MeasurementTarget
    from farrier_farm.farm import Farm
    from farrier_farm.settings import Settings
    here = DeviceClass.of(describe())
    farm = Farm.open(Settings(home=Path(sys.argv[1]), min_free_bytes=0))
    for n in itertools.count():
        farm.jobs.submit(os.urandom(32).hex(), CompileOptions(target=here.to_text(), seed=n))
        if n == 0:
            print("busy", flush=True)
        job = farm.jobs.lease("w", 0)
        code = CodeObject(os.urandom(32).hex())
        request = MeasureRequest((code,), (Candidate((Launch("f"),), ()),))
        batch = farm.measurements.submit(request, MeasurementTarget(here.id), job)
        if n % 3:
            farm.measurements.cancel(batch)
            farm.jobs.succeed(job, os.urandom(32).hex(), {})
"""


@pytest.mark.parametrize("victim", ["client", "redis"])
def test_references_are_exact_after_a_crash(installation, audit, victim: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(BUSY), str(installation.settings.home)]
    for pause_s in (0.05, 0.11, 0.23):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as busy:
            assert busy.stdout.readline() == "busy\n"
            time.sleep(pause_s)
            if victim == "redis":
                installation.kill_redis()
            busy.send_signal(signal.SIGKILL)
        if victim == "redis":
            installation.start_redis()
        farm = Farm.open(installation.settings)
        assert farm.jobs.list(limit=1)[0]
        audit(farm)
        farm.close()
