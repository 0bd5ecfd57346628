"""A model is tuned in rounds, each raced with what the one before has found."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import farrier
from bench import models
from farrier import pipeline
from farrier.compilation import specialization
from farrier.errors import StackError
from farrier.frontends.onnx.model.file import model_of
from farrier.model_tuning.compare import Race
from farrier.options import CompileOptions
from farrier.packaging.draws import random_inputs
from farrier.progress import Warned
from farrier.space import Space
from tests.spaces import slowest

MODEL = model_of(models.build("mobilenet_v2", size=32, stages=1))
OPTIONS = CompileOptions(threads=1, verify=False)
ROUNDS = [CompileOptions(threads=1, trials=24, seed=seed) for seed in range(2)]


@pytest.fixture(autouse=True)
def _slow_defaults(monkeypatch):
    """Defaults are ranked last, so tuning finds better ones however a busy machine measures."""
    monkeypatch.setattr(Space, "default", slowest)


@pytest.fixture
def races(monkeypatch):
    """The races of the rounds: the default, the variant in use, and its challenger."""
    raced = []

    def compared(comparison, default, in_use, variant, listener):
        raced.append((default, in_use, variant))
        return race(comparison, default, in_use, variant, listener)

    race = specialization.compared
    monkeypatch.setattr(specialization, "compared", compared)
    return raced


def raced_round(races, seeds, **options):
    """Return the models of the first round that races: one in a few comes back to the code in
    use."""
    for seed in seeds:
        again = dataclasses.replace(ROUNDS[0], seed=seed)
        actual = list(pipeline.improved_models(MODEL, OPTIONS, [again], **options))
        if races:
            return actual
    raise AssertionError("no round has found other code than what is in use")


def test_each_round_is_raced_with_what_is_in_use(races, monkeypatch):
    """All races count as won here; whether they are is the device's affair."""
    monkeypatch.setattr(Race, "is_won", True)
    first, *actual = pipeline.improved_models(MODEL, OPTIONS, ROUNDS)
    assert len(actual) == len(races) >= 1
    default, in_use, _ = races[0]
    assert in_use is default
    for (_, _, won), (_, in_use, _) in itertools.pairwise(races):
        assert in_use.is_same_code(won)
    plain = farrier.compile(MODEL, threads=1)
    assert first.code == plain.code
    inputs = random_inputs(plain.manifest.inputs)
    (expected,) = plain.run(inputs).values()
    for artifact in actual:
        assert artifact.code != plain.code
        (y,) = artifact.run(inputs).values()
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_a_round_whose_stack_does_not_fit_is_dropped(races, monkeypatch):
    """The next round goes on from the kernels that are in use."""
    monkeypatch.setattr(Race, "is_won", True)
    builds, messages = [], []
    build = pipeline._build

    def lacking(*arguments):
        builds.append(arguments)
        if len(builds) == 2:
            raise StackError("no RAM is left for the stack", stack_bytes=1)
        return build(*arguments)

    monkeypatch.setattr(pipeline, "_build", lacking)
    artifacts = list(pipeline.improved_models(MODEL, OPTIONS, ROUNDS, listener=messages.append))
    assert len(artifacts) == len(builds) - 1
    assert Warned("no RAM is left for the stack; this round's kernels are dropped") in messages
    assert all(in_use is default for default, in_use, _ in races[:2])


def test_what_has_lost_is_no_artifact(races, monkeypatch):
    monkeypatch.setattr(Race, "is_won", False)
    assert list(pipeline.improved_models(MODEL, OPTIONS, ROUNDS, begins=False)) == []
    assert races
    assert all(in_use is default for default, in_use, _ in races)


@pytest.mark.long
def test_rounds_go_on_from_an_artifact_that_is_in_use(races, monkeypatch):
    monkeypatch.setattr(Race, "is_won", True)
    *_, newest = raced_round(races, range(10))
    races.clear()
    actual = raced_round(races, range(10, 20), since=newest)
    ((default, in_use, _),) = races
    assert not in_use.is_same_code(default)
    (schedule,) = newest.schedules
    assert {key: choice.decisions for key, choice in in_use.choices.items()} == schedule.decisions
    assert [model.code == newest.code for model in actual] == [False]
