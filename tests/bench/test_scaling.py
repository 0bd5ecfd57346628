"""Tests of `bench.scaling`: the counts, the conservation laws of the simulation, and a short
run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from bench import models
from bench.page import put
from bench.scaling import prediction, quality, tables
from bench.scaling.batches import (
    BatchLog,
    DeviceBatch,
    Window,
    busy_shares,
    late_share,
    most_at_once,
    trials_within,
)
from bench.scaling.chart import chart
from bench.scaling.devices import invented, is_of_kernels_alone
from bench.scaling.measured import Costs, Setting, measure
from bench.scaling.results import Measurement, Row, equal_ms, summarized
from bench.scaling.simulation import Load, ServiceTimes, Size, phase_s, simulate
from farrier.sdk.models import Task, Trial
from farrier_device.measurement import Argument, Candidate, CodeObject, Launch, MeasureRequest, Role

NOTHING = ServiceTimes(
    candidate_s=1.0,
    job_s=0.0,
    build_s=0.0,
    supervisor_s=0.0,
    broker_s=0.0,
    redis_s=0.0,
    batch_bytes=0.0,
    beat_s=6.0,
    broker_beat_s=0.0,
    redis_beat_s=0.0,
)
REAL = dataclasses.replace(
    NOTHING,
    job_s=0.03,
    build_s=0.05,
    supervisor_s=0.02,
    broker_s=0.02,
    redis_s=0.02,
    batch_bytes=1e6,
    broker_beat_s=0.002,
    redis_beat_s=0.0005,
)
COSTS = Costs(
    supervisor_s=1.0,
    jobs_s=3.0,
    builders_s=5.0,
    broker_s=2.0,
    api_s=1.0,
    redis_s=2.0,
    redis_commands=10_000,
    redis_scripts=1_000,
    others_s=0.0,
)


class TestSimulation:
    def test_one_device_without_other_work_does_a_candidate_a_time(self):
        assert simulate(NOTHING, Size(1), seconds=100).rate == pytest.approx(1.0)
        slow = dataclasses.replace(NOTHING, candidate_s=2.5)
        assert simulate(slow, Size(1), seconds=100).rate == pytest.approx(0.4)

    @pytest.mark.parametrize("devices", [2, 8, 16])
    def test_devices_that_wait_for_nothing_scale(self, devices):
        outcome = simulate(NOTHING, Size(devices), seconds=100)
        assert outcome.rate == pytest.approx(devices)
        assert outcome.busy(devices) == pytest.approx(1.0)

    def test_one_batch_in_flight_keeps_one_device_busy(self):
        assert simulate(NOTHING, Size(8, a_device=None), seconds=100).rate == pytest.approx(1.0)

    @pytest.mark.parametrize("size", [Size(1), Size(7, 3), Size(40, 11, worker_cores=2, redis=1)])
    def test_what_was_started_has_finished_or_is_in_flight(self, size):
        outcome = simulate(REAL, size, Load(200, 5.0), seconds=60, warm_up_s=20)
        assert outcome.started == outcome.finished + outcome.in_flight
        assert outcome.finished > 0

    def test_a_phase_ends_with_its_last_batch(self):
        assert phase_s(NOTHING, Size(1, batch=4), 8) == pytest.approx(8)
        # One device has two batches.
        assert phase_s(NOTHING, Size(3, batch=4), 16) == pytest.approx(8)

    def test_a_seed_decides_all(self):
        def outcome(seed):
            load = Load(100, 10.0)
            return simulate(REAL, Size(20, 6), load, seconds=60, warm_up_s=10, seed=seed)

        assert outcome(3) == outcome(3)
        assert outcome(3) != outcome(4)

    def test_cores_bound_what_is_built(self):
        """One of two cores is the job's process's; the other compiles a candidate in 0.05 s."""
        outcome = simulate(REAL, Size(64, worker_cores=2), seconds=100, warm_up_s=20)
        assert outcome.rate == pytest.approx(20, rel=0.05)
        cores = outcome.used["jobs"] + outcome.used["builders"] + outcome.used["supervisors"]
        assert 1.5 < cores <= 2.0001

    def test_a_broker_and_redis_bound_batches(self):
        scarce = dataclasses.replace(NOTHING, broker_s=0.5)
        outcome = simulate(scarce, Size(100, brokers=1), seconds=200, warm_up_s=50)
        assert outcome.rate == pytest.approx(16 / 0.5, rel=0.05)
        scarce = dataclasses.replace(NOTHING, redis_s=0.5)
        outcome = simulate(scarce, Size(100, redis=1), seconds=200, warm_up_s=50)
        assert outcome.rate == pytest.approx(16 / 0.5, rel=0.05)

    def test_a_link_bounds_bytes(self):
        heavy = dataclasses.replace(NOTHING, batch_bytes=1e6)
        outcome = simulate(heavy, Size(100, link_bytes_s=2e6), seconds=200, warm_up_s=50)
        assert outcome.rate == pytest.approx(32, rel=0.05)


class TestBatches:
    window = Window(10.0, 20.0)

    def test_a_batch_counts_by_the_part_of_it_that_lies_within(self):
        batches = [
            _batch(8.0, 12.0, 4),  # half of it
            _batch(12.0, 16.0, 4),
            _batch(16.0, None, 8),  # Four of its eight seconds lie within.
            dataclasses.replace(_batch(12.0, 16.0, 4), fault="lost: the batch was cancelled"),
        ]
        assert trials_within(batches, self.window, 1.0) == pytest.approx(2 + 4 + 4)

    def test_a_device_that_waits_for_the_machine_is_not_busy(self):
        batches = [_batch(10.0, 18.0, 4)]
        assert busy_shares(batches, self.window, ["a", "b"], 1.0) == [0.4, 0.0]
        assert late_share(batches, 1.0) == 1.0

    def test_how_many_are_measured_at_once(self):
        assert most_at_once([_batch(0, 2, 1), _batch(2, 4, 1)]) == 1
        assert most_at_once([_batch(0, 2, 1), _batch(1, None, 1), _batch(3, 4, 1)]) == 2

    def test_lines_of_devices_become_batches(self):
        log = BatchLog()
        fields = {"device": "a", "alone": True, "candidates": 4}
        log.hear({"batch": "begin", "at": 1.0, **fields, "library_bytes": 9, "arrived_bytes": 20})
        assert log.batches[0].end is None
        log.hear({"batch": "end", "at": 5.0, **fields, "ran_s": 0.1, "fault": ""})
        assert log.batches == [DeviceBatch("a", True, 4, 1.0, 9, 20, 5.0, 0.1)]


class TestDevices:
    candidate = Candidate((Launch("candidate0"),), (Argument(Role.SCRATCH, 4000),))

    def test_times_are_invented_of_library_and_symbol(self):
        request = MeasureRequest((CodeObject("a" * 64),), (self.candidate,))
        other = dataclasses.replace(request, code=(CodeObject("b" * 64),))
        assert invented(request) == invented(request)
        assert invented(request) != invented(other)
        assert 1400 <= invented(request)[0].undisturbed_ns <= 8 * 1400

    def test_which_batches_are_of_kernels_alone(self):
        alone = MeasureRequest((CodeObject("a" * 64),), (self.candidate,), reference=self.candidate)
        assert is_of_kernels_alone(alone)
        assert not is_of_kernels_alone(dataclasses.replace(alone, reference=None))
        model = dataclasses.replace(self.candidate, parts=(Launch("kernel", ((0, 0),)),))
        assert not is_of_kernels_alone(dataclasses.replace(alone, candidates=(model,)))


class TestQuality:
    def test_a_task_begins_at_its_default_and_falls(self):
        tasks = [_task("a", calls=2), _task("b", calls=1)]
        trials = [
            _trial("a", 0, 100.0, created=1000.0),
            _trial("a", 1, 60.0, created=1004.0),
            _trial("a", 2, 80.0, created=1006.0),
            _trial("a", 3, None, created=1007.0),
            _trial("a", 3, 1.0, created=1008.0, context="model"),
        ]
        start_us = quality.defaults_us(tasks, trials) | {"b": 50.0}
        assert start_us == {"a": 100.0, "b": 50.0}
        curve = quality.curve(tasks, trials, start_us, begin=1000.0)
        assert curve == [(0.0, 0.25), (4.0, pytest.approx(0.17))]
        assert quality.reached_s(curve, 0.2) == 4.0
        assert quality.reached_s(curve, 0.1) is None

    def test_nine_tenths_of_a_gain_are_the_quality_of_one_device(self):
        assert equal_ms([(0.0, 4.0), (10.0, 3.2), (90.0, 3.0)]) == pytest.approx(3.1)
        assert equal_ms([(0.0, 4.0)]) is None


class TestResults:
    def test_a_measurement_comes_back_from_its_file(self, tmp_path):
        measurement = _measurement((1, 1.0), (8, 7.5))
        measurement.save(tmp_path / "build" / "scaling.json")
        assert Measurement.load(tmp_path / "build" / "scaling.json") == measurement

    def test_the_table_has_a_row_for_each_run(self):
        text = tables.measured(_measurement((1, 1.0), (8, 7.5)))
        head, rule, single, eight = text.splitlines()
        assert len({len(line) for line in (head, rule, single, eight)}) == 1
        assert [cell.strip() for cell in eight.split("|")[1:6]] == [
            "8",
            "100",
            "750",
            "7.50",
            "7.50",
        ]

    def test_lines_hold_or_not(self):
        good = _measurement((1, 1.0), (8, 7.5))
        assert [holds for _, holds in tables.lines(good)] == [True, True, True]
        poor = _measurement((1, 1.0), (8, 7.0))
        assert [holds for _, holds in tables.lines(poor)] == [False, True, True]
        assert tables.lines(_measurement((1, 1.0), (2, 2.0))) == []

    def test_words_stand_left_and_numbers_right(self):
        text = tables.markdown(("what", "n"), [("a", "10"), ("much longer", "2")], words=1)
        assert text.splitlines() == [
            "| what        |  n |",
            "|-------------|---:|",
            "| a           | 10 |",
            "| much longer |  2 |",
        ]

    def test_the_chart_has_a_point_for_each_run(self):
        text = chart([(1, 1.0), (8, 7.5)], [(1, 1.0), (8, 7.9)], 1.0)
        assert text.count("<circle") == 6
        assert "simulated" in text

    def test_a_table_goes_where_its_marks_stand(self, tmp_path):
        page = tmp_path / "page.md"
        page.write_text("a\n<!-- x -->\nold\n<!-- end of x -->\nb\n")
        put(page, "x", "new\n")
        assert page.read_text() == "a\n<!-- x -->\nnew\n<!-- end of x -->\nb\n"
        with pytest.raises(ValueError, match="no place for 'y'"):
            put(page, "y", "new")


class TestPrediction:
    def test_service_times_are_of_the_run_with_the_most_trials(self):
        times = prediction.service_times(_measurement((1, 1.0), (8, 7.5)))
        assert times.job_s == pytest.approx(3.0 / 750)
        assert times.build_s == pytest.approx(5.0 / 750)

    def test_each_run_is_modelled(self):
        measurement = _measurement((1, 1.0), (8, 7.9))
        single, eight = prediction.compared(measurement, prediction.service_times(measurement))
        assert abs(single.error) < 0.02
        assert abs(eight.error) < 0.05
        assert len(prediction.compared_table([single, eight]).splitlines()) == 4

    def test_what_is_scarce_first(self):
        times = dataclasses.replace(REAL, candidate_s=4.0, redis_s=2.0)
        need = prediction.need(times, Size(64, 8))
        resource_limits = prediction.limits(times, need)
        assert [limit.devices for limit in resource_limits] == sorted(
            limit.devices for limit in resource_limits
        )
        by_name = {limit.resource: limit for limit in resource_limits}
        assert by_name["one Redis"].devices < by_name["one broker"].devices
        assert by_name["one Redis"].busy_of_twice < by_name["one Redis"].busy < 1
        assert by_name["one broker"].busy is None
        assert len(prediction.limits_table(resource_limits).splitlines()) == 2 + len(
            resource_limits
        )


@pytest.mark.long
def test_two_devices_of_a_farm(tmp_path):
    model = models.build("mobilenet_v2", size=32, stages=2)
    run = measure(Setting(model, "small", seconds=3.0, candidate_s=0.05, invented=True), 2)
    assert run.faults == 0
    assert run.trials > 0
    assert 0 < max(run.busy) <= 1
    assert run.costs.jobs_s > 0
    assert run.costs.redis_scripts > 0
    assert run.library_bytes > 0
    measurement = summarized(Setting(b"", "small", 3.0, 0.05, True), [run], "now")
    measurement.save(tmp_path / "scaling.json")
    assert json.loads((tmp_path / "scaling.json").read_text())["rows"][0]["devices"] == 2


def test_the_page_has_places_for_all_tables(tmp_path):
    page = tmp_path / "scaling.md"
    page.write_text((Path(__file__).parents[2] / "docs/operate/scaling.md").read_text())
    for name in ("measured", "service times", "compared", "needs", "limits"):
        put(page, name, "table")


def _batch(begin, end, candidates):
    return DeviceBatch("a", True, candidates, begin, 0, 0, end)


def _task(key, calls):
    return Task(
        task=key,
        name=key,
        sizes={},
        calls=calls,
        share=0.5,
        rule="rule",
        space=10,
        default={"knob": 0},
        default_us=None,
        decisions={"knob": 0},
        source="default",
        predicted_us=None,
        measured_us=None,
        trials=0,
        failed=0,
        best_us=None,
        best_in_model_us=None,
    )


def _trial(task, knob, us, created, context="alone"):
    return Trial(
        id=f"{created}",
        task=task,
        rule="rule",
        decisions={"knob": knob},
        status="ok",
        context=context,
        us=us,
        device="a",
        created=created,
    )


def _measurement(*rates):
    """Return runs of 100 s with these (devices, trials a second), whose other times match."""
    rows = tuple(
        Row(
            devices=devices,
            elapsed_s=100.0,
            trials=100 * rate,
            batches=max(1, round(100 * rate / 16)),
            batch_size=16.0,
            busy=(0.95,) * devices,
            late=0.01,
            at_once=devices,
            library_bytes=3e5,
            arrived_bytes=1e6,
            ran_s=1.0,
            faults=0,
            costs=COSTS,
            events=((1.0, 16, 3.5), (2.0, 32, None)),
            curve=((0.0, 4.0), (80.0 / devices, 3.0)),
            reached_s=80.0 / devices,
        )
        for devices, rate in rates
    )
    return Measurement("now", "mobilenet_v2", 1.0, False, 2, rows)
