"""Builds on their way from a job to a builder and back."""

from __future__ import annotations

import threading
import time

import pytest

from farrier.options import CompileOptions
from farrier_farm.errors import StaleLeaseError
from farrier_farm.farm import Farm
from farrier_farm.jobs import builds as module
from farrier_farm.jobs.builds import BuildResult
from farrier_farm.leases.leases import Lease
from farrier_farm.leases.states import State
from tests.here import TARGET


@pytest.fixture
def job(farm: Farm) -> Lease:
    """A job that a worker holds."""
    farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET))
    lease = farm.jobs.lease("w", 5.0)
    assert lease is not None
    return lease


def _wait(farm: Farm, build_id: str) -> BuildResult:
    return farm.builds.wait(build_id, lambda: False)


def test_an_answer_is_taken_out_and_nothing_stays(farm: Farm, job: Lease, audit) -> None:
    build_id = farm.builds.submit("message", job)
    build = farm.builds.take("b", 0.0)
    assert build is not None
    assert (build.lease.item, build.job, build.message) == (build_id, job.item, "message")
    audit(farm)
    threading.Timer(0.2, farm.builds.finish, [build, "answer"]).start()
    begin = time.monotonic()
    assert _wait(farm, build_id) == BuildResult("answer")
    assert time.monotonic() - begin < 0.9
    assert farm.builds.leases.state(build_id) is None
    assert not farm.client.command("KEYS", f"farrier:build:*{build_id}*")
    audit(farm)


def test_a_module_that_crashes_each_time_is_told_so(farm: Farm, job: Lease) -> None:
    build_id = farm.builds.submit("message", job)
    for _ in range(2):
        build = farm.builds.take("b", 0.0)
        assert build is not None
        farm.builds.crash(build, "was killed by SIGSEGV")
    assert farm.builds.take("b", 0.0) is None
    assert _wait(farm, build_id) == BuildResult(crashed="was killed by SIGSEGV")


def test_what_crashed_once_and_is_taken_by_nobody_is_not_tried_elsewhere(
    farm: Farm, job: Lease, monkeypatch
) -> None:
    """The build returns to the process of its job."""
    monkeypatch.setattr(module, "_CALLED_BACK_S", 0.2)
    build_id = farm.builds.submit("message", job)
    build = farm.builds.take("b", 0.0)
    assert build is not None
    farm.builds.crash(build, "was killed by SIGSEGV")
    assert _wait(farm, build_id) == BuildResult(crashed="was killed by SIGSEGV")


def test_what_nobody_takes_is_called_back(farm: Farm, job: Lease, monkeypatch) -> None:
    monkeypatch.setattr(module, "_CALLED_BACK_S", 0.2)
    build_id = farm.builds.submit("message", job)
    assert _wait(farm, build_id) == BuildResult()
    assert farm.builds.take("b", 0.0) is None


def test_builders_that_are_lost_are_no_crash_of_the_module(
    farm: Farm, job: Lease, expire, monkeypatch
) -> None:
    monkeypatch.setattr(module, "_CALLED_BACK_S", 0.2)
    build_id = farm.builds.submit("message", job)
    for builder in "ab":
        build = farm.builds.take(builder, 0.0)
        assert build is not None
        expire(farm.builds.leases, build.lease)
    assert _wait(farm, build_id) == BuildResult()
    with pytest.raises(StaleLeaseError):
        farm.builds.finish(build, "answer")


def test_a_job_that_is_over_waits_no_longer(farm: Farm, job: Lease) -> None:
    build_id = farm.builds.submit("message", job)
    build = farm.builds.take("b", 0.0)
    assert build is not None
    assert farm.builds.wait(build_id, lambda: True) == BuildResult()
    assert farm.builds.renew("b", [build]) == [build]


def test_a_cancelled_job_takes_its_builds_along(farm: Farm, job: Lease, audit) -> None:
    queued, running = (farm.builds.submit(text, job) for text in ("first", "second"))
    assert farm.builds.take("b", 0.0) is not None
    farm.cancel(job.item)
    assert farm.builds.take("b", 0.0) is None
    assert {farm.builds.leases.state(build_id) for build_id in (queued, running)} == {
        State.CANCELLED
    }
    audit(farm)


def test_builds_of_an_attempt_that_is_over_are_not_begun(farm: Farm, job: Lease) -> None:
    """Its worker was killed: nobody dropped them."""
    build_id = farm.builds.submit("message", job)
    farm.jobs.give_back(job, crashed=True, reason="its worker is gone")
    assert farm.builds.take("b", 0.0) is None
    assert farm.builds.leases.state(build_id) is State.CANCELLED


def test_a_builder_of_another_version_gets_nothing(farm: Farm, job: Lease, monkeypatch) -> None:
    build_id = farm.builds.submit("message", job)
    with monkeypatch.context() as patch:
        patch.setattr(module, "queue_name", lambda: "code-of-another-version")
        farm.builds.beat("other", 4)
        assert farm.builds.take("other", 0.0) is None
        assert farm.builds.builders() == {"other": 4}
    assert farm.builds.builders() == {}
    build = farm.builds.take("same", 0.0)
    assert build is not None
    assert build.lease.item == build_id


def test_builders_count_while_they_are_heard(farm: Farm, monkeypatch) -> None:
    assert farm.builds.builders() == {}
    farm.builds.beat("host one-1", 2)
    farm.builds.beat("host-2", 8)
    farm.builds.beat("host-2", 8)
    assert farm.builds.builders() == {"host one-1": 2, "host-2": 8}
    farm.builds.leave("host-2", 8)
    assert farm.builds.builders() == {"host one-1": 2}
    monkeypatch.setattr(farm.builds, "_expiry_ms", 50)
    time.sleep(0.1)
    assert farm.builds.builders() == {}


def test_what_was_dropped_is_kept_for_a_minute(farm: Farm, job: Lease) -> None:
    build_id = farm.builds.submit("message", job)
    farm.builds.drop(job.item)
    assert 0 < farm.client.command("TTL", f"farrier:build:item:{build_id}") <= 60


def test_builders_build_for_owners_in_turn(farm: Farm, job: Lease, audit) -> None:
    messages = [f"{owner} {number}" for owner in ("ann", "bob") for number in range(4)]
    for message in messages:
        farm.builds.submit(message, job, message.partition(" ")[0])
    taken = []
    for _ in messages:
        build = farm.builds.take("b", 0.0)
        assert build is not None
        taken.append(build.message)
    assert taken == [messages[n] for n in (0, 4, 1, 5, 2, 6, 3, 7)]
    audit(farm)
