"""Twenty faults at random moments, on the service as users start it, while it tunes: nothing that
was acknowledged is lost, and no job gets stuck.

`FARRIER_CHAOS_SEED` repeats a run that failed, as far as faults and moments go."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time

import numpy as np
import onnxruntime
import pytest

import farrier
from farrier.cost_model import CostModel
from farrier.errors import ServiceError
from farrier.sdk.client import Client
from farrier_farm.farm import Farm
from farrier_farm.patience import PROBE
from farrier_farm.settings import Settings
from farrier_farm.states import State
from tests.farm.conftest import audit  # noqa: F401

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

SEED = int(os.environ.get("FARRIER_CHAOS_SEED", "18"))
FAULTS = 20
SHAPE = (1, 3, 13, 17)
VICTIMS = {
    "API": "farrier.cli serve",
    "broker": "farrier.cli broker",
    "worker": "farrier.cli worker",
    "job": "farrier_worker.job",
    "builder": "farrier.cli builder",
    "compiling process": "farrier_worker.build",
    "trainer": "farrier.cli trainer",
    "training process": "farrier_worker.train",
    "agent": "-m farrier_device ",
    "measurement child": "import farrier_device.child",
    "Valkey": "valkey-server",
}
# Nobody is to blame for what is done to them here.
LENIENT = {
    "FARRIER_JOB_CRASHES": "100",
    "FARRIER_BATCH_ATTEMPTS": "100",
    "FARRIER_QUARANTINE_FAULTS": "1000",
    "FARRIER_ROLE_SILENCE_S": "8",
    "FARRIER_BUILDERS": "2",
    "FARRIER_TRAIN_S": "1",
    "FARRIER_TRAIN_RECORDS": "1",
}
END_S = 240.0


class Submitter:
    """Keeps some jobs of two owners under way, in a thread, until it is told to stop."""

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
            with contextlib.suppress(ServiceError):
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
            self._stop.wait(0.2)  # the API is away: the same request again, by its key


def injure(up, generator: random.Random) -> str:
    """Kills or stops a process of the service; says what it did."""
    victims = {name: up.pids(words) for name, words in VICTIMS.items()}
    name = generator.choice(sorted(name for name, pids in victims.items() if pids))
    pid = generator.choice(victims[name])
    with contextlib.suppress(ProcessLookupError):
        if generator.random() < 0.6:
            os.kill(pid, signal.SIGKILL)
            return f"killed the {name}"
        seconds = generator.uniform(0.2, 7.0)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)  # unless it was replaced meanwhile
        return f"stopped the {name} for {seconds:.1f} s"
    return f"the {name} had ended"


def records_kept(settings: Settings) -> int | None:
    """How many records there are; None where Redis does not answer."""
    with contextlib.suppress(ServiceError):
        farm = Farm.open(settings, PROBE)
        try:
            return farm.records.count()
        finally:
            farm.close()
    return None


def test_twenty_faults_cost_time_and_nothing_else(
    make_up,
    model,
    tmp_path,
    eventually,
    audit,  # noqa: F811
):
    print(f"FARRIER_CHAOS_SEED={SEED}")
    generator = random.Random(SEED)
    up = make_up(**LENIENT).start()
    settings = Settings(home=up.home, min_free_bytes=1)
    added = up.command("tokens", "add", "ann")
    submitter = Submitter(up.url, [up.token, added.stdout.strip()], model)
    try:
        eventually(lambda: submitter.acknowledged)
        seen = [0]
        for _ in range(FAULTS):
            time.sleep(generator.uniform(0.1, 2.5))
            print(injure(up, generator))
            count = records_kept(settings)
            if count is not None:
                assert count >= seen[-1]
                seen.append(count)
    finally:
        submitter.stop()
    jobs = submitter.acknowledged
    assert len(jobs) == len(set(jobs)) >= 2

    def ended() -> bool:
        with contextlib.suppress(ServiceError), up.client() as client:
            return all(client.job(job).final for job in jobs)
        return False

    eventually(ended, END_S)
    x = np.random.default_rng(SEED).standard_normal(SHAPE, np.float32)
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    farm = Farm.open(settings)
    try:
        with up.client() as client:
            for number, job in enumerate(jobs):
                client.job(job).raise_for_state()
                artifact = farrier.load(client.fetch(job, tmp_path / f"{number}.farrier"))
                (found,) = artifact.run({"x": x}).values()
                np.testing.assert_allclose(found, expected, atol=1e-5)
                events = farm.events.read(job, limit=100_000)
                assert [event.data.get("state") for event in events if event.last] == ["succeeded"]
                ids = [tuple(map(int, event.id.split("-"))) for event in events]
                assert ids == sorted(set(ids))
        assert farm.records.count() >= seen[-1] > 0
        assert farm.cost_models.state().decided is not None
        for version in farm.cost_models.state().versions:
            CostModel.load(farm.blobs.verified(version.blob).read_bytes())
        for leases in (farm.jobs.leases, farm.measurements.leases, farm.builds.leases):
            for state in (State.QUEUED, State.RUNNING):
                eventually(lambda: not leases.members(state=state, limit=1))  # noqa: B023
        audit(farm)
    finally:
        farm.close()
    code, said = up.end()
    assert code == 0, said
    assert up.pids("") == []
