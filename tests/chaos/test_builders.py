"""Builders and their compiling processes are killed and stopped at random moments, while a job's
process compiles by them: every kernel is there, and is the same as the job itself would have
compiled.

`FARRIER_CHAOS_SEED` repeats a run that failed, as far as faults and moments go."""

from __future__ import annotations

import dataclasses
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from farrier.compile_pool import Built, CompilePool
from farrier.errors import CompilerError
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from farrier_farm.redis import embedded
from farrier_farm.settings import Settings
from farrier_worker.remote import RemoteBuilders
from tests.chaos.crew import Crew
from tests.compile_pool.conftest import THREADS, build_inputs, choices, target  # noqa: F401
from tests.farm.conftest import audit  # noqa: F401
from tests.waiting import wait_until
from tests.worker.test_remote import Served

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

SEED = int(os.environ.get("FARRIER_CHAOS_SEED", "18"))
FAULTS = 24


class Counted(RemoteBuilders):
    """A client of builders that counts their answers."""

    answered = 0

    def build(self, message: str) -> Built:
        built = super().build(message)
        Counted.answered += bool(built.answer)
        return built


@pytest.fixture
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    # A killed process is not to blame here.
    settings = Settings(
        home=tmp_path_factory.mktemp("f"), min_free_bytes=0, lease_s=2.0, job_crashes=100
    )
    valkey = embedded.start(settings)
    farm = Farm.open(settings)
    yield farm
    farm.close()
    valkey.stop()


def test_builders_that_die_and_hang_cost_time_and_nothing_else(
    farm: Farm,
    build_inputs,  # noqa: F811
    target,  # noqa: F811
    audit,  # noqa: F811
    tmp_path: Path,
) -> None:
    print(f"FARRIER_CHAOS_SEED={SEED}")
    generator = random.Random(SEED)
    with CompilePool(0, target, THREADS) as nobody:
        expected = nobody.build(build_inputs)
    assert not any(isinstance(result, CompilerError) for result in expected.values())
    served = Served(farm, tmp_path)
    crew = Crew(
        dataclasses.replace(farm.settings, build_timeout_s=20.0), ["builder", "--builds", "1"], 2
    )
    over, wrong, rounds = threading.Event(), [], [0, 0]
    try:
        wait_until(lambda: len(farm.builds.builders()) >= 2)
        with CompilePool(0, target, THREADS, Counted(served.line())) as helpers:

            def work(number: int) -> None:
                while not over.is_set():
                    results = helpers.build(build_inputs)
                    rounds[number] += 1
                    if results != expected:
                        wrong.append(results)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
            for thread in threads:
                thread.start()
            for _ in range(FAULTS):
                time.sleep(generator.uniform(0.1, 1.5))
                crew.injure(generator)
            over.set()
            for thread in threads:
                thread.join(120)
                assert not thread.is_alive()
    finally:
        over.set()
        crew.close()
        served.close()
    assert wrong == []
    assert served.aborted == []
    assert min(rounds) > 1
    assert Counted.answered > 0
    print(f"{rounds} rounds, {Counted.answered} modules by builders")
    for state in (State.QUEUED, State.RUNNING):
        assert farm.builds.leases.members(state=state, limit=1) == []
    audit(farm)
