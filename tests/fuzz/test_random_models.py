"""Random models compute what ONNX Runtime or the reference computes, whatever their shapes."""

from __future__ import annotations

import random

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from explore import MODES, verdict_of
from judged import assert_right
from random_models import random_feeds, random_model

TARGETS = ("host", "x86-64-v3", "x86-64-v2")


@pytest.mark.parametrize("target", TARGETS)
@hypothesis.settings(max_examples=15, derandomize=True)
@hypothesis.given(rng=st.randoms(use_true_random=False), threads=st.integers(1, 3))
def test_random_models_agree(target, rng, threads):
    model = random_model(rng, most=4)
    feeds = random_feeds(model, np.random.default_rng(rng.getrandbits(32)))
    assert_right(model, feeds, target=target, threads=threads)


@pytest.mark.parametrize("seed", range(30))
def test_models_of_many_nodes_agree(seed):
    model = random_model(random.Random(seed))
    feeds = random_feeds(model, np.random.default_rng(seed))
    assert_right(model, feeds, threads=1 + seed % 3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(8))
def test_exploration_finds_nothing_in_a_few_models(seed, mode):
    verdict = verdict_of(seed, mode, most=3, empty=0)
    assert not verdict.is_finding, verdict
