"""The learned model: the prior at first, better than the prior later, deterministic, savable."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from farrier.cost_model import CostModel
from farrier.space import Features


def samples(seed, count=200):
    """Features, a prior, and true seconds that the prior gets wrong by a factor that one of the
    features explains."""
    rng = np.random.default_rng(seed)
    table = rng.uniform(0, 8, (count, 6)).astype(np.float32)
    prior = 1e-5 * (1 + table[:, 0].astype(float))
    wrong = np.where(table[:, 1] > 4, 3.0, 1.0) * np.where(table[:, 2] > 6, 2.0, 1.0)
    return Features(tuple("abcdef"), table), prior, prior * wrong


def rank_correlation(a, b):
    return np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))[0, 1]


def trained(seed=0, **options):
    model = CostModel(seed, **options)
    model.add("t", *samples(1))
    model.fit()
    return model


def test_with_nothing_measured_it_is_the_prior():
    features, prior, _ = samples(2)
    model = CostModel()
    model.fit()
    assert (model.predict("t", features, prior) == prior).all()


def test_training_beats_the_prior_on_candidates_it_never_saw():
    features, prior, seconds = samples(2)
    predicted = trained().predict("t", features, prior)
    assert rank_correlation(predicted, seconds) > 0.97
    assert rank_correlation(predicted, seconds) > rank_correlation(prior, seconds) + 0.1
    assert np.median(abs(np.log(predicted / seconds))) < 0.1


def test_what_one_task_taught_helps_another():
    features, prior, seconds = samples(3)
    assert rank_correlation(trained().predict("new", features, prior), seconds) > 0.9


def test_features_are_told_apart_by_their_names():
    features, prior, seconds = samples(3)
    order = tuple("xfedcba")
    other = Features(order, features.under(order))
    model = trained()
    assert np.isnan(other.column("x")).all()
    assert (model.predict("new", other, prior) == model.predict("new", features, prior)).all()
    model.add("other", other, prior, seconds)
    model.fit()
    assert rank_correlation(model.predict("new", features, prior), seconds) > 0.95


def test_with_nothing_measured_here_it_is_its_base():
    features, analytic, _ = samples(2)
    model = CostModel(base=trained())
    before = model.prior(features, analytic)
    assert (before == trained().predict("new", features, analytic)).all()
    assert (model.predict("new", features, before) == before).all()


def test_measurements_bend_what_the_base_predicts():
    features, analytic, seconds = samples(2)
    seconds = np.where(features.column("d") > 4, 2 * seconds, seconds)
    model = CostModel(base=trained())
    before = model.prior(features, analytic)
    model.add("new", features[:50], before[:50], seconds[:50])
    model.fit()
    after = model.predict("new", features, before)
    assert rank_correlation(after, seconds) > rank_correlation(before, seconds)
    alone = CostModel()
    alone.add("new", features[:50], analytic[:50], seconds[:50])
    alone.fit()
    without = alone.predict("new", features, analytic)
    assert rank_correlation(after[50:], seconds[50:]) > rank_correlation(without[50:], seconds[50:])


def test_a_constant_error_of_the_prior_does_not_leak_into_other_tasks():
    model = trained()
    features, prior, seconds = samples(4, 40)
    model.add("slow machine", features, prior, 10 * seconds)
    model.fit()
    other, other_prior, other_seconds = samples(5)
    predicted = model.predict("t", other, other_prior)
    assert np.median(abs(np.log(predicted / other_seconds))) < 0.15


def test_failures_rank_last():
    features, prior, seconds = samples(6)
    crashes = features.column("d") > 5
    model = CostModel()
    model.add("t", features, prior, np.where(crashes, np.inf, seconds))
    model.fit()
    new, new_prior, _ = samples(7)
    predicted = model.predict("t", new, new_prior)
    fastest = np.argsort(predicted)[:40]
    assert (new.column("d")[fastest] > 5).mean() < 0.1


def test_a_task_of_nothing_but_failures_is_no_error():
    features, prior, seconds = samples(8, 20)
    model = CostModel()
    model.add("t", features, prior, np.full_like(seconds, np.inf))
    model.fit()
    assert np.isfinite(model.predict("t", features, prior)).all()


def test_training_is_deterministic():
    features, prior, _ = samples(2)
    first, second = (trained(3).predict("t", features, prior) for _ in range(2))
    assert (first == second).all()


def test_order_of_tasks_does_not_matter():
    features, prior, _ = samples(2)
    models = CostModel(), CostModel()
    for model, order in zip(models, ((10, 11), (11, 10)), strict=True):
        for seed in order:
            model.add(f"task{seed}", *samples(seed))
        model.fit()
    assert (
        models[0].predict("t", features, prior) == models[1].predict("t", features, prior)
    ).all()


def test_it_saves_and_loads():
    features, prior, _ = samples(2)
    model = trained()
    again = CostModel.load(model.save())
    assert (again.predict("t", features, prior) == model.predict("t", features, prior)).all()
    assert again.save() == model.save()
    untrained = CostModel.load(CostModel(4).save())
    assert (untrained.predict("t", features, prior) == prior).all()


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"parameters": 1}'])
def test_bytes_that_are_no_model_are_an_error(data):
    with pytest.raises(ValueError):
        CostModel.load(data)


def test_damaged_trees_are_an_error():
    damaged = trained().save().replace(b'"trees": "', b'"trees": "AAAA')
    with pytest.raises(ValueError):
        CostModel.load(damaged)


def test_importing_the_model_does_not_import_xgboost():
    code = "import sys, farrier.cost_model; sys.exit('xgboost' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
