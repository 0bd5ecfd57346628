"""Processes killed while a job runs: it succeeds all the same, and its artifact is right."""

from __future__ import annotations

import os
import signal

import pytest

import farrier
from farrier.errors import NoDeviceError, ServiceError
from farrier.progress import TrialsMeasured
from tests.waiting import wait_until

pytestmark = pytest.mark.chaos

SHAPE = (1, 3, 13, 17)
AGENT, WORKER, JOB = "-m farrier_device ", "farrier.cli worker", "farrier_worker.job"


def _kill(up, words):
    (pid,) = up.pids(words)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("victim", [AGENT, WORKER, JOB])
def test_a_killed_process_costs_time_and_nothing_else(make_up, model, tmp_path, victim):
    up = make_up().start()
    with up.client() as client:
        job = client.submit(model, shapes={"x": SHAPE}, trials=80)
        killed = False
        for update in client.watch(job.id):
            if isinstance(update, TrialsMeasured) and not killed:
                _kill(up, victim)
                killed = True
        assert killed
        job = client.job(job.id)
        job.raise_for_state()
        assert job.attempts == (1 if victim == AGENT else 2)
        artifact = farrier.load(client.fetch(job.id, tmp_path / "net.farrier"))
    assert artifact.report["verification"]["max_error"] < 1e-5
    assert up.end()[0] == 0


@pytest.mark.long
def test_builders_that_are_killed_cost_time_and_nothing_else(make_up, model, tmp_path):
    """Builds that they had in progress are compiled by the job itself, and later ones by builders
    again."""
    up = make_up(FARRIER_BUILDERS="2", FARRIER_JOB_CORES="1").start()
    assert up.command("probe", "builder").stdout.count("builder is alive: process") == 1
    with up.client() as client:
        job = client.submit(model, shapes={"x": SHAPE}, trials=80)
        killed = set()
        for update in client.watch(job.id):
            compiling = up.pids("farrier_worker.build")
            if isinstance(update, TrialsMeasured) and compiling and len(killed) < 2:
                for pid in up.pids("farrier.cli builder"):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
        assert len(killed) == 2
        job = client.job(job.id)
        job.raise_for_state()
        assert job.attempts == 1
        artifact = farrier.load(client.fetch(job.id, tmp_path / "net.farrier"))
    assert artifact.report["verification"]["max_error"] < 1e-5
    assert up.end()[0] == 0
    assert up.pids("") == []


@pytest.mark.long
def test_a_job_that_waits_for_a_device_gets_it_when_it_comes(make_up, model):
    up = make_up().start()
    (agent,) = up.pids(AGENT)
    for pid in (up.process.pid, agent):  # The first would restart the second.
        os.kill(pid, signal.SIGSTOP)
    with up.client() as client:
        wait_until(lambda: client.devices()[0].state == "offline")
        with pytest.raises(NoDeviceError, match="no device for class:"):
            client.submit(model, shapes={"x": SHAPE}, trials=4)
        submitted = up.command("submit", model, "--shape", "x=1,3,13,17", "--trials", "4")
        assert (submitted.returncode, "no device" in submitted.stderr) == (13, True)
        job = client.submit(model, shapes={"x": SHAPE}, trials=4, wait_for_device=True)
        updates = client.watch(job.id)
        assert "no device for class:" in next(updates).reason
        for pid in (agent, up.process.pid):
            os.kill(pid, signal.SIGCONT)
        assert client.wait(job.id).state == "succeeded"
        assert client.job(job.id).attempts == 1
        watched = up.command("watch", job.id).stderr
        assert "queued: no device for class:" in watched


@pytest.mark.long
def test_a_server_that_is_gone_is_named(make_up, model):
    up = make_up().start()
    up.end()
    done = up.command("submit", model, "--shape", "x=1,3,13,17")
    assert done.returncode == ServiceError.exit_code
    assert f"no server answers at {up.url}" in done.stderr
    assert "farrier up" in done.stderr
