"""`bench.pool`, for moments: no figure is held to anything but what it must be."""

from __future__ import annotations

import pytest

import farrier
from bench import pool
from bench.pool import ForkJoin


@pytest.mark.parametrize(("threads", "shared_us"), [(2, 5.25), (4, 2.75)])
def test_the_cost_is_what_the_share_of_the_work_does_not_explain(threads, shared_us):
    assert ForkJoin(threads, alone_us=10.0, shared_us=shared_us).cost_us == 0.25


@pytest.mark.parametrize("threads", [2, 3])
def test_regions_are_timed_on_one_thread_and_on_several(threads):
    cost = pool.fork_join(160, threads)
    assert cost.threads == threads
    assert 0 < cost.alone_us < 1e5
    assert 0 < cost.shared_us < 1e5


def test_a_model_beside_a_neighbour_and_idle(small_model):
    artifact = farrier.load(small_model.artifact)
    means = pool.neighbours(artifact, seconds=0.02)
    assert {"1 threads", "2 threads", "neighbour on any core"} <= set(means)
    assert all(milliseconds > 0 for milliseconds in means.values())
    assert 0 <= pool.idle_share(artifact, seconds=0.05) < 2
