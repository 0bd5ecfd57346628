"""Jobs that are deleted or outlived: nothing of them is left, and all of the others is."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable

import pytest

from farrier.errors import NotFoundError
from farrier.options import CompileOptions
from farrier_farm.errors import StaleLeaseError
from farrier_farm.farm import Farm
from farrier_farm.leases.leases import new_id
from farrier_farm.leases.states import State
from farrier_farm.storage.models import DataFile, Manifest
from tests.farm.indexes import check_indexes
from tests.here import HERE, TARGET

MODEL = "5e" * 32
DAY_S = 86400.0


@pytest.fixture
def with_settings(farm: Farm) -> Callable[..., Farm]:
    """The farm under other settings."""
    opened = []

    def open_again(**changes: object) -> Farm:
        opened.append(Farm.open(dataclasses.replace(farm.settings, **changes)))
        return opened[-1]

    yield open_again
    for other in opened:
        other.close()


def _ended(farm: Farm, age_s: float = 0.0, artifact: str = "", **key: str) -> str:
    """A job that succeeded so long ago, with an artifact of 64 bytes."""
    artifact = artifact or farm.blobs.put(os.urandom(64))
    job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET), **key).id
    farm.jobs.succeed(farm.jobs.lease("w", 0), artifact, {}, artifact_bytes=64)
    finished = int((time.time() - age_s) * 1000)
    farm.client.command("HSET", farm.jobs.leases.key(job), "finished", finished)
    for index in ("finished", "weighty"):
        farm.client.command("ZADD", f"farrier:job:{index}", finished, job)
    _age(farm, artifact, age_s)
    return job


def _age(farm: Farm, sha256: str, age_s: float) -> None:
    then = time.time() - age_s
    os.utime(farm.blobs.path(sha256), (then, then))


@pytest.mark.parametrize("state", list(State))
def test_a_job_is_deleted_in_any_state(farm: Farm, request_of, audit, state: State) -> None:
    job = farm.jobs.submit(
        MODEL, CompileOptions(target=TARGET), owner="ann", idempotency_key="k"
    ).id
    if state not in (State.QUEUED, State.CANCELLED):
        lease = farm.jobs.lease("w", 0)
        batch = farm.measurements.submit(request_of("ab" * 32), HERE, lease)
    match state:
        case State.SUCCEEDED | State.FAILED:
            farm.jobs.leases.finish(lease, state, {})
        case State.CANCELLED:
            farm.jobs.cancel(job)
        case State.DEAD:
            for _ in range(farm.settings.job_crashes):
                farm.jobs.give_back(lease, crashed=True, reason="boom")
                lease = farm.jobs.lease("w", 0) or lease
    assert farm.jobs.get(job).state is state
    farm.delete(job)
    audit(farm)
    for call in (farm.jobs.get, farm.events.read, farm.delete, farm.cancel):
        with pytest.raises(NotFoundError, match=job):
            call(job)
    assert farm.jobs.lease("w", 0) is None
    if state is State.RUNNING:
        with pytest.raises(StaleLeaseError, match="forgotten"):
            farm.jobs.renew(lease)
        assert farm.measurements.leases.state(batch) is State.CANCELLED
    named = [key for key in farm.client.command("KEYS", "*") if job in key]
    assert named == []
    assert not farm.references.are_there(MODEL)
    again = farm.jobs.submit(MODEL, CompileOptions(target=TARGET), owner="ann", idempotency_key="k")
    assert (again.id != job, again.state) == (True, State.QUEUED)


def test_a_deletion_whose_answer_is_lost_is_no_error(farm: Farm, monkeypatch) -> None:
    job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    command = farm.client.command

    def twice(*words: str | int) -> object:
        command(*words)  # The answer of this call never arrives.
        return command(*words)

    with monkeypatch.context() as patch:
        patch.setattr(farm.client, "command", twice)
        farm.delete(job)
    with pytest.raises(NotFoundError):
        farm.delete(job)


def test_a_device_gets_no_batch_of_a_deleted_job(
    farm: Farm, request_of, connect_device, device_side
) -> None:
    device = connect_device("d")
    farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    lease = farm.jobs.lease("w", 0)
    farm.delete(lease.item)
    # The job's process has not noticed the deletion yet.
    batch = farm.measurements.submit(request_of("ab" * 32), HERE, lease)
    assert device_side.lease(*device, 0) is None
    assert farm.measurements.leases.state(batch) is State.CANCELLED


def test_an_artifact_goes_with_its_last_job_unless_it_is_young(farm: Farm) -> None:
    shared, young = farm.blobs.put(os.urandom(64)), farm.blobs.put(os.urandom(64))
    first, second = (_ended(farm, DAY_S, shared) for _ in range(2))
    farm.delete(first)
    assert farm.blobs.has(shared)
    farm.delete(second)
    assert not farm.blobs.has(shared)
    farm.delete(_ended(farm, 60.0, young))
    assert farm.blobs.has(young)  # Another job may be about to refer to it.
    _age(farm, young, farm.settings.blob_age_s + 60)
    farm.collect_garbage()
    assert not farm.blobs.has(young)


def test_jobs_are_forgotten_by_age(farm: Farm, with_settings, audit) -> None:
    keeps = with_settings(job_age_s=90 * DAY_S)
    old = [_ended(farm, 91 * DAY_S, idempotency_key=f"k{n}") for n in range(130)]
    recent = _ended(farm, 89 * DAY_S)
    queued = farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    assert with_settings(job_age_s=0.0).retention.apply() == 0
    assert keeps.retention.apply() == len(old)
    assert {job.id for job in farm.jobs.list()[0]} == {recent, queued}
    assert farm.client.command("HLEN", "farrier:job:once") == 0
    audit(farm)


def test_the_oldest_artifacts_are_forgotten_beyond_a_size(farm: Farm, with_settings, audit) -> None:
    days = [3, 9, 1, 7, 5]
    jobs = {day: _ended(farm, day * DAY_S) for day in days}
    failed = farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    farm.jobs.leases.finish(farm.jobs.lease("w", 0), State.FAILED, {})
    assert with_settings(artifact_bytes=3 * 64 - 1).retention.apply() == 3
    assert {job.id for job in farm.jobs.list()[0]} == {jobs[1], jobs[3], failed}
    audit(farm)


def test_what_an_older_version_left_is_forgotten_in_its_time(farm: Farm, with_settings) -> None:
    """It had no indexes, and its idempotency keys knew of jobs, not the other way round."""
    artifact = farm.blobs.put(os.urandom(64))
    jobs = [new_id() for _ in range(2)]
    for job, age_s in zip(jobs, (100 * DAY_S, 0.0), strict=True):
        finished = int((time.time() - age_s) * 1000)
        fields = {"state": "succeeded", "queue": "compile", "entry": "1-1", "group": "all"}
        fields |= {"fence": "1", "attempts": "1", "crashes": "0", "created": "1", "name": ""}
        fields |= {"finished": str(finished), "model": MODEL, "artifact": artifact, "options": "{}"}
        flat = [word for pair in fields.items() for word in pair]
        farm.client.command("HSET", farm.jobs.leases.key(job), *flat)
        for index in ("group:all", "state:succeeded"):
            farm.client.command("ZADD", f"farrier:job:{index}", 0, job)
        farm.client.command("HSET", "farrier:job:once", f"key of {job}", job)
    farm.client.command("HSET", "farrier:job:once", "of none", new_id())
    keeps = with_settings(job_age_s=90 * DAY_S)
    keeps.collect_garbage()
    assert [job.id for job in farm.jobs.list(owner="default")[0]] == jobs[1:]
    assert farm.client.command("HKEYS", "farrier:job:once") == [f"key of {jobs[1]}"]
    assert farm.client.command("GET", "farrier:job:kept") == "64"
    check_indexes(farm)


def test_manifests_of_no_job_are_forgotten(farm: Farm, with_settings, audit) -> None:
    def model(seed: int) -> str:
        message, data = farm.blobs.put(b"m%d" % seed), farm.blobs.put(b"d%d" % seed)
        return farm.models.create(Manifest(message, {"w": DataFile(data, 2)}))

    unused, submitted, named = (model(seed) for seed in range(3))
    farm.client.command("DEL", "farrier:models")  # An older version noted no time.
    farm.collect_garbage()
    farm.jobs.submit(submitted, CompileOptions(target=TARGET))
    later = with_settings(blob_age_s=0.2)
    time.sleep(0.3)
    farm.models.hold(named)
    later.retention.apply()
    with pytest.raises(NotFoundError):
        farm.models.get(unused)
    for kept in (submitted, named):
        farm.models.get(kept)
    audit(farm)
