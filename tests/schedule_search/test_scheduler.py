"""The task scheduler: heavy tasks first, everyone in the end, nobody for ever."""

from __future__ import annotations

import math

import pytest

from farrier.schedule_search import TaskScheduler


def test_the_heaviest_task_goes_first():
    assert TaskScheduler([1, 5, 1], [1e-3, 1e-3, 2e-3], [5e-4, 5e-4, 1e-3]).next() == 1


def test_every_task_that_matters_gets_a_batch():
    scheduler = TaskScheduler([1] * 6, [1e-3, 8e-4, 6e-4, 4e-4, 3e-4, 2e-4], [1e-5] * 6)
    served = []
    for _ in range(24):
        index = scheduler.next()
        if index is None:
            break
        served.append(index)
        scheduler.update(index, [1e-3, 8e-4, 6e-4, 4e-4, 3e-4, 2e-4][index])
    assert set(served) == set(range(6))
    assert served.count(0) >= served.count(5)


def test_a_task_that_improves_is_served_more_than_one_that_does_not():
    scheduler = TaskScheduler([1, 1], [1e-3, 1e-3], [1e-4, 1e-4])
    times = [1e-3, 1e-3]
    served = [0, 0]
    for _ in range(16):
        index = scheduler.next()
        if index is None:
            break
        served[index] += 1
        if index == 1:
            times[1] *= 0.9
        scheduler.update(index, times[index])
    assert served[1] > served[0] >= 1


def test_it_ends_when_nothing_improves():
    scheduler = TaskScheduler([3, 1], [1e-3, 5e-4], [9e-4, 4e-4])
    for _ in range(100):
        index = scheduler.next()
        if index is None:
            return
        scheduler.update(index, [1e-3, 5e-4][index])
    raise AssertionError("100 barren batches and no end")


def test_a_task_at_its_roofline_is_left_alone():
    assert TaskScheduler([1], [1e-3], [1e-3]).next() is None


def test_a_task_whose_candidates_all_fail_is_given_up():
    scheduler = TaskScheduler([1], [1e-3], [1e-5])
    for _ in range(10):
        index = scheduler.next()
        if index is None:
            return
        scheduler.update(index, math.inf)
    raise AssertionError("never given up")


def test_an_exhausted_task_is_never_served():
    scheduler = TaskScheduler([9, 1], [1e-3, 1e-3], [1e-5, 1e-5])
    scheduler.exhaust(0)
    assert scheduler.next() == 1


def test_latency_counts_calls_and_replaces_predictions_by_measurements():
    scheduler = TaskScheduler([2, 1], [1e-3, 3e-3], [1e-4, 1e-4])
    assert math.isclose(scheduler.latency, 5e-3)
    scheduler.update(0, math.inf)
    assert math.isclose(scheduler.latency, 5e-3)
    scheduler.update(0, 4e-3)
    assert math.isclose(scheduler.latency, 11e-3)
    scheduler.update(0, 6e-3)
    assert math.isclose(scheduler.latency, 11e-3)


def test_no_task_means_nothing_to_do():
    assert TaskScheduler([], [], []).next() is None


def test_what_is_in_flight_counts_as_tried():
    scheduler = TaskScheduler([1, 1], [1e-3, 9e-4], [1e-5, 1e-5])
    served = []
    for _ in range(8):
        served.append(scheduler.next())
        scheduler.begin(served[-1])
    assert sorted(served) == [0] * 4 + [1] * 4
    for index in served:
        scheduler.end(index)
    assert scheduler.next() == 0


def test_kernels_of_which_nothing_is_in_flight_come_first():
    """One kernel has twice the others' gain, and would otherwise get the first two batches."""
    scheduler = TaskScheduler([1, 1, 1], [2.2e-3, 1e-3, 1e-3], [1e-5] * 3)
    served = []
    for _ in range(3):
        served.append(scheduler.next())
        scheduler.begin(served[-1])
    assert served == [0, 1, 2]


def test_a_kernel_in_flight_has_another_batch_where_no_other_is_worth_one():
    scheduler = TaskScheduler([1, 1], [1e-3, 1e-3], [1e-5, 1e-3])
    for _ in range(4):
        assert scheduler.next() == 0
        scheduler.begin(0)


def test_small_batches_count_as_the_usual_ones_that_they_are_parts_of():
    def expected(parts):
        scheduler = TaskScheduler([1], [1.0], [0.0])
        scheduler.update(0, 1.0)
        best = 1.0
        for gain in (0.4, 0.0):
            best *= 1 - gain
            scheduler.update(0, best, 1 / parts)
            for _ in range(parts - 1):
                scheduler.update(0, best, 1 / parts)
        return scheduler._tasks[0].expected()

    assert expected(4) == pytest.approx(expected(1))
