"""A job whose artifact is there at once: real workers, the real compiler, and a worker killed."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import tests.spaces
from bench import models
from farrier.options import CompileOptions
from farrier.runtime.artifact import load
from farrier_farm.farm import Farm
from farrier_farm.jobs.jobs import Job
from farrier_farm.leases.states import State
from tests.here import TARGET
from tests.waiting import wait_until

MODEL = models.build("mobilenet_v2", size=32, stages=1)
OPTIONS = CompileOptions(target=TARGET, trials=72, threads=1)

# Two rounds, of 24 trials and 48. The defaults are the schedules that the analytic model ranks
# last, so tuning finds better ones however a busy device measures, and all races count as won.
TWO_ROUNDS = f"""
    sys.path.insert(0, {str(Path(tests.spaces.__file__).parents[1])!r})
    from farrier.background import rounds
    from farrier.model_tuning.compare import Race
    from farrier.space import Space
    from farrier_worker import job
    from tests.spaces import slowest
    rounds._LEAST_TRIALS = 24
    Space.default = slowest
    Race.is_won = True
    job.run(line)
"""
WORKER = """
import pickle, sys
from farrier_farm.farm import Farm
from farrier_worker.supervisor import Supervisor
settings, command = pickle.loads(bytes.fromhex(sys.argv[1]))
Supervisor(Farm.open(settings), command=command, name="worker-to-kill").run()
"""


@pytest.fixture
def worker_settings(worker_settings):
    return dataclasses.replace(worker_settings, device_expiry_s=10.0)


@pytest.fixture
def submit(farm: Farm):
    return lambda: farm.jobs.submit(farm.blobs.put(MODEL), OPTIONS, name="net", now=True).id


@pytest.fixture
def ended(farm: Farm):
    def wait(job_id: str) -> Job:
        return wait_until(lambda: (j := farm.jobs.get(job_id)).state.final and j)

    return wait


def _check(farm: Farm, job: Job) -> None:
    """Its versions are artifacts of unlike code, and the newest is the job's."""
    assert job.state is State.SUCCEEDED, job.error
    assert [version.number for version in job.versions] == [*range(1, len(job.versions) + 1)]
    assert (job.artifact, job.version) == (job.versions[-1].artifact, len(job.versions))
    artifacts = [load(Path(farm.blobs.verified(version.artifact))) for version in job.versions]
    assert len({artifact.manifest.code for artifact in artifacts}) == len(artifacts) >= 2
    assert all(version.median_ms > 0 for version in job.versions)
    assert job.report == artifacts[-1].report


@pytest.mark.long
def test_the_untuned_artifact_is_there_first(
    farm: Farm, device, submit, program, supervise, ended
) -> None:
    job_id = submit()
    supervise(program(TWO_ROUNDS))
    job = wait_until(lambda: (j := farm.jobs.get(job_id)).artifact and j)
    assert (job.state, job.trials) == (State.RUNNING, None)
    first = load(farm.blobs.verified(job.artifact))
    assert {kernel.source for kernel in first.manifest.kernels} == {"default"}
    _check(farm, ended(job_id))


@pytest.mark.long
def test_a_killed_worker_costs_no_version(
    farm: Farm, device, submit, program, supervise, ended
) -> None:
    """Killed as soon as there is a version; what comes after is raced with that one."""
    job_id = submit()
    arguments = pickle.dumps((farm.settings, program(TWO_ROUNDS))).hex()
    with subprocess.Popen([sys.executable, "-c", WORKER, arguments]) as worker:
        try:
            before = wait_until(lambda: farm.jobs.get(job_id).versions)
        finally:
            worker.kill()
    before = farm.jobs.get(job_id).versions
    supervise(program(TWO_ROUNDS))
    job = ended(job_id)
    assert job.attempts == 2
    assert job.versions[: len(before)] == before
    _check(farm, job)


def test_a_cancelled_job_keeps_what_it_has(farm: Farm, device, submit, program, supervise) -> None:
    job_id = submit()
    supervise(program(TWO_ROUNDS))
    wait_until(lambda: farm.jobs.get(job_id).artifact)
    farm.cancel(job_id)
    job = farm.jobs.get(job_id)
    assert job.state is State.CANCELLED
    assert load(farm.blobs.verified(job.artifact)).report == job.report


@pytest.mark.parametrize(
    "says",
    [
        "line.finish_as_it_is()",
        "line.ask({'finish': {}}, [file])",
        "line.add_version(file, {})",
        "line.add_version(file, {'tuned_is_faster': False, 'verification': {'latency_ms': 3}})",
    ],
)
def test_what_is_no_version_ends_the_attempt(
    farm: Farm, submit, program, supervise, ended, says: str
) -> None:
    job_id = submit()
    supervise(program(f"file = os.open(sys.executable, os.O_RDONLY)\n{says}"))
    job = ended(job_id)
    assert (job.state, job.versions) == (State.DEAD, ())
    assert "malformed" in job.error["message"]


def test_a_job_that_was_not_asked_to_adds_no_version(farm: Farm, program, supervise, ended) -> None:
    job_id = farm.jobs.submit(farm.blobs.put(MODEL), OPTIONS).id
    supervise(program("line.add_version(os.open(sys.executable, os.O_RDONLY), {})"))
    job = ended(job_id)
    assert (job.state, job.versions) == (State.DEAD, ())
