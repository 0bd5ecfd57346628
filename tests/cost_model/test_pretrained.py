"""The model that ships is there, says something of a kernel, and a search begins with it."""

from __future__ import annotations

import numpy as np
import pytest

from bench.tuning.tasks import OTHERS
from farrier.cost_model import CostModel, pretrained
from farrier.schedule_search.evolution import EvolutionarySearch
from farrier.targets import parse_target


@pytest.fixture(scope="module")
def space():
    layer = next(
        candidate_layer
        for candidate_layer in OTHERS
        if candidate_layer.name.startswith("depthwise")
    )
    return layer.task(parse_target("x86-64-v4"), 2).space.built_in


def test_it_ranks_otherwise_than_the_analytic_model(space):
    features, analytic = space.described(space.candidates())
    seconds = pretrained().predict(features, analytic)
    assert np.isfinite(seconds).all()
    assert (seconds > 0).all()
    assert (np.argsort(seconds)[:16] != np.argsort(analytic)[:16]).any()


def test_a_search_tries_what_it_likes_after_the_default(space):
    features, analytic = space.described(space.candidates())
    liked = np.argsort(pretrained().predict(features, analytic), kind="stable")
    search = EvolutionarySearch("task", space, CostModel(base=pretrained()))
    default, *others = search.propose(8)
    assert default == space.default()
    ranked = [space.decisions(space.candidates()[place]) for place in liked[:4]]
    first = [decisions for decisions in ranked if decisions != default]
    assert others[: len(first)] == first
