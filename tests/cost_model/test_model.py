"""The learned model: the prior at first, better than the prior later, deterministic, savable."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from farrier.cost_model import CostModel
from farrier.cost_model.model import SLOWEST
from farrier.cost_model.scores import pairwise
from farrier.space import Features


def samples(seed, count=200):
    """Features, a prior, and true seconds that the prior gets wrong by a factor that one of the
    features explains."""
    rng = np.random.default_rng(seed)
    table = rng.uniform(0, 8, (count, 6)).astype(np.float32)
    prior = 1e-5 * (1 + table[:, 0].astype(float) / 8)
    wrong = np.where(table[:, 1] > 4, 1.6, 1.0) * np.where(table[:, 2] > 6, 1.3, 1.0)
    return Features(tuple("abcdef"), table), prior, prior * wrong


def right_pairs(predicted, seconds):
    """Return the share of pairs in the right order, of candidates worth a trial."""
    worth = seconds < SLOWEST * seconds.min()
    share = pairwise(predicted[worth], seconds[worth], 0.05)
    assert share is not None
    return share


def trained(seed=0, **options):
    model = CostModel(seed, **options)
    model.add("t", *samples(1))
    model.fit()
    return model


def test_with_nothing_measured_it_is_the_prior():
    features, prior, _ = samples(2)
    model = CostModel()
    model.fit()
    assert (model.predict(features, prior) == prior).all()


def test_training_beats_the_prior_on_candidates_it_never_saw():
    features, prior, seconds = samples(2)
    predicted = trained().predict(features, prior)
    assert right_pairs(predicted, seconds) > 0.9
    assert right_pairs(predicted, seconds) > right_pairs(prior, seconds) + 0.1


def test_what_one_task_taught_helps_another():
    features, prior, seconds = samples(3)
    assert right_pairs(trained().predict(features, prior), seconds) > 0.9


def test_features_are_told_apart_by_their_names():
    features, prior, seconds = samples(3)
    order = tuple("xfedcba")
    other = Features(order, features.under(order))
    model = trained()
    assert np.isnan(other.column("x")).all()
    assert (model.predict(other, prior) == model.predict(features, prior)).all()
    model.add("other", other, prior, seconds)
    model.fit()
    assert right_pairs(model.predict(features, prior), seconds) > 0.9


def test_with_nothing_measured_here_it_is_its_base():
    features, analytic, _ = samples(2)
    model = CostModel(base=trained())
    before = model.prior(features, analytic)
    assert (before == trained().predict(features, analytic)).all()
    assert (model.predict(features, before) == before).all()


def test_measurements_bend_what_the_base_predicts():
    features, analytic, seconds = samples(2)
    seconds = np.where(features.column("d") > 4, 2 * seconds, seconds)
    model = CostModel(base=trained())
    before = model.prior(features, analytic)
    model.add("new", features[:50], before[:50], seconds[:50])
    model.fit()
    after = model.predict(features, before)
    assert right_pairs(after, seconds) > right_pairs(before, seconds)
    alone = CostModel()
    alone.add("new", features[:50], analytic[:50], seconds[:50])
    alone.fit()
    without = alone.predict(features, analytic)
    assert right_pairs(after[50:], seconds[50:]) > right_pairs(without[50:], seconds[50:])


def test_a_constant_error_of_the_prior_does_not_leak_into_other_tasks():
    features, prior, seconds = samples(4, 40)
    model = CostModel()
    model.add("one", *samples(1))
    model.add("slow machine", features, prior, 10 * seconds)
    model.fit()
    other, other_prior, other_seconds = samples(5)
    assert right_pairs(model.predict(other, other_prior), other_seconds) > 0.9


def test_failures_rank_last():
    features, prior, seconds = samples(6)
    crashes = features.column("d") > 5
    model = CostModel()
    model.add("t", features, prior, np.where(crashes, np.inf, seconds))
    model.fit()
    new, new_prior, _ = samples(7)
    predicted = model.predict(new, new_prior)
    fastest = np.argsort(predicted)[:40]
    assert (new.column("d")[fastest] > 5).mean() < 0.2


def test_a_task_of_nothing_but_failures_is_no_error():
    features, prior, seconds = samples(8, 20)
    model = CostModel()
    model.add("t", features, prior, np.full_like(seconds, np.inf))
    model.fit()
    assert np.isfinite(model.predict(features, prior)).all()


def test_training_is_deterministic():
    features, prior, _ = samples(2)
    first, second = (trained(3).predict(features, prior) for _ in range(2))
    assert (first == second).all()


def test_order_of_tasks_does_not_matter():
    features, prior, _ = samples(2)
    models = CostModel(), CostModel()
    for model, order in zip(models, ((10, 11), (11, 10)), strict=True):
        for seed in order:
            model.add(f"task{seed}", *samples(seed))
        model.fit()
    assert (models[0].predict(features, prior) == models[1].predict(features, prior)).all()


def test_it_saves_and_loads():
    features, prior, _ = samples(2)
    model = trained()
    again = CostModel.load(model.save())
    assert (again.predict(features, prior) == model.predict(features, prior)).all()
    assert again.save() == model.save()
    untrained = CostModel.load(CostModel(4).save())
    assert (untrained.predict(features, prior) == prior).all()


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"parameters": 1}'])
def test_bytes_that_are_no_model_are_an_error(data):
    with pytest.raises(ValueError):
        CostModel.load(data)


def test_damaged_trees_are_an_error():
    saved = json.loads(trained().save())
    for trees in ({}, {"learner": {}}, "trees", [1]):
        with pytest.raises(ValueError):
            CostModel.load(json.dumps(saved | {"trees": trees}).encode())


def test_importing_the_model_does_not_import_xgboost():
    code = "import sys, farrier.cost_model; sys.exit('xgboost' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
