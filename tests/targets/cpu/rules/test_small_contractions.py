"""Small contractions of odd shapes, for machines whose multiply-adds take a lane of a vector.

What they read as vectors is cut into whole ones and smaller ones, along axes that may be short or
missing: most of what can go wrong does so between 1 and 9.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farrier.targets import parse_target
from farrier.targets.cpu.rules import for_program
from tests.lowering import final_loops
from tests.targets.cpu.rules.space_programs import Region, check, conv, tensor

QUIET = settings(max_examples=40, deadline=None, derandomize=True)
SIZE = st.integers(1, 9)
BATCH = st.lists(st.integers(1, 3), max_size=2).map(tuple)
TARGETS = ("rpi4", "rpi5")
EACH = 2  # The candidates that are run in addition to the default.


@st.composite
def products(draw):
    """A MatMul of vectors, matrices and batches of them."""
    depth, batch = draw(SIZE), draw(BATCH)
    x = draw(st.sampled_from([(depth,), (draw(SIZE), depth), (*batch, draw(SIZE), depth)]))
    w = draw(st.sampled_from([(depth,), (depth, draw(SIZE)), (*batch, depth, draw(SIZE))]))
    shape = np.matmul(np.zeros(x), np.zeros(w)).shape
    weights, constant = tensor("w", *w), draw(st.booleans())
    return Region(tensor("x", *x)).then("MatMul", weights, shape=shape, constant=constant)


@st.composite
def convolutions(draw):
    """A Conv of all channels, its input blocked or plain; or a depthwise one of blocks."""
    kernel = draw(st.integers(1, 3))
    size, ic = draw(st.integers(kernel, 9)), draw(SIZE)
    depthwise = draw(st.booleans())
    return conv(
        *(ic, size, ic if depthwise else draw(SIZE), kernel),
        stride=draw(st.integers(1, 2)),
        pad=draw(st.integers(0, kernel // 2)),
        group=ic if depthwise else 1,
        blocked=depthwise or draw(st.booleans()),
        n=draw(st.integers(1, 2)),
    )


@pytest.mark.parametrize("target", TARGETS)
@given(region=products(), seed=st.integers(0, 99))
@QUIET
def test_products(target, region, seed):
    check_candidates(region, target, seed)


@pytest.mark.parametrize("target", TARGETS)
@given(region=convolutions(), seed=st.integers(0, 99))
@QUIET
def test_convolutions(target, region, seed):
    check_candidates(region, target, seed)


def check_candidates(region, target, seed):
    """The default schedule and a few others compute what the region's operators do."""
    space = for_program(region.program, parse_target(target), 2)
    candidates = space.candidates()
    picked = np.random.default_rng(seed).permutation(len(candidates))[:EACH]
    for decisions in (space.default(), *map(space.decisions, candidates[picked])):
        check(region, space, decisions)


def test_two_blocks_may_be_one_iteration():
    space = for_program(conv(8, 3, 8, 1).program, parse_target("rpi5"), 2)
    candidates = space.candidates()
    whole = candidates[space.columns(candidates)["unroll"] == 8]
    assert len(whole)
    _, each = np.unique(space.columns(whole)["ahead"], return_index=True)
    for row in whole[each]:
        final_loops(space, space.decisions(row))
