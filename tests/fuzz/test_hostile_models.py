"""No bytes whatever bring the importer or the compiler down: a model is read, or refused with words
for its author; nothing crashes, hangs, or takes memory that it must not."""

from __future__ import annotations

import random

import hypothesis
import hypothesis.strategies as st
import pytest
from corpus import corpus
from disposable import Nursery
from hostile import HOSTILE
from mutations import damaged_bytes, damaged_tree

DAMAGES = {"bytes": damaged_bytes, "tree": damaged_tree}


@pytest.fixture(scope="module")
def nursery():
    started = Nursery()
    yield started
    started.close()


@pytest.mark.parametrize("name", HOSTILE)
def test_models_made_to_hurt(nursery, name):
    verdict = nursery.judge(HOSTILE[name]())
    assert not verdict.is_finding, verdict


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGES)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
def test_damaged_models_import_or_are_refused(nursery, damage, seed):
    for rng in map(random.Random, range(seed, seed + 10)):
        whole, other = rng.choices(corpus(), k=2)
        model = DAMAGES[damage](whole, rng, other)
        verdict = nursery.judge(model, opens=rng.random() < 0.3)
        assert not verdict.is_finding, (rng, verdict)


@hypothesis.settings(max_examples=40)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
def test_damaged_models_compile_or_are_refused(nursery, seed):
    rng = random.Random(seed)
    whole, other = rng.choices(corpus(), k=2)
    model = damaged_tree(whole, rng, other)
    verdict = nursery.judge(model, compiles=True, opens=rng.random() < 0.3)
    assert not verdict.is_finding, verdict


def test_the_limits_hold(nursery):
    """Without them no verdict would mean anything."""
    model = HOSTILE["a chain of 3000 identities"]()
    assert nursery.judge(model).kind == "read"
    assert nursery.judge(model, limits=(512 << 20, 0.01)).kind == "hang"
    assert nursery.judge(model, limits=(4096, 10.0)).kind != "read"
    assert nursery.judge(b"no model").kind == "refused"
