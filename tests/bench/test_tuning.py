"""`bench.tuning`: scores and replays of figures that are known, and a short run of it all."""

from __future__ import annotations

import functools
import gzip
import json
import math

import numpy as np
import pytest

from bench.tuning import corpus as collected
from bench.tuning import kept, replay
from bench.tuning.chart import chart
from bench.tuning.corpus import Corpus, Known, random_rows
from bench.tuning.report import report, tables
from bench.tuning.scores import mean, scores
from bench.tuning.tasks import LAYERS
from farrier.cost_model import CostModel
from farrier.measure import TaskMeasurer
from farrier.records import RuleId, TuningRecord
from farrier.schedule_search.trial import DeviceFaultError
from farrier.space import Estimate, Knob, Space
from farrier.targets import parse_target
from farrier_device.measurement import CandidateResult, DeviceFault, Status, TimingPolicy


@pytest.fixture(autouse=True)
def _a_steady_machine(monkeypatch):
    """Disable drift unless a test requests it, because a busy machine is not a fault of the
    code."""
    policy = functools.partial(TimingPolicy, max_drift=math.inf)
    monkeypatch.setattr(collected, "TimingPolicy", policy)


def a_space(values=40):
    """One knob, whose value is what a candidate costs by the analytic model, in microseconds."""

    def estimate(columns):
        seconds = columns["cost"] * 1e-6
        return Estimate(seconds, {"compute": seconds})

    def everything(columns):
        return np.ones(len(columns["cost"]), bool)

    knobs = (Knob("cost", tuple(range(1, values + 1))),)
    return Space(RuleId("rule", 1), knobs, everything, estimate, lambda decisions: None)


def known_of(seconds, noise=0.0):
    space = a_space(len(seconds))
    rows = space.candidates()
    is_random = np.ones(len(rows), bool)
    return Known(LAYERS[0], space, rows, np.asarray(seconds, float), is_random, noise)


def test_a_perfect_ranking_scores_one_and_regrets_nothing():
    task = known_of(np.arange(1, 41))
    task_scores = scores(task, task.seconds)
    assert (
        task_scores.pairs_random,
        task_scores.pairs_good,
        task_scores.top1,
        task_scores.top5,
    ) == (1, None, 1, 1)
    assert task_scores.regret == 0


def test_the_worst_ranking_scores_zero():
    task = known_of(np.linspace(1, 1.19, 40))
    task_scores = scores(task, -task.seconds)
    assert (task_scores.pairs_random, task_scores.pairs_good) == (0, 0)
    assert task_scores.regret == pytest.approx(0.19)


def test_a_mean_leaves_out_what_there_is_nothing_of():
    task = known_of(np.arange(1, 41))
    close = known_of(np.linspace(1, 1.19, 40))
    means_of = mean([scores(task, task.seconds), scores(close, -close.seconds)])
    assert means_of.pairs_good == 0
    assert means_of.pairs_random == 0.5
    assert means_of.worst == pytest.approx(0.19)


def test_a_replayed_search_tries_every_known_row_once_at_most():
    seconds = np.random.default_rng(0).permutation(np.arange(1, 41))
    curve = replay.searched(known_of(seconds), 64, CostModel())
    assert curve[0] == seconds[0]  # The analytic model ranks this one first.
    assert (np.diff(curve) <= 0).all()
    assert curve[39] == 1
    assert replay.trials_to(curve, 1.0) <= 40
    assert replay.trials_to(curve, 0.5) is None


def test_a_random_search_is_what_chance_gives():
    curve = replay.drawn(known_of([1.0, 3.0]), 4)
    assert curve[0] == pytest.approx(2.0, abs=0.2)
    assert curve[1:].tolist() == [1, 1, 1]


def test_half_of_the_tasks_are_held_out_and_no_two_are_one():
    assert sum(layer.held_out for layer in LAYERS) == len(LAYERS) // 2 == 12
    target = parse_target("x86-64-v3")
    assert len({layer.task(target, 2).task.key for layer in LAYERS}) == len(LAYERS)


@pytest.mark.long
def test_collecting_goes_on_where_it_was_and_measures_again_what_matters(tmp_path):
    layers = [layer for layer in LAYERS if layer.name in ("softmax 197×771", "layer norm 128×768")]
    corpus = Corpus.under(tmp_path, parse_target("host"), 1)
    said: list[str] = []
    corpus.collect(layers, 4, 60.0, said.append)
    assert said[-1] == "8 trials"
    before = [len(corpus.records(layer)) for layer in layers]
    # Each is measured twice, the fastest three times more; the possible best once more.
    assert 20 <= before[0] <= 24
    assert before[1] == 24  # This one is held out.
    corpus.collect(layers, 6, 60.0, said.append)
    assert said[-1] == "12 trials"
    assert [len(corpus.records(layer)) for layer in layers] > before
    tasks = corpus.all_known(layers)
    assert [task.layer for task in tasks] == layers
    assert all(len(task.rows) == 6 and task.noise > 0 and task.is_random.any() for task in tasks)
    figures = report(tasks, tasks, said.append)
    json.dumps([row.to_dict() for row in figures.rows])
    assert any("softmax" in line for line in tables(figures))
    assert chart(figures).count("<polyline") == len(figures.rows[0].curves)


def test_the_least_of_the_newest_times_counts_and_what_was_fast_once_is_no_best(tmp_path):
    (layer,) = (layer for layer in LAYERS if layer.name == "softmax 197×771")
    corpus = Corpus.under(tmp_path, parse_target("host"), 1)
    corpus.folder.mkdir(parents=True)
    choice = layer.task(corpus.target, 1)
    rows = random_rows(choice.space)[:3]
    for row, times in zip(rows, ((50, 400, 300, 200), (260, 250), (90,)), strict=True):
        for microseconds in times:
            record = TuningRecord.of(
                choice.space.rule,
                choice.space.decisions(row),
                CandidateResult(Status.OK, (microseconds * 1000,)),
                task=choice.task.key,
                fingerprint=corpus.target.fingerprint,
                threads=1,
            )
            corpus.records(layer).add(record)
    task = corpus.known(layer)
    assert task is not None
    assert task.seconds == pytest.approx([200e-6, 250e-6, 200e-6])
    assert task.noise == pytest.approx(0.5)


def test_what_is_kept_is_what_the_corpus_knows(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "KEPT", tmp_path / "kept")
    layers = [layer for layer in LAYERS if layer.name == "softmax 197×771"]
    corpus = Corpus.under(tmp_path / "corpus", parse_target("host"), 1)
    corpus.collect(layers, 4, 60.0, lambda text: None)
    (task,) = corpus.all_known(layers)
    (restored,) = kept.kept([kept.keep(corpus, layers)])
    assert (restored.layer, restored.space.rule) == (task.layer, task.space.rule)
    assert (restored.rows == task.rows).all()
    assert restored.seconds == pytest.approx(task.seconds, rel=1e-3)
    assert (restored.is_random == task.is_random).all()
    assert restored.noise == pytest.approx(task.noise, rel=1e-3)


@pytest.mark.parametrize("path", sorted(kept.KEPT.glob("*.json.gz")), ids=lambda path: path.name)
def test_most_of_what_is_kept_is_of_spaces_that_there_are(path):
    """A change of a rule's knobs takes what was known of it; with too little left nothing ships."""
    tasks = len(json.loads(gzip.decompress(path.read_bytes()))["tasks"])
    restored = list(kept.kept([path]))
    assert len(restored) >= 0.8 * tasks > 50
    assert all(len(task.rows) > 0 and (task.seconds > 0).all() for task in restored)


def test_a_batch_at_whose_time_the_machine_changed_is_measured_anew(tmp_path, monkeypatch):
    measure, drifts = TaskMeasurer.measure, iter([True, False, True])

    def drifting(measurer, *batch):
        if next(drifts, False):
            raise DeviceFaultError(DeviceFault.DRIFTED, "as invented here")
        return measure(measurer, *batch)

    monkeypatch.setattr(TaskMeasurer, "measure", drifting)
    layers = [layer for layer in LAYERS if layer.name == "softmax 197×771"]
    corpus = Corpus.under(tmp_path, parse_target("host"), 1)
    said: list[str] = []
    corpus.collect(layers, 4, 60.0, said.append)
    assert said.count("drifted: as invented here") == 2
    (task,) = corpus.all_known(layers)
    assert len(task.rows) == 4
    assert len(corpus.records(layers[0])) == 24  # Each is measured six times, as usual.


def test_a_device_that_is_lost_ends_the_measurements(tmp_path, monkeypatch):
    def lost(measurer, *batch):
        raise DeviceFaultError(DeviceFault.LOST, "as invented here")

    monkeypatch.setattr(TaskMeasurer, "measure", lost)
    layers = [layer for layer in LAYERS if layer.name == "softmax 197×771"]
    corpus = Corpus.under(tmp_path, parse_target("host"), 1)
    with pytest.raises(DeviceFaultError, match="lost: as invented here"):
        corpus.collect(layers, 4, 60.0, lambda text: None)


def test_random_rows_are_all_rows_in_one_order():
    space = a_space()
    rows = random_rows(space)
    assert (rows == random_rows(space)).all()
    assert sorted(rows[:, 0]) == list(range(1, 41))
    assert rows[:, 0].tolist() != list(range(1, 41))
