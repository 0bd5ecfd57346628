"""Trainers and their training processes are killed and stopped while they train: the version of the
cost model in use is a whole one or none, and a training that nobody disturbs publishes.

`FARRIER_CHAOS_SEED` repeats a run that failed, as far as faults and moments go."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from farrier.cost_model import CostModel
from farrier_farm.farm import Farm
from farrier_farm.redis import embedded
from farrier_farm.settings import Settings
from farrier_worker.trainer import Trainer
from tests.chaos.crew import Crew, children
from tests.cost_model.tasks import Law, definitions, records, unlike
from tests.farm.conftest import audit  # noqa: F401
from tests.waiting import wait_until

pytestmark = pytest.mark.chaos

SEED = int(os.environ.get("FARRIER_CHAOS_SEED", "18"))
FAULTS = 24


def otherwise(analytic: float, decisions: dict[str, int]) -> float:
    """Reverse `unlike`: its slow candidates are fast, and its fast ones slow."""
    return analytic * (1.0 + 2.0 * (decisions["vectors"] != 1) + 0.5 * (decisions["rows"] <= 4))


@pytest.fixture
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    settings = Settings(home=tmp_path_factory.mktemp("f"), min_free_bytes=0)
    valkey = embedded.start(settings)
    farm = Farm.open(settings)
    farm.definitions.define(definitions())
    yield farm
    farm.close()
    valkey.stop()


@pytest.fixture
def measure(farm: Farm) -> Callable[[Law], None]:
    """Measure the same candidates once more, by another law: the newest records count."""
    times = itertools.count()

    def add(law: Law) -> None:
        now = 1000.0 * next(times)
        farm.records.load(
            dataclasses.replace(record, created=now + record.created).to_line().encode()
            for definition in definitions()
            for record in records(definition, law, count=12)
        )

    return add


@pytest.fixture
def crew(farm: Farm) -> Iterator[Crew]:
    """Trainers that train again and again, as long as records come."""
    settings = dataclasses.replace(farm.settings, train_s=0.1, train_records=1)
    crew = Crew(settings, ["trainer"], 2)
    yield crew
    crew.close()


def whole(farm: Farm) -> list[int]:
    """The numbers of the versions, each of which can be used."""
    state = farm.cost_models.state()
    for version in state.versions:
        CostModel.load(farm.blobs.verified(version.blob).read_bytes())
    assert state.in_use in (None, *state.versions)
    return [version.number for version in state.versions]


@pytest.mark.long
@pytest.mark.parametrize("victim", ["trainer", "training process"])
def test_a_training_that_is_killed_publishes_nothing_and_the_next_does(
    farm: Farm,
    measure,
    audit,  # noqa: F811
    victim: str,
) -> None:
    measure(unlike)
    environment = {**os.environ, **farm.settings.to_environment()}
    trainer = subprocess.Popen([sys.executable, "-m", "farrier.cli", "trainer"], env=environment)
    try:
        (process,) = wait_until(lambda: children([trainer.pid]))
        if victim == "trainer":
            trainer.kill()
            trainer.wait()
        else:
            os.kill(process, signal.SIGKILL)
            wait_until(lambda: farm.cost_models.state().decided)
            assert "training failed" in farm.cost_models.state().outcome.reason
        wait_until(lambda: not os.path.exists(f"/proc/{process}"))
    finally:
        trainer.terminate()
        trainer.wait(30)
    assert whole(farm) == []
    audit(farm)
    assert Trainer(farm).train().startswith("version 1 is published and in use")
    assert whole(farm) == [1]
    audit(farm)


@pytest.mark.slow
def test_trainers_that_die_and_hang_leave_a_whole_version_and_the_next_training_publishes(
    farm: Farm,
    measure,
    crew: Crew,
    audit,  # noqa: F811
) -> None:
    print(f"FARRIER_CHAOS_SEED={SEED}")
    generator = random.Random(SEED)
    laws = itertools.cycle([unlike, otherwise])
    seen: list[int] = []
    for _ in range(FAULTS):
        measure(next(laws))
        time.sleep(generator.uniform(0.1, 4.0))
        crew.injure(generator)
        numbers = whole(farm)
        assert numbers == sorted(set(numbers))
        assert numbers[-1:] >= seen[-1:]
        seen += numbers[-1:]
    crew.close()
    audit(farm)
    said = []
    for law in (unlike, otherwise):  # The version in use has not learned one of these.
        measure(law)
        said.append(Trainer(farm).train())
    assert "is published and in use" in said[-1], said
    assert whole(farm)[-1:] > seen[-1:]
    audit(farm)
