"""Versions of a job's artifact: added under a lease, kept by users, forgotten with the job."""

from __future__ import annotations

import math
import os
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farrier.errors import NotFoundError, UsageError
from farrier.options import CompileOptions
from farrier_farm.errors import StaleLeaseError
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from tests.farm.indexes import check_indexes
from tests.here import TARGET

MODEL = "5e" * 32
OPTIONS = CompileOptions(target=TARGET, trials=10)


def _report(tuned: float | None = None, untuned: float = 3.0) -> dict[str, Any]:
    verification = {"latency_ms": {"median": untuned}}
    if tuned is None:
        return {"tuned_is_faster": None, "verification": verification}
    return {
        "tuned_is_faster": True,
        "tuned_ms": {"median": tuned},
        "untuned_ms": {"median": untuned},
        "verification": verification,
    }


def _running(farm: Farm, **changes: Any) -> tuple[str, Any]:
    job = farm.jobs.submit(MODEL, OPTIONS, now=True, **changes).id
    return job, farm.jobs.lease("w", 0)


def _artifact(farm: Farm) -> str:
    return farm.blobs.put(os.urandom(64))


def test_the_newest_version_is_the_artifact_while_the_job_runs(farm: Farm, audit) -> None:
    job_id, lease = _running(farm)
    job = farm.jobs.get(job_id)
    assert (job.now, job.artifact, job.version, job.versions) == (True, None, None, ())
    first, second = _artifact(farm), _artifact(farm)
    farm.jobs.add_version(lease, 1, first, _report(), 64)
    farm.jobs.add_version(lease, 2, second, _report(tuned=2.0), 64)
    job = farm.jobs.get(job_id)
    assert (job.state, job.artifact, job.version) == (State.RUNNING, second, 2)
    assert job.report == _report(tuned=2.0)
    listed = [(v.number, v.artifact, v.median_ms, v.untuned_ms) for v in job.versions]
    assert listed == [(1, first, 3.0, 3.0), (2, second, 2.0, 3.0)]
    lines, _ = farm.events.log(job_id)
    assert [line.data["version"] for line in lines if line.data["kind"] == "version-added"] == [
        1,
        2,
    ]
    audit(farm)


def test_a_version_that_is_told_again_is_the_same(farm: Farm) -> None:
    job_id, lease = _running(farm)
    for _ in range(2):
        farm.jobs.add_version(lease, 1, "ab" * 32, _report(), 64)
    assert len(farm.jobs.get(job_id).versions) == 1


def test_what_was_gone_back_to_stays_whatever_comes(farm: Farm, audit) -> None:
    job_id, lease = _running(farm)
    first, second, third = (_artifact(farm) for _ in range(3))
    farm.jobs.add_version(lease, 1, first, _report(), 64)
    farm.jobs.add_version(lease, 2, second, _report(tuned=2.0), 64)
    job = farm.jobs.roll_back(job_id, 1)
    assert (job.artifact, job.report, job.version_is_kept) == (first, _report(), True)
    farm.jobs.add_version(lease, 3, third, _report(tuned=1.0), 64)
    farm.jobs.succeed_as_it_is(lease)
    job = farm.jobs.get(job_id)
    assert (job.state, job.version, len(job.versions)) == (State.SUCCEEDED, 1, 3)
    assert farm.jobs.roll_back(job_id, 3).artifact == third
    audit(farm)


def _told(farm: Farm, job_id: str) -> list[Any]:
    """The versions that the log of the job goes back to, and its states, in order."""
    lines, _ = farm.events.log(job_id)
    fields = {"rolled-back": "version", "state": "state"}
    return [line.data[fields[line.data["kind"]]] for line in lines if line.data["kind"] in fields]


def test_the_log_tells_of_each_going_back_once(farm: Farm) -> None:
    job_id, lease = _running(farm)
    for number in (1, 2):
        farm.jobs.add_version(lease, number, _artifact(farm), _report(), 64)
    for number in (1, 1, 2):
        farm.jobs.roll_back(job_id, number)
    farm.jobs.succeed_as_it_is(lease)
    events = farm.events.read(job_id)
    farm.jobs.roll_back(job_id, 1)
    assert _told(farm, job_id) == ["queued", "running", 1, 2, "succeeded", 1]
    assert farm.events.read(job_id) == events  # Nothing follows the end.
    left = farm.client.command("TTL", f"farrier:job:log:{job_id}")
    assert left > 0
    # The log expires some time after the end.
    farm.client.command("DEL", f"farrier:job:log:{job_id}")
    assert farm.jobs.roll_back(job_id, 2).version == 2
    assert farm.client.command("EXISTS", f"farrier:job:log:{job_id}") == 0


@pytest.mark.parametrize("number", [-1, 0, 2])
def test_there_is_no_such_version(farm: Farm, number: int) -> None:
    job_id, lease = _running(farm)
    farm.jobs.add_version(lease, 1, _artifact(farm), _report(), 64)
    with pytest.raises(NotFoundError, match=f"no version {number}") as error:
        farm.jobs.roll_back(job_id, number)
    assert "the only version is 1" in error.value.hint


def test_a_job_without_versions_says_how_to_have_some(farm: Farm) -> None:
    job = farm.jobs.submit(MODEL, OPTIONS)
    with pytest.raises(NotFoundError) as error:
        farm.jobs.roll_back(job.id, 1)
    assert "--now" in error.value.hint


def test_an_attempt_that_lost_its_lease_adds_nothing(farm: Farm) -> None:
    job_id, lost = _running(farm)
    farm.jobs.add_version(lost, 1, _artifact(farm), _report(), 64)
    farm.jobs.give_back(lost, crashed=True, reason="boom")
    lease = farm.jobs.lease("w", 0)
    with pytest.raises(StaleLeaseError):
        farm.jobs.add_version(lost, 2, _artifact(farm), _report(tuned=2.0), 64)
    farm.jobs.add_version(lease, 1, _artifact(farm), _report(tuned=1.0), 64)
    assert [v.median_ms for v in farm.jobs.get(job_id).versions] == [3.0, 1.0]


def test_a_job_keeps_its_versions_however_it_ends(farm: Farm, audit) -> None:
    job_id, lease = _running(farm)
    artifact = _artifact(farm)
    farm.jobs.add_version(lease, 1, artifact, _report(), 64)
    farm.cancel(job_id)
    job = farm.jobs.get(job_id)
    assert (job.state, job.artifact, farm.references.are_there(artifact)) == (
        State.CANCELLED,
        artifact,
        True,
    )
    assert farm.client.command("GET", "farrier:job:kept") == "64"
    audit(farm)


def test_all_versions_go_with_the_job(farm: Farm, audit) -> None:
    job_id, lease = _running(farm)
    blobs = [_artifact(farm) for _ in range(2)]
    for number, artifact in enumerate(blobs, 1):
        farm.jobs.add_version(lease, number, artifact, _report(), 64)
        day_ago = time.time() - 86400
        os.utime(farm.blobs.path(artifact), (day_ago, day_ago))
    farm.jobs.succeed_as_it_is(lease)
    assert farm.client.command("GET", "farrier:job:kept") == "128"
    farm.delete(job_id)
    assert not any(map(farm.blobs.has, blobs))
    check_indexes(farm)
    audit(farm)


def test_a_report_without_times(farm: Farm) -> None:
    job_id, lease = _running(farm)
    report = {"tuned_is_faster": None, "verification": None}
    farm.jobs.add_version(lease, 1, _artifact(farm), report, 64)
    (version,) = farm.jobs.get(job_id).versions
    assert (version.median_ms, version.untuned_ms) == (None, None)


@pytest.mark.parametrize("time_ms", [math.inf, math.nan, "fast", []])
def test_a_report_that_tells_no_time_is_refused(farm: Farm, time_ms: Any) -> None:
    job_id, lease = _running(farm)
    with pytest.raises(ValueError, match="not a valid time"):
        farm.jobs.add_version(lease, 1, _artifact(farm), _report(untuned=time_ms), 64)
    assert farm.jobs.get(job_id).versions == ()


def test_a_job_that_tunes_nothing_has_no_versions(farm: Farm) -> None:
    with pytest.raises(UsageError, match="neither trials nor a budget"):
        farm.jobs.submit(MODEL, CompileOptions(target=TARGET), now=True)


def test_a_listing_is_of_the_version_in_use(farm: Farm) -> None:
    job_id, lease = _running(farm)
    farm.jobs.add_version(lease, 1, _artifact(farm), _report(), 64)
    before, _ = farm.jobs.list_kernels(farm.jobs.get(job_id))
    farm.jobs.add_version(lease, 2, _artifact(farm), _report(tuned=2.0), 64)
    after, is_new = farm.jobs.list_kernels(farm.jobs.get(job_id))
    assert is_new
    assert after.compiled == farm.jobs.get(job_id).artifact != before.compiled
    assert farm.jobs.list_kernels(farm.jobs.get(job_id)) == (after, False)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(st.sampled_from(["add", "lose", 1, 2, 3]), max_size=12))
def test_in_any_order_the_current_one_is_the_users_or_the_newest(
    farm: Farm, steps: list[str | int]
) -> None:
    job_id, lease = _running(farm)
    added, kept, said = 0, 0, 0
    for step in steps:
        if step == "add":
            added, said = added + 1, said + 1
            farm.jobs.add_version(lease, said, f"{added:064x}", _report(tuned=1.0), 64)
        elif step == "lose":
            farm.jobs.give_back(lease, crashed=False, reason="the worker drains")
            lease, said = farm.jobs.lease("w", 0), 0
        elif int(step) <= added:
            kept = int(step)
            farm.jobs.roll_back(job_id, kept)
        job = farm.jobs.get(job_id)
        assert [v.number for v in job.versions] == [*range(1, added + 1)]
        assert job.version == ((kept or added) if added else None)
        assert job.artifact == (f"{job.version:064x}" if added else None)
    farm.delete(job_id)
