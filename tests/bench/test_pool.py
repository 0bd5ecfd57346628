"""`bench.pool`, for moments: no figure is held to anything but what it must be."""

from __future__ import annotations

import farrier
from bench import pool
from bench.pool import ForkJoin


def test_the_cost_is_what_half_of_the_work_does_not_explain():
    assert ForkJoin(alone_us=10.0, shared_us=5.25).cost_us == 0.25


def test_regions_are_timed_on_one_thread_and_on_two():
    found = pool.fork_join(turns=10)
    assert 0 < found.alone_us < 1e5
    assert 0 < found.shared_us < 1e5


def test_a_model_beside_a_neighbour_and_idle(small_model):
    artifact = farrier.load(small_model.artifact)
    found = pool.neighbours(artifact, seconds=0.02)
    assert {"1 threads", "2 threads", "neighbour on any core"} <= set(found)
    assert all(milliseconds > 0 for milliseconds in found.values())
    assert 0 <= pool.idle_share(artifact, seconds=0.05) < 2
