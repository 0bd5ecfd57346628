"""Tests of the cost model with which a job's tuning begins: the version in use, or the built-in
one."""

from __future__ import annotations

import pytest

from bench import models
from farrier.cost_model import pretrained
from farrier.options import CompileOptions
from farrier.records.outcome import Outcome
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from tests.here import TARGET
from tests.waiting import wait_until


def publish(farm: Farm, model: bytes) -> None:
    turn = farm.cost_models.state().turn
    assert farm.cost_models.decide(turn, 0, Outcome(True, "it is better"), model)


@pytest.fixture
def base_of_a_job(farm: Farm, device, supervise, program):
    supervise(program("from farrier_worker import job\njob.run(line)"))

    def run(size: int, trials: int) -> str:
        """Tune a model of its own size by more trials than those before it: trials of kernels that
        they share count, and are not made again."""
        model = models.build("mobilenet_v2", size=size, stages=1)
        options = CompileOptions(target=TARGET, trials=trials, threads=1)
        job_id = farm.jobs.submit(farm.blobs.put(model), options, name="net").id
        job = wait_until(lambda: (j := farm.jobs.get(job_id)).state.final and j)
        assert job.state is State.SUCCEEDED, job.error
        kinds = [event.data["kind"] for event in farm.events.read(job_id)]
        assert kinds.index("tuning-started") < kinds.index("trials-measured")
        assert job.cost_model is not None
        assert job.cost_model == job.report["tuning"]["cost_model"]
        return job.cost_model

    return run


@pytest.mark.long
def test_a_job_begins_with_the_version_in_use_and_without_one_with_what_ships(
    farm: Farm, base_of_a_job
) -> None:
    assert base_of_a_job(32, 4) == pretrained().name
    publish(farm, pretrained().save())
    assert base_of_a_job(40, 8) == "version 1"
    publish(farm, b"no model")
    assert base_of_a_job(48, 12) == pretrained().name
    blob = farm.cost_models.in_use().blob
    farm.blobs.path(blob).unlink()
    assert base_of_a_job(56, 16) == pretrained().name
