"""Whole seconds are handed out by a clock of the test's own."""

from __future__ import annotations

import contextlib

import pytest

from farrier.measure import measure_by
from farrier.progress import clock as module
from farrier.progress.clock import Clock
from farrier_device.measurement import MeasureResult


@pytest.fixture
def hand(monkeypatch):
    """The monotonic clock; a test moves it."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_time_is_spent_in_phases_and_on_kinds_of_work(hand):
    clock = Clock(60.0)
    with clock.phase("search"):
        hand[0] += 1
        for seconds in (2, 3):
            with clock.work("compile"):
                hand[0] += seconds
        with contextlib.suppress(ZeroDivisionError), clock.work("measure"):
            hand[0] += 4
            raise ZeroDivisionError
        clock.ended("its time is up")
    with clock.phase("race"), clock.work("measure"):
        hand[0] += 5
    hand[0] += 7
    assert clock.left == 60 - 22
    assert clock.phases == {"search": 10, "race": 5}
    assert clock.works == {"compile": 5, "measure": 9}
    assert clock.report() == {
        "budget_s": 60.0,
        "ended": {"search": "its time is up"},
        "seconds": {
            "search": {"compile": 5, "measure": 4, "all": 10},
            "race": {"measure": 5, "all": 5},
        },
    }


def test_without_a_budget_there_is_always_time_left(hand):
    clock = Clock()
    hand[0] += 1e9
    assert clock.left == float("inf")


def test_a_budget_can_be_overdrawn(hand):
    clock = Clock(1.0)
    hand[0] += 3
    assert clock.left == -2


@pytest.mark.parametrize(("run_s", "wait_s"), [(5.0, 3.0), (9.0, 0.0)])  # The device's clock errs.
def test_what_a_measurement_takes_is_told_apart(hand, run_s, wait_s):
    class Runner:
        def measure(self, request, blobs, cancelled=None):
            hand[0] += 10
            return MeasureResult(run_s=run_s, transfer_s=2.0)

        def close(self): ...

    clock = Clock()
    for _ in range(2):
        with clock.phase("search"):
            measure_by(clock, Runner(), None, None)
    assert clock.phases == {"search": 20}
    assert clock.works == {"measure": 2 * run_s, "transfer": 4.0, "wait": 2 * wait_s}
