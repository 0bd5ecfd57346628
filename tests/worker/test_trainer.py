"""The trainer's role with real processes, on records of real spaces whose times follow a law."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading

import pytest

from farrier.cost_model import CostModel, pretrained
from farrier_farm.farm import Farm
from farrier_worker.train_process import TRAIN_COMMAND
from farrier_worker.trainer import Trainer
from tests.cost_model.tasks import as_said, definitions, records, unlike
from tests.waiting import wait_until
from tests.worker.test_confinement import _offered

# A training process with its walls, which does `act` with a message instead of training.
PROCESS = """
    import os, signal, sys, time
    from farrier_worker import train
    def act(training, message):
        {act}
    train._answer = act
    sys.exit(train.main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def _empty(farm: Farm) -> None:
    farm.client.command("FLUSHALL")


def fill(farm: Farm, law=unlike, count: int = 16, seed: int = 0) -> int:
    """Records of all tasks; how many."""
    farm.definitions.define(definitions())
    lines = [
        record.to_line().encode()
        for definition in definitions()
        for record in records(definition, law, count=count, seed=seed)
    ]
    return farm.records.load(lines)[0]


def test_what_the_records_teach_is_published(farm: Farm) -> None:
    count = fill(farm)
    said = Trainer(farm).train()
    assert said.startswith("version 1 is published and in use: it has ")
    version = farm.cost_models.in_use()
    assert version is not None
    CostModel.load(farm.blobs.verified(version.blob).read_bytes())
    assert version.outcome.records + 16 * version.outcome.held_out == count
    assert farm.cost_models.state().records == count
    # The same once more is not better than itself, nor after a rollback.
    assert "not better than version 1" in Trainer(farm).train()
    farm.cost_models.roll_back()
    assert "not better than version 1" in Trainer(farm).train()
    assert farm.cost_models.in_use() is None


def test_where_nothing_is_to_be_learned_nothing_is_published(farm: Farm) -> None:
    assert Trainer(farm).train().endswith("there are too few measurements to learn from")
    fill(farm, as_said)
    assert "nothing is published: it is not better than analytic" in Trainer(farm).train()
    assert farm.cost_models.in_use() is None
    outcome = farm.cost_models.state().outcome
    assert outcome is not None
    assert set(outcome.of) == {"trained", "analytic", pretrained().name}


def test_two_trainers_at_once_publish_once(farm: Farm) -> None:
    fill(farm)
    said: list[str] = []
    both = threading.Barrier(2)

    class Together(Trainer):
        def _trained(self, state):
            both.wait(60)
            return super()._trained(state)

    threads = [
        threading.Thread(target=lambda: said.append(Together(farm).train())) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [version.number for version in farm.cost_models.state().versions] == [1]
    assert sum("has changed meanwhile" in line for line in said) == 1


def test_damaged_definitions_and_implausible_records_are_set_aside_and_named(farm: Farm) -> None:
    fill(farm)
    damaged = dataclasses.replace(definitions()[0], program="no program")
    farm.definitions.define([damaged])
    liar = dataclasses.replace(
        records(definitions()[1], unlike)[0], samples_ns=(1,), device="liar", created=99.0
    )
    farm.records.add(liar)
    Trainer(farm).train()
    outcome = farm.cost_models.state().outcome
    assert outcome is not None
    assert list(outcome.damaged) == [damaged.task]
    assert [record.device for record in outcome.shown] == ["liar"]
    assert outcome.set_aside == 1


@pytest.mark.parametrize(
    ("act", "how"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("time.sleep(1000)", "took longer than 1 s"),
        (
            "keep = bytearray(b'1') * (5 << 27)\ntime.sleep(1000)",
            "bytes of memory",
        ),
        ("return {}", "malformed"),
        (
            "return {'full': True, 'outcome': {}, 'model': None}",
            "malformed message: ValueError: outcome: it has no field",
        ),
        ("return {'full': True, 'outcome': 'x' * (33 << 20)}", "a frame of"),
    ],
)
def test_a_training_that_fails_is_told_and_leaves_what_was(farm: Farm, acting, act, how) -> None:
    fill(farm, count=2)
    changes = {"train_timeout_s": 1.0 if "1 s" in how else 60.0, "job_memory_bytes": 1 << 29}
    with contextlib.closing(Farm.open(dataclasses.replace(farm.settings, **changes))) as own:
        said = Trainer(own, command=acting(act)).train()
    assert said.startswith("nothing is published: training failed: its process ")
    assert how in said
    state = farm.cost_models.state()
    assert (state.versions, state.records) == ((), 0)
    assert state.outcome is not None
    assert state.outcome.reason in said


def test_the_process_is_enclosed_and_is_told_of_no_secret(farm: Farm, acting, caplog) -> None:
    fill(farm, count=2)
    with caplog.at_level("INFO"):
        Trainer(farm, command=acting("os.listdir(os.environ['HOME'] + '/..')")).train()
    assert f"is enclosed by {_offered() or 'nothing'}" in caplog.text


def test_a_trainer_that_is_killed_leaves_the_version_in_use(farm: Farm) -> None:
    fill(farm)
    Trainer(farm).train()
    before = farm.cost_models.state()
    fill(farm, seed=1)
    settings = dataclasses.replace(farm.settings, train_records=1)
    trainer = subprocess.Popen(
        [sys.executable, "-m", "farrier.cli", "trainer"],
        env={**os.environ, **settings.to_environment()},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert trainer.stderr is not None
        assert any("enclosed by" in line for line in trainer.stderr)  # it trains now
        child = _child(trainer.pid)
        trainer.send_signal(signal.SIGKILL)
        trainer.wait()
        wait_until(lambda: not os.path.exists(f"/proc/{child}"))
    finally:
        trainer.kill()
        trainer.wait()
        trainer.stderr.close()
    assert farm.cost_models.state() == before


def test_a_trainer_trains_where_enough_is_new_and_stops_when_it_is_told(farm: Farm, acting) -> None:
    changes = {"train_s": 0.1, "train_records": fill(farm)}
    with contextlib.closing(Farm.open(dataclasses.replace(farm.settings, **changes))) as own:
        signs: list[None] = []
        trainer = Trainer(own, alive=lambda: signs.append(None))
        thread = threading.Thread(target=trainer.run)
        thread.start()
        wait_until(farm.cost_models.in_use)
        decided = farm.cost_models.state()
        seen = len(signs)
        wait_until(lambda: len(signs) > seen + 5)
        assert farm.cost_models.state() == decided  # nothing is new
        trainer.drain()
        thread.join(20)
        assert not thread.is_alive()
        fill(farm, count=16, seed=1)
        hanging = Trainer(own, command=acting("time.sleep(1000)"))
        thread = threading.Thread(target=hanging.run)
        thread.start()
        wait_until(lambda: hanging._process is not None)
        hanging.drain()
        thread.join(20)
        assert not thread.is_alive()
        assert farm.cost_models.state() == decided


def test_once_trains_and_says_what_came_of_it(farm: Farm) -> None:
    fill(farm)
    done = subprocess.run(
        [sys.executable, "-m", "farrier.cli", "trainer", "--once"],
        env={**os.environ, **farm.settings.to_environment()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("version 1 is published")
    assert TRAIN_COMMAND[0] == sys.executable


def _child(pid: int) -> int:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        children_pids = file.read().split()
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            children_pids += file.read().split()
    return int(children_pids[0])
