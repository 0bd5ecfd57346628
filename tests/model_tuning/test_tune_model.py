"""Tuning a whole model: what was measured in it decides, and is known the next time."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier.artifact.calls import CallRecord
from farrier.frontends.onnx.importer import import_model
from farrier.ir.parser import parse_ir
from farrier.model_tuning.algorithms import algorithms_report
from farrier.model_tuning.compare import CallTimes, ComparisonError, FailedVariant
from farrier.model_tuning.coordinate_descent import CoordinateDescent, shared_out
from farrier.model_tuning.in_model_selection import InModelSelection
from farrier.model_tuning.tune_model import known_variant, tune_model
from farrier.model_tuning.variant import make_variant
from farrier.options import CompileOptions
from farrier.passes import Settings, layers, prepare
from farrier.passes.algorithm import Algorithm
from farrier.progress import TrialsMeasured, VariantsCompared, Warned
from farrier.progress.clock import Clock
from farrier.records import Context, MemoryRecords, TuningRecord
from farrier.records.record import pairs
from farrier.schedule_search.trial import DeviceFaultError
from farrier.targets import parse_target, read_target
from farrier_device.measurement import CandidateResult, DeviceFault, Status


def model(*layers):
    """Convolutions of 3x3 windows, (channels, extent) each, side by side."""
    nodes, inputs, outputs, weights = [], [], [], []
    rng = np.random.default_rng(0)
    for number, (channels, extent) in enumerate(layers):
        x, w, y = (f"{name}{number}" for name in "xwy")
        shape = [1, channels, extent, extent]
        array = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32) / channels
        inputs.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, shape))
        outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, shape))
        weights.append(numpy_helper.from_array(array, w))
        nodes.append(helper.make_node("Conv", [x, w], [y], f"conv{number}", pads=[1] * 4))
    graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(proto)
    return proto.SerializeToString()


def prepared(layers, **changes):
    settings = Settings(parse_target("x86-64-v4"), 2, **changes)
    graph = prepare(import_model(model(*layers), {}).graph, settings)
    return graph, make_variant(graph, settings)


def tile_of(variant, call):
    """The tile of the convolution that a call computes, 0 for the direct sum; None for a copy."""
    nodes = variant.choices[call.task].task.region.nodes
    actual = [node.attr("tile", 0) for node in nodes if node.op in ("Conv", "WinogradConv")]
    return actual[0] if actual else None


def tiles(variant):
    """The tile of each convolution of a variant by its origin."""
    actual = {call.origin: tile_of(variant, call) for call in variant.calls}
    return {origin: tile for origin, tile in actual.items() if tile is not None}


def convolution(variant):
    """The schedule of the only kernel that is one."""
    (actual,) = {call.task for call in variant.calls if tile_of(variant, call) is not None}
    return variant.choices[actual]


class FakeComparison:
    """A comparison in which each call takes `nanoseconds(tile, decisions)`, at declared costs."""

    compile_s = 0.1
    race_s = 1.0
    devices = None
    racers = 2

    def __init__(self, nanoseconds, variant_s=0.5):
        self.nanoseconds = nanoseconds
        self.variant_s = variant_s
        self.compared = []
        self.compiled = []

    def cost(self, variant, seconds):
        return max(seconds, self.variant_s)

    def compile(self, choices):
        self.compiled += choices

    def is_compiled(self, choice):
        return True

    def shares(self, variant, seconds):
        return 1

    def pooled(self, variants, seconds):
        return self.by_call(variants, seconds)

    def contests(self, contests, seconds):
        return [self.by_call(variants, seconds) for variants in contests]

    def by_call(self, variants, seconds):
        self.compared.append(len(variants))
        return [[self._times(variant, call) for call in variant.calls] for variant in variants]

    def _times(self, variant, call):
        tile = tile_of(variant, call)
        ns = 10 if tile is None else self.nanoseconds(tile, variant.choices[call.task].decisions)
        return CallTimes(CallRecord("kernel", call.task, call.origin, ()), (ns,) * 9)


class Measurer:
    """Measures kernels alone; `nanoseconds(decisions)`, counted."""

    def __init__(self, nanoseconds=lambda decisions: 1000):
        self.nanoseconds = nanoseconds
        self.measured = 0

    def __call__(self, tasks):
        return self

    devices = None
    candidate_s = 0.0
    aside = staticmethod(contextlib.nullcontext)

    def measure(self, task, space, batch, called_off=None):
        self.measured += len(batch)
        return [CandidateResult(Status.OK, (self.nanoseconds(d),) * 3) for d in batch]


def run(graph, default, comparison, records=None, measurer=None, definitions=None, **options):
    events = []
    tuned = tune_model(
        graph,
        default,
        comparison,
        measurer or Measurer(),
        MemoryRecords() if records is None else records,
        CompileOptions(**{"trials": 40, **options}),
        Clock(options.get("budget_s")),
        events.append,
        definitions=definitions,
    )
    return tuned, events


def by_tile(times):
    return lambda tile, decisions: times[tile]


DEEP = (256, 14)  # Arithmetic favors tiles of 3; tiles of 2 and 4 are plausible.


def test_the_algorithm_measured_fastest_in_the_model_computes_the_layer():
    graph, default = prepared([DEEP, DEEP, (64, 56)])
    assert tiles(default) == {"conv0": 3, "conv1": 3, "conv2": 4}
    records = MemoryRecords()
    comparison = FakeComparison(by_tile({0: 900, 2: 600, 3: 500, 4: 400}))
    tuned, events = run(graph, default, comparison, records)
    assert tiles(tuned) == {"conv0": 4, "conv1": 4, "conv2": 4}
    assert VariantsCompared("algorithms", 4, 1) in events
    report = algorithms_report(graph, tuned.settings, records)
    assert report["max_layer_error"] == 3e-6
    first = report["layers"][0]
    assert (first["nodes"], first["algorithm"]) == ("conv0", "winograd4")
    assert first["by_arithmetic"] == "winograd3"
    measured = {"winograd2": 0.6, "winograd3": 0.5, "winograd4": 0.4}
    assert first["measured_us"] == pytest.approx(measured)


def test_what_one_compilation_measured_another_knows():
    graph, default = prepared([DEEP])
    records = MemoryRecords()
    times = by_tile({0: 900, 2: 600, 3: 500, 4: 400})
    run(graph, default, FakeComparison(times), records)
    assert tiles(known_variant(graph, default, records)) == {"conv0": 4}
    again = FakeComparison(times)
    tuned, events = run(graph, default, again, records)
    assert tiles(tuned) == {"conv0": 4}
    assert VariantsCompared("algorithms", 3, 1) not in events
    # A user who allows less gets the best of that.
    graph, strict = prepared([DEEP], max_layer_error=1e-6)
    assert tiles(known_variant(graph, strict, records)) == {"conv0": 2}


def test_an_algorithm_that_came_close_may_win_with_another_schedule():
    graph, default = prepared([DEEP])
    seen = {2: [], 3: [], 4: []}

    def nanoseconds(tile, decisions):
        if decisions not in seen[tile]:
            seen[tile].append(dict(decisions))
        place = seen[tile].index(decisions)
        return 500 + place if tile < 4 else 540 if place == 0 else 400 + place

    records = MemoryRecords()
    tuned, events = run(graph, default, FakeComparison(nanoseconds), records)
    assert VariantsCompared("algorithms", 3, 0) in events
    assert tiles(tuned) == {"conv0": 4}
    assert convolution(tuned).decisions == seen[4][1]
    again = known_variant(graph, default, records)
    assert tiles(again) == {"conv0": 4}
    assert again.is_same_code(tuned)


def test_a_lead_within_the_noise_changes_nothing():
    graph, default = prepared([DEEP])
    tuned, _ = run(graph, default, FakeComparison(by_tile({0: 900, 2: 600, 3: 500, 4: 495})))
    assert tiles(tuned) == {"conv0": 3}


@pytest.mark.parametrize("options", [{"trials": 3}, {"trials": None, "budget_s": 1.0}])
def test_too_little_to_spend_leaves_the_algorithms(options):
    graph, default = prepared([DEEP])
    comparison = FakeComparison(by_tile({0: 900, 2: 600, 3: 500, 4: 100}))
    tuned, events = run(graph, default, comparison, **options)
    assert tiles(tuned) == {"conv0": 3}
    assert not any(e.what == "algorithms" for e in events if isinstance(e, VariantsCompared))
    assert len(comparison.compared) == (1 if options["trials"] else 0)


@pytest.mark.parametrize("options", [{"trials": 8}, {"trials": None, "budget_s": 60.0}])
def test_a_model_without_kernels_is_left_as_it_is(options):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "empty", ends[:1], ends[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    settings = Settings(parse_target("x86-64-v4"), 2)
    imported = import_model(proto.SerializeToString(), {"x": (0, 4)}).graph
    default = make_variant(prepare(imported, settings), settings)
    assert not default.calls
    tuned, _ = run(prepare(imported, settings), default, FakeComparison(by_tile({})), **options)
    assert tuned is default


def test_trials_bound_all_that_is_measured():
    graph, default = prepared([DEEP])
    measurer = Measurer()
    comparison = FakeComparison(by_tile({0: 9, 2: 6, 3: 5, 4: 4}))
    run(graph, default, comparison, measurer=measurer, trials=12)
    assert measurer.measured == 9  # The other trials are three algorithms of one layer.


def test_tasks_are_defined_before_their_first_record_and_their_spaces_can_be_made_again():
    graph, default = prepared([DEEP])
    events = []

    class Noted(MemoryRecords):
        def add(self, record):
            if record.context is Context.ALONE:
                events.append(record)
            super().add(record)

        def define(self, definitions):
            events.extend(definitions)

    noted = Noted()
    comparison = FakeComparison(by_tile({0: 9, 2: 6, 3: 5, 4: 4}))
    tuned, _ = run(graph, default, comparison, noted, definitions=noted, trials=16)
    records = [event for event in events if isinstance(event, TuningRecord)]
    defined = {
        (event.task, event.fingerprint, event.threads): event for event in events[: -len(records)]
    }
    assert records
    for record in records:
        definition = defined[record.task, record.fingerprint, record.threads]
        target = read_target(json.loads(definition.target))
        assert target == default.settings.target
        space = target.backend.space(parse_ir(definition.program), target, definition.threads)
        assert space.rule == record.made_by
        assert space.contains(record.knobs)
        if record.task in tuned.choices:
            rows = tuned.choices[record.task].space.candidates()
            assert (space.candidates() == rows).all()


def test_a_schedule_that_wins_alone_and_loses_in_the_model_is_not_taken():
    graph, default = prepared([(16, 5)])
    usual = dict(convolution(default).decisions)
    alone = Measurer(lambda d: 1000 if d == usual else 500)
    in_model = FakeComparison(lambda tile, d: 1000 if d == usual else 1200)
    records = MemoryRecords()
    tuned, events = run(graph, default, in_model, records, alone, trials=16)
    assert tuned.is_same_code(default)
    assert events[-1] == VariantsCompared("schedules", 4, 0)
    kept = convolution(tuned)
    assert (kept.source, kept.measured_s) == ("tuned", 1e-6)
    # Nor does a later compilation take it from the records, which say both.
    assert known_variant(graph, default, records).is_same_code(default)


def test_a_schedule_that_wins_in_the_model_is_taken_by_all_calls_and_by_later_compilations():
    graph, default = prepared([(16, 5), (16, 5)])
    usual = dict(convolution(default).decisions)
    times = {}
    order = itertools.count(900)

    def faster(decisions):
        return times.setdefault(tuple(sorted(decisions.items())), next(order))

    in_model = FakeComparison(lambda tile, d: 1000 if d == usual else 2000 - faster(d))
    records = MemoryRecords()
    tuned, _ = run(graph, default, in_model, records, Measurer(faster), trials=16)
    won = convolution(tuned)
    measured = [r for r in records if r.context is Context.MODEL and r.task == won.task.key]
    assert len(measured) == 4  # The default and three others ran.
    best = min(measured, key=lambda r: r.seconds)
    assert won.decisions == (best.knobs if best.seconds < 0.99e-6 else usual)
    from_records = convolution(known_variant(graph, default, records))
    assert from_records.decisions == best.knobs


def test_records_of_another_version_of_the_rules_leave_the_defaults():
    graph, default = prepared([DEEP])
    records = MemoryRecords()
    times = {0: 900, 2: 600, 3: 500, 4: 400}
    usual = dict(convolution(default).decisions)
    in_model = FakeComparison(lambda tile, d: times[tile] + 100 * (d == usual))
    run(graph, default, in_model, records, Measurer(), trials=16)
    assert not known_variant(graph, default, records).is_same_code(default)
    for step in (-1, 1):
        others = MemoryRecords(dataclasses.replace(r, version=r.version + step) for r in records)
        assert known_variant(graph, default, others).is_same_code(default)


def test_a_device_that_cannot_compare_leaves_what_is_without_measuring():
    class Broken(FakeComparison):
        def by_call(self, variants, seconds):
            raise ComparisonError("no device")

    graph, default = prepared([DEEP])
    usual = convolution(default).decisions
    alone = Measurer(lambda d: 1000 if d == usual else 500)
    tuned, events = run(graph, default, Broken(None), measurer=alone)
    assert tuned.is_same_code(default)
    assert [type(event) for event in events if not hasattr(event, "trials")] == [Warned, Warned]


def test_the_same_code_is_the_same_whatever_chose_it():
    _, default = prepared([DEEP])
    choices = {
        key: dataclasses.replace(choice, source="tuned", measured_s=1.0)
        for key, choice in default.choices.items()
    }
    assert default.is_same_code(dataclasses.replace(default, choices=choices))
    other = {
        key: dataclasses.replace(choice, decisions={**choice.decisions, "parallel": 7})
        for key, choice in default.choices.items()
    }
    assert not default.is_same_code(dataclasses.replace(default, choices=other))


def climbing(tile, decisions):
    """Schedules are the faster the larger their `unroll`; copies of images are all alike."""
    return 1000 - 100 * decisions["unroll"]


def climb(variant, graph, measurer, records, seconds=600.0, comparison=None):
    events, comparison = [], comparison or FakeComparison(climbing)
    search = CoordinateDescent(graph, comparison, measurer, records, 0, Clock(seconds))
    return search.run([variant], events.append), events


def low(variant):
    """The variant with the slowest schedule of its convolution."""
    slow = convolution(variant)
    decisions = {**slow.decisions, "unroll": 1}
    assert slow.space.contains(decisions)
    choices = {**variant.choices, slow.task.key: dataclasses.replace(slow, decisions=decisions)}
    return dataclasses.replace(variant, choices=choices)


def test_the_search_goes_on_in_the_model_and_tells_the_records():
    graph, default = prepared([(64, 12)], max_layer_error=0)
    start, records = low(default), MemoryRecords()
    actual, events = climb(start, graph, Measurer(), records)
    won = convolution(actual)
    assert won.decisions["unroll"] > 1
    assert {event.what for event in events if isinstance(event, VariantsCompared)} == {"schedules"}
    from_records = convolution(known_variant(graph, start, records))
    assert from_records.decisions == won.decisions
    kept = [record.decisions for record in records if record.context is Context.SCREENED]
    trials = [event.trials for event in events if isinstance(event, TrialsMeasured)]
    assert len(kept) > trials[-1] > 0  # The kept records include the baselines of the trials.


def test_the_search_ends_when_every_kernel_has_rested():
    """Schedules that are all alike: after some rounds nothing is tried any more."""

    graph, default = prepared([(64, 12)], max_layer_error=0)
    records, alike = MemoryRecords(), FakeComparison(lambda tile, decisions: 1000)
    actual, events = climb(default, graph, Measurer(), records, comparison=alike)
    assert actual.is_same_code(default)
    assert 1 < len(events) < 10
    assert {type(event) for event in events} == {TrialsMeasured}  # Nothing ran once more.
    # What was tried is kept, and decides nothing.
    assert {record.context for record in records} == {Context.SCREENED}
    assert known_variant(graph, default, records).is_same_code(default)


def test_what_wins_in_the_model_but_is_wrong_is_not_taken():
    class Wrong(Measurer):
        def measure(self, task, space, batch, called_off=None):
            return [CandidateResult(Status.WRONG, max_error=1.0) for _ in batch]

    graph, default = prepared([(64, 12)], max_layer_error=0)
    start, records = low(default), MemoryRecords()
    actual, _ = climb(start, graph, Wrong(), records)
    assert actual.is_same_code(start)
    assert {record.context for record in records} == {Context.SCREENED}


class Crashing(FakeComparison):
    """A model with a convolution of these schedules does not run."""

    def __init__(self, is_bad):
        super().__init__(climbing)
        self.is_bad = is_bad
        self.failed = set()

    def by_call(self, variants, seconds):
        outcomes = super().by_call(variants, seconds)
        for number, variant in enumerate(variants):
            all_decisions = [choice.decisions for choice in variant.choices.values()]
            if failing := {
                pairs(decisions) for decisions in all_decisions if self.is_bad(decisions)
            }:
                outcomes[number] = FailedVariant("the model crashed: signal 11")
                self.failed |= failing
        return outcomes


def bad(decisions):
    return decisions.get("unroll") == 2


def test_a_candidate_that_crashes_costs_itself_alone():
    class Alone(Measurer):
        def measure(self, task, space, batch, called_off=None):
            crashed = CandidateResult(Status.CRASHED, message="signal 11")
            results = super().measure(task, space, batch)
            return [crashed if bad(d) else r for d, r in zip(batch, results, strict=True)]

    graph, default = prepared([(64, 12)], max_layer_error=0)
    start, records, comparison = low(default), MemoryRecords(), Crashing(bad)
    actual, events = climb(start, graph, Alone(), records, comparison=comparison)
    assert comparison.failed
    assert convolution(actual).decisions["unroll"] > 2
    assert not [event for event in events if isinstance(event, Warned)]
    crashed = [record for record in records if record.status is Status.CRASHED]
    assert crashed
    assert all(bad(record.knobs) for record in crashed)
    assert {record.decisions for record in crashed} == comparison.failed
    # Nor does another search try these.
    again = Crashing(bad)
    climb(start, graph, Alone(), records, comparison=again)
    assert not again.failed & comparison.failed


def test_candidates_that_fail_in_the_model_alone_are_let_go():
    graph, default = prepared([(64, 12)], max_layer_error=0)
    start, comparison = low(default), Crashing(bad)
    actual, events = climb(start, graph, Measurer(), MemoryRecords(), comparison=comparison)
    assert convolution(actual).decisions["unroll"] > 2
    assert not [event for event in events if isinstance(event, Warned)]


def test_a_model_that_never_runs_ends_the_search_with_a_warning():
    class Broken(FakeComparison):
        def contests(self, contests, seconds):
            raise ComparisonError("the model crashed: signal 11")

    graph, default = prepared([(64, 12)], max_layer_error=0)
    start = low(default)
    actual, events = climb(start, graph, Measurer(), MemoryRecords(), comparison=Broken(climbing))
    assert actual.is_same_code(start)
    (warned,) = [event for event in events if isinstance(event, Warned)]
    assert "signal 11" in warned.message


def test_several_devices_share_the_candidates_of_a_kernel():
    class Farm(FakeComparison):
        """Devices of which each is slower than the one before."""

        devices = 3

        def contests(self, contests, seconds):
            self.several.append(contests)
            nanoseconds = self.nanoseconds
            outcomes = []
            for number, variants in enumerate(contests):
                self.nanoseconds = lambda t, d, n=number: round(nanoseconds(t, d) * (1 + 0.3 * n))
                outcomes.append(self.by_call(variants, seconds))
            self.nanoseconds = nanoseconds
            return outcomes

    graph, default = prepared([(64, 12)], max_layer_error=0)
    start, records, comparison = low(default), MemoryRecords(), Farm(climbing)
    comparison.several = []
    actual, _ = climb(start, graph, Measurer(), records, comparison=comparison)
    alone, _ = climb(start, graph, Measurer(), MemoryRecords())
    assert convolution(actual).decisions["unroll"] == convolution(alone).decisions["unroll"]
    first = comparison.several[0]
    assert len(first) == 3
    tried = [{pairs(convolution(v).decisions) for v in variants} for variants in first]
    shared = set.intersection(*tried)
    assert shared == {pairs(convolution(start).decisions)}
    # No other schedule is measured twice.
    assert len(set.union(*tried)) == sum(map(len, tried)) - 2
    # Records hold a slower device's times as the first device would have measured them.
    seconds = {r.decisions: r.seconds for r in records if dict(r.decisions).get("unroll") == 1}
    assert seconds
    assert [*seconds.values()] == pytest.approx([9e-7] * len(seconds))


def test_what_won_by_luck_must_win_again_beside_what_was_there():
    class Fickle(FakeComparison):
        """A comparison whose fast variants are slow in the long run."""

        def by_call(self, variants, seconds):
            is_long = seconds > 10
            self.nanoseconds = (lambda t, d: 3000 - climbing(t, d)) if is_long else climbing
            return super().by_call(variants, seconds)

    graph, default = prepared([(64, 12)], max_layer_error=0)
    start, records, comparison = low(default), MemoryRecords(), Fickle(climbing)
    actual, _ = climb(start, graph, Measurer(), records, comparison=comparison)
    assert len(comparison.compared) > 2
    assert actual.is_same_code(start)
    # Nor does a later compilation take what was lucky.
    assert convolution(known_variant(graph, default, records)).decisions["unroll"] == 1


@pytest.mark.parametrize("faults", [2, 3])
def test_a_device_that_drifts_is_asked_again(faults):
    class Drifting(Measurer):
        def measure(self, task, space, batch, called_off=None):
            self.measured += 1
            if self.measured <= faults:
                raise DeviceFaultError(DeviceFault.DRIFTED, "by +42%")
            return super().measure(task, space, batch)

    graph, default = prepared([(64, 12)], max_layer_error=0)
    start = low(default)
    best = convolution(climb(start, graph, Measurer(), MemoryRecords())[0]).decisions
    (actual, _) = climb(start, graph, Drifting(), MemoryRecords())
    assert convolution(actual).decisions["unroll"] == best["unroll"] > 1


def test_without_time_the_search_in_the_model_does_not_begin():
    graph, default = prepared([(64, 12)], max_layer_error=0)
    actual, events = climb(low(default), graph, Measurer(), MemoryRecords(), seconds=1.0)
    assert actual.is_same_code(low(default))
    assert events == []


class Ticking(FakeComparison):
    """A comparison that takes its declared time, by a clock that only it moves."""

    def __init__(self, clock, nanoseconds, variant_s):
        super().__init__(nanoseconds, variant_s)
        self.clock = clock
        self.known = set()

    def compile(self, choices):
        kernels = {(choice.task.key, tuple(sorted(choice.decisions.items()))) for choice in choices}
        self.clock.pass_by(self.compile_s * len(kernels - self.known))
        self.known |= kernels

    def by_call(self, variants, seconds):
        self.compile(choice for variant in variants for choice in variant.choices.values())
        self.clock.pass_by(sum(self.cost(variant, seconds) for variant in variants))
        return super().by_call(variants, seconds)


class Hands(Clock):
    """A clock that is moved by hand."""

    def __init__(self, budget_s):
        super().__init__(budget_s)
        self.passed = 0.0

    def pass_by(self, seconds):
        self.passed += seconds

    @property
    def left(self):
        return self.budget_s - self.passed


@pytest.mark.parametrize(("variant_s", "budget_s"), [(0.05, 12.0), (1.5, 20.0), (3.0, 75.0)])
def test_a_budget_is_kept_whatever_a_run_of_the_model_takes(variant_s, budget_s):
    graph, default = prepared([DEEP, (16, 5)])
    clock, order = Hands(budget_s), itertools.count()
    comparison = Ticking(clock, lambda tile, decisions: 10**6 - next(order), variant_s)
    events = []
    tune_model(
        graph,
        default,
        comparison,
        Measurer(),
        MemoryRecords(),
        CompileOptions(budget_s=budget_s),
        clock,
        events.append,
    )
    race_s = 2 * max(1.0, variant_s)
    assert clock.passed + race_s <= budget_s
    assert clock.passed > 3 * variant_s  # At least one round ran.
    assert comparison.compared


def test_candidates_that_do_not_compile_do_not_run():
    class Refusing(FakeComparison):
        def is_compiled(self, choice):
            return choice.decisions.get("unroll", 0) < 4

    graph, default = prepared([(64, 12)], max_layer_error=0)
    start, refusing = low(default), Refusing(climbing)
    actual, _ = climb(start, graph, Measurer(), MemoryRecords(), comparison=refusing)
    assert convolution(actual).decisions["unroll"] == 2


def test_calls_take_their_kernels_finalists_in_turns():
    """Three schedules for two calls, in rivals of which only one has this kernel."""
    graph, default = prepared([DEEP, DEEP])
    (key,) = {layer.key for layer in layers(graph, default.settings)}
    settings = dataclasses.replace(default.settings, algorithms={key: Algorithm.WINOGRAD2})
    rival = make_variant(graph, settings, default)
    both = {**default.choices, **rival.choices}
    finalists = {key: [dict(choice.decisions)] for key, choice in both.items()}
    actual = convolution(rival)
    rows = actual.space.candidates()[:3]
    finalists[actual.task.key] = [actual.space.decisions(row) for row in rows]
    finals = InModelSelection(graph, [default, rival], finalists, MemoryRecords(), 0)
    contestants = finals._contestants(finalists, 3)
    assert len(contestants) == 6
    ran = [
        choice.decisions
        for contestant in contestants
        for choice in contestant.choices.values()
        if choice.task.key == actual.task.key
    ]
    assert sorted(map(str, ran)) == sorted(map(str, 2 * finalists[actual.task.key]))
    assert all(
        set(contestant.choices) == {call.task for call in contestant.calls}
        for contestant in contestants
    )


def test_what_a_kernel_cannot_take_goes_to_the_others():
    gains = {"large": 80.0, "small": 15.0, "tiny": 5.0, "resting": 0.0}
    most = dict.fromkeys(gains, 10)
    assert shared_out(10, gains, most) == {"large": 8, "small": 2, "tiny": 0, "resting": 0}
    assert shared_out(18, gains, most) == {"large": 10, "small": 6, "tiny": 2, "resting": 0}
    assert shared_out(99, gains, most) == {"large": 10, "small": 10, "tiny": 10, "resting": 0}
    assert shared_out(9, dict.fromkeys(gains, 0.0), most) == dict.fromkeys(gains, 0)
