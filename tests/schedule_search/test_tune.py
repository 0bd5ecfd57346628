"""The tuning loop: limits, resume, events, records, and claims that were measured twice."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time

import pytest
from toy_space import ToyMeasurer, ToySchedule, make_space

from farrier.cost_model import CostModel
from farrier.errors import CompilerError, NoDeviceError
from farrier.progress import TrialsMeasured, Warned
from farrier.records import Context, MemoryRecords
from farrier.schedule_search import TuningTask, tune
from farrier.schedule_search.in_flight import InFlight
from farrier.schedule_search.trial import DeviceFaultError
from farrier_device.measurement import DeviceFault, Status


def test_tuning_beats_the_default_and_says_so(toy_task):
    events, records = [], MemoryRecords()
    measurer = ToyMeasurer({"t": (22, 8)})
    task = toy_task()
    best = tune([task], "host", measurer, records, trials=128, listener=events.append)
    assert set(best) == {"t"}
    default, first, *others = best["t"]
    assert default == task.space.default()
    assert measurer.seconds("t", first) < 0.7 * measurer.seconds("t", default)
    assert len(others) == 6
    assert len(records) == 128
    trials = [event for event in events if isinstance(event, TrialsMeasured)]
    assert [event.trials for event in trials] == list(range(16, 129, 16))
    assert {event.planned for event in trials} == {128}
    assert trials[-1].best_ms <= trials[0].best_ms


def test_the_number_of_trials_is_exact(toy_task):
    records = MemoryRecords()
    tune([toy_task()], "host", ToyMeasurer({"t": (22, 8)}), records, trials=21)
    assert len(records) == 21


def test_no_trials_means_the_defaults(toy_task):
    task, measurer = toy_task(), ToyMeasurer({})
    assert tune([task], "host", measurer, MemoryRecords(), trials=0) == {
        "t": [task.space.default()]
    }
    assert measurer.measured == []


def test_equal_seeds_give_equal_records_and_winners(toy_task):
    def run():
        records = MemoryRecords()
        tasks = [toy_task("a"), toy_task("b", weight=4)]
        measurer = ToyMeasurer({"a": (22, 8), "b": (5, 30)})
        best = tune(tasks, "host", measurer, records, trials=96, seed=7)
        return best, [(r.task, r.decisions) for r in records]

    assert run() == run()


def test_the_model_is_trained_where_there_is_news(toy_task, monkeypatch):
    """At first a batch of eight adds enough for training, later two do."""
    learned: list[int] = []
    fit = CostModel.fit

    def noted(model):
        learned.append(sum(len(s.seconds) for s in model._samples.values()))
        fit(model)

    monkeypatch.setattr(CostModel, "fit", noted)
    tasks = [toy_task(name) for name in "abcdefghijklmnop"]
    floors = {task.key: (22, 8) for task in tasks}
    tune(tasks, "host", ToyMeasurer(floors), MemoryRecords(), trials=128)
    assert learned == [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112]


def test_a_second_run_resumes_where_the_first_ended(toy_task):
    records = MemoryRecords()
    floors = {"t": (22, 8)}
    tune([toy_task()], "host", ToyMeasurer(floors), records, trials=64)
    measured = {r.decisions for r in records}
    measurer = ToyMeasurer(floors)
    tune([toy_task()], "host", measurer, records, trials=96)
    assert len(records) == 96
    new = [tuple(sorted(d.items())) for _, d in measurer.measured[:32]]
    assert not measured & set(new)


@pytest.mark.parametrize("version", [1, 3])
def test_what_another_version_of_the_rule_measured_is_kept_and_not_used(toy_task, version):
    floors = {"t": (22, 8)}
    records = MemoryRecords()
    tune([toy_task(version=2)], "host", ToyMeasurer(floors), records, trials=32)
    before, measurer = list(records), ToyMeasurer(floors)
    other = [toy_task(version=version)]
    won = tune(other, "host", measurer, records, trials=32)
    assert len(measurer.measured) == 32
    assert won == tune(other, "host", ToyMeasurer(floors), MemoryRecords(), trials=32)
    assert list(records)[:32] == before
    assert {record.version for record in list(records)[32:]} == {version}


def test_a_finished_run_measures_nothing(toy_task):
    records = MemoryRecords()
    floors = {"t": (22, 8)}
    first = tune([toy_task()], "host", ToyMeasurer(floors), records, trials=64)
    measurer = ToyMeasurer(floors)
    assert tune([toy_task()], "host", measurer, records, trials=64) == first
    assert measurer.measured == []


@pytest.mark.parametrize("change", [{"fingerprint": "board"}, {"threads": 2}])
def test_records_of_another_machine_are_not_used(toy_task, change):
    floors, records = {"t": (22, 8)}, MemoryRecords()
    tune([toy_task()], "host", ToyMeasurer(floors), records, trials=32)
    options = {"fingerprint": "host", "threads": 1, **change}
    tune([toy_task()], measurer=ToyMeasurer(floors), records=records, trials=32, **options)
    assert len(records) == 64


def test_a_budget_ends_the_run(toy_task):
    class Slow(ToyMeasurer):
        def measure(self, task, space, batch, called_off=None):
            time.sleep(0.05)
            return super().measure(task, space, batch)

    records = MemoryRecords()
    begin = time.monotonic()
    tune([toy_task()], "host", Slow({"t": (22, 8)}), records, budget_s=0.5)
    assert time.monotonic() - begin < 3
    assert len(records) >= 16


def test_what_is_clearly_slower_than_the_default_is_no_finalist(toy_task):
    task, measurer = toy_task(), ToyMeasurer({"t": (9, 20)})
    default, *rivals = tune([task], "host", measurer, MemoryRecords(), trials=64)["t"]
    assert default == task.space.default()
    bar = 1.1 * measurer.seconds("t", default)
    assert all(measurer.seconds("t", rival) < bar for rival in rivals)


def test_what_was_measured_in_a_model_is_no_trial(toy_task):
    task, records = toy_task(), MemoryRecords()
    tune([task], "host", ToyMeasurer({"t": (22, 8)}), records, trials=16)
    in_model = [dataclasses.replace(r, context=Context.MODEL, samples_ns=(1,)) for r in records]
    both = MemoryRecords([*records, *in_model])
    assert tune([task], "host", ToyMeasurer({"t": (22, 8)}), both, trials=16) == tune(
        [task], "host", ToyMeasurer({"t": (22, 8)}), records, trials=16
    )


def test_failures_are_recorded_and_reported(toy_task):
    events, records = [], MemoryRecords()
    measurer = ToyMeasurer({"t": (9, 20)}, failing=lambda d: d["x"] % 2 == 0)
    tune([toy_task()], "host", measurer, records, trials=48, listener=events.append)
    failed = sum(r.status is Status.CRASHED for r in records)
    assert failed == sum(not r.samples_ns for r in records) > 0
    assert sum(e.failed for e in events) == failed


def test_all_candidates_failing_leaves_the_default(toy_task):
    task = toy_task()
    measurer = ToyMeasurer({"t": (9, 20)}, failing=lambda d: True)
    assert tune([task], "host", measurer, MemoryRecords()) == {"t": [task.space.default()]}


def test_a_candidate_that_cannot_be_scheduled_does_not_end_the_run():
    def recipe(decisions):
        if decisions["x"] % 3 == 0:
            raise CompilerError("the recipe does not apply")
        return ToySchedule("toy")

    space = make_space()
    space._recipe = recipe
    records = MemoryRecords()
    measurer = ToyMeasurer({"t": (9, 20)}, failing=lambda d: d["x"] % 3 == 0)
    best = tune([TuningTask("t", "toy", space)], "host", measurer, records, trials=32)
    assert len(records) == 32
    assert {r.trace for r in records if r.samples_ns} == {"toy"}
    assert {r.trace for r in records if not r.samples_ns} == {""}
    assert all(finalist["x"] % 3 for finalist in best["t"][1:])


class Faulty(ToyMeasurer):
    """A device that fails on the calls numbered in `faults`."""

    def __init__(self, floors, faults):
        super().__init__(floors)
        self.calls = itertools.count()
        self.faults = faults

    def measure(self, task, space, batch, called_off=None):
        if next(self.calls) in self.faults:
            raise DeviceFaultError(DeviceFault.DRIFTED, "by 40%")
        return super().measure(task, space, batch)


def test_a_batch_that_the_device_spoilt_is_measured_again(toy_task):
    records = MemoryRecords()
    tune([toy_task()], "host", Faulty({"t": (22, 8)}, {0, 2, 3}), records, trials=32)
    assert len(records) == 32


def test_a_dead_device_ends_in_a_warning_and_the_defaults(toy_task):
    events, records = [], MemoryRecords()
    tasks = [toy_task("a"), toy_task("b")]
    measurer = Faulty({"a": (22, 8), "b": (22, 8)}, set(range(1000)))
    best = tune(tasks, "host", measurer, records, trials=64, listener=events.append)
    assert best == {task.key: [task.space.default()] for task in tasks}
    assert len(records) == 0
    assert [type(e) for e in events] == [Warned, Warned]


def test_time_goes_where_the_model_spends_it(toy_task):
    records = MemoryRecords()
    tasks = [toy_task("heavy", weight=20), toy_task("light")]
    measurer = ToyMeasurer({"heavy": (22, 8), "light": (22, 8)})
    tune(tasks, "host", measurer, records, trials=128)
    counts = {key: sum(r.task == key for r in records) for key in ("heavy", "light")}
    assert counts["heavy"] > counts["light"]


class Farm(ToyMeasurer):
    """Several devices, each of which takes `seconds` for a candidate."""

    def __init__(self, floors, devices, seconds=0.01):
        super().__init__(floors)
        self.devices = devices
        self.candidate_s = seconds
        self.idle = threading.Semaphore(devices)
        self.lock = threading.Lock()
        self.under_way = self.most = 0

    def measure(self, task, space, batch, called_off=None):
        with self.idle:
            with self.lock:
                self.under_way += 1
                self.most = max(self.most, self.under_way)
            if called_off.wait(self.candidate_s * len(batch)):
                raise DeviceFaultError(DeviceFault.LOST, "called off")
            with self.lock:
                self.under_way -= 1
                return super().measure(task, space, batch)


class ImprovingFarm(Farm):
    """A farm on which every candidate is 2% faster than the one measured before it, so that a
    search never ends for lack of improvement, in whatever order its batches end."""

    def seconds(self, task, decisions):
        return self.scale * 0.98 ** len(self.measured)


def test_every_device_gets_batches_and_no_candidate_is_measured_twice(toy_task):
    records, measurer = MemoryRecords(), ImprovingFarm({"t": (22, 8)}, devices=4)
    reasons = []
    tune([toy_task()], "host", measurer, records, trials=200, ended=reasons.append)
    assert measurer.most == 4
    assert len(records) == len({r.decisions for r in records}) == 200
    assert reasons == ["200 trials are measured"]


def test_several_devices_find_what_one_finds(toy_task):
    task, best = toy_task(), {}
    for devices in (1, 4):
        measurer = Farm({"t": (22, 8)}, devices, seconds=0.001)
        _, first, *_ = tune([task], "host", measurer, MemoryRecords(), trials=320)["t"]
        best[devices] = measurer.seconds("t", first)
    assert best[4] <= 1.1 * best[1]


def test_what_is_in_flight_when_time_is_up_is_called_off(toy_task):
    measurer, records = Farm({"t": (22, 8)}, devices=2, seconds=0.0), MemoryRecords()
    hung = threading.Event()

    def hang(task, space, batch, called_off):
        hung.set()
        assert called_off.wait(60)
        raise DeviceFaultError(DeviceFault.LOST, "called off")

    measurer.measure = hang
    begin = time.monotonic()
    best = tune([toy_task()], "host", measurer, records, budget_s=0.2)
    assert time.monotonic() - begin < 10
    assert hung.is_set()
    assert list(records) == []
    assert best == {"t": [toy_task().space.default()]}


def test_what_measuring_raises_ends_the_run_and_what_else_is_in_flight(toy_task):
    measurer, calls = Farm({"t": (22, 8)}, devices=2), itertools.count()
    ended = []

    def fail(task, space, batch, called_off):
        if next(calls) == 1:
            raise NoDeviceError("no device is connected")
        ended.append(called_off.wait(60))
        raise DeviceFaultError(DeviceFault.LOST, "called off")

    measurer.measure = fail
    with pytest.raises(NoDeviceError, match="no device is connected"):
        tune([toy_task()], "host", measurer, MemoryRecords(), trials=64)
    assert ended == [True] * 3


def test_a_slow_device_delays_its_own_batches_alone(toy_task):
    records, slow = MemoryRecords(), threading.Event()
    measurer, quick = Farm({"t": (22, 8)}, devices=2, seconds=0.001), Farm.measure

    def measure(task, space, batch, called_off):
        if not slow.is_set():
            slow.set()
            deadline = time.monotonic() + 60  # The other device needs only milliseconds for it.
            while len(records) < 32 and time.monotonic() < deadline:
                assert not called_off.wait(0.01)
            assert len(records) >= 32
        return quick(measurer, task, space, batch, called_off)

    measurer.measure = measure
    tune([toy_task()], "host", measurer, records, trials=64)
    assert len(records) == 64


def test_batches_of_a_slow_candidate_are_small(toy_task):
    class Sized(Farm):
        def measure(self, task, space, batch, called_off=None):
            sizes.append(len(batch))
            return ToyMeasurer.measure(self, task, space, batch)

    sizes = []
    measurer = Sized({"t": (22, 8)}, devices=2, seconds=2.0)
    tune([toy_task()], "host", measurer, MemoryRecords(), trials=32)
    assert max(sizes) == 2
    assert sum(sizes) == 32


def test_devices_with_nothing_to_do_share_a_batch(toy_task, monkeypatch):
    sizes, begin = [], InFlight.begin

    def watched(flight, task, key, space, batch):
        sizes.append(len(batch))
        begin(flight, task, key, space, batch)

    monkeypatch.setattr(InFlight, "begin", watched)
    measurer = Farm({"t": (22, 8)}, devices=4, seconds=1.0)
    measurer.measure = lambda task, space, batch, _: ToyMeasurer.measure(
        measurer, task, space, batch
    )
    tune([toy_task()], "host", measurer, MemoryRecords())
    assert sizes[:8] == [1, 2, 2, 4, 4, 4, 4, 4]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"trials": 32}, "32 trials are measured"),
        ({"budget_s": 0.0}, "its time is up"),
        ({}, "no batch is expected to bring 0.1% of the model's time"),
    ],
)
def test_the_run_says_what_ended_it(toy_task, limits, reason):
    said, measurer = [], ToyMeasurer({"t": (22, 8)})
    tune([toy_task()], "host", measurer, MemoryRecords(), ended=said.append, **limits)
    assert said == [reason]


def test_a_gain_that_the_noise_hides_is_not_sought(toy_task):
    class Noisy(ToyMeasurer):
        def measure(self, task, space, batch, called_off=None):
            results = super().measure(task, space, batch, called_off)
            return [
                dataclasses.replace(
                    outcome, samples_ns=(outcome.samples_ns[0], 3 * outcome.samples_ns[0]) * 4
                )
                for outcome in results
            ]

    said, quiet, noisy = [], MemoryRecords(), MemoryRecords()
    tune([toy_task()], "host", ToyMeasurer({"t": (22, 8)}), quiet)
    tune([toy_task()], "host", Noisy({"t": (22, 8)}), noisy, ended=said.append)
    assert len(noisy) < len(quiet)
    assert said == ["nothing more is expected of any kernel than the noise of its measurements"]
