"""Jobs that do not end by themselves, and what a job has used when another attempt begins."""

from __future__ import annotations

import dataclasses
import time

import pytest

from farrier import progress
from farrier.options import CompileOptions
from farrier_farm.farm import Farm
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.leases.states import State
from farrier_farm.settings import Settings
from farrier_worker import job_channel_server
from farrier_worker.steps import Limit, StepClock, limit_of
from tests.here import TARGET
from tests.waiting import wait_until


@pytest.fixture
def submit(farm: Farm):
    def call(**options: object) -> str:
        options = {"target": TARGET, **options}
        return farm.jobs.submit(farm.blobs.put(b"a model"), CompileOptions(**options)).id

    return call


@pytest.fixture
def end_of(farm: Farm):
    return lambda job_id: wait_until(lambda: (j := farm.jobs.get(job_id)).state.final and j)


@pytest.mark.parametrize(
    "hang",
    [
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "while True: pass",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
    ],
)
def test_a_job_that_hangs_ends_with_the_reason(submit, program, supervise, end_of, hang) -> None:
    job_id = submit()
    supervise(program(hang), job_silence_s=1.0)
    job = end_of(job_id)
    assert (job.state, job.attempts, job.crashes) == (State.FAILED, 1, 0)
    assert job.error["code"] == "time-limit"
    assert "sent no message for 1 s in its step 'start'" in job.error["message"]
    assert "FARRIER_JOB_SILENCE_S" in job.error["hint"]


def test_a_job_past_its_deadline_ends_with_the_reason(
    farm, submit, program, supervise, end_of
) -> None:
    """Earlier attempts count; and that it says much does not help."""
    job_id = submit()
    farm.client.command("HSET", f"farrier:job:item:{job_id}", "worked_s", "999.5")
    babble = "while True: line.say(progress.StageStarted('import')); time.sleep(0.01)"
    supervise(program(babble), job_deadline_s=1000.0)
    job = end_of(job_id)
    assert (job.state, job.attempts) == (State.FAILED, 1)
    assert job.error["code"] == "time-limit"
    assert "has run for 1000 s" in job.error["message"]
    assert "FARRIER_JOB_DEADLINE_S" in job.error["hint"]


def test_the_budget_is_the_jobs_over_all_attempts(farm, submit, program, supervise, end_of) -> None:
    """The tuning time before the crash counts; other work does not."""
    job_id = submit(budget_s=100.0)
    supervise(
        program(
            """
            if attempt == 1:
                line.say(progress.StageStarted("schedule"))
                time.sleep(2.5)
                line.say(progress.StageStarted("codegen"))
                time.sleep(2.5)
                os.abort()
            succeed({"left": line.order["options"]["budget_s"]})
            """
        )
    )
    job = end_of(job_id)
    assert (job.state, job.attempts) == (State.SUCCEEDED, 2), job.error
    assert job.report["left"] == pytest.approx(100.0 - job.used.tuned_s)
    assert 2.4 < job.used.tuned_s < job.used.worked_s - 1.0


@pytest.mark.parametrize("step", ["import", "codegen", "reference", "verify"])
def test_a_step_that_hangs_ends_with_its_name(
    submit, program, supervise, end_of, step, monkeypatch
) -> None:
    """In C, say, where nothing but the end of its process helps; that it says so again does not."""

    def short(name: str, kind: JobKind, settings: Settings, nbytes: int) -> Limit | None:
        limit = limit_of(name, kind, settings, nbytes)
        assert limit is not None
        return dataclasses.replace(limit, seconds=0.5) if name == step else limit

    monkeypatch.setattr(job_channel_server, "limit_of", short)
    job_id = submit()
    hang = f"""
        line.say(progress.StageStarted("prepare"))
        line.say(progress.StageFinished("prepare", 0.0))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            line.say(progress.StageStarted({step!r}))
            time.sleep(0.1)
    """
    supervise(program(hang))
    job = end_of(job_id)
    assert (job.state, job.attempts, job.crashes) == (State.FAILED, 1, 0)
    assert job.error["code"] == "time-limit"
    assert f"the step {step!r} has run for 0.5 s" in job.error["message"]
    assert "FARRIER_STEP_S" in job.error["hint"]


def test_the_clock_of_a_step_stands_still_while_something_is_done_for_the_process() -> None:
    clock = StepClock()
    clock.hear(progress.StageStarted("verify"))
    with clock.served():
        before = clock.worked_s
        with clock.served():
            time.sleep(0.05)
        assert clock.worked_s == before
    time.sleep(0.05)
    assert clock.worked_s >= before + 0.05
    clock.hear(progress.StageStarted("verify"))
    assert clock.worked_s >= before + 0.05
    clock.hear(progress.StageFinished("verify", 1.0))
    assert clock.worked_s < before + 0.05


def test_the_limit_of_a_step_grows_with_the_model() -> None:
    settings = Settings()
    small, large = (limit_of("import", JobKind.COMPILE, settings, n).seconds for n in (1, 1 << 30))
    assert large - small == pytest.approx(1024, abs=1)
    assert limit_of("schedule", JobKind.COMPILE, settings, 1) is None
    assert limit_of("", JobKind.INSPECT, settings, 1 << 30).seconds == settings.inspect_s
