"""Variants of a model side by side, on this machine."""

from __future__ import annotations

import dataclasses

import pytest
from onnx import TensorProto

from bench import models
from farrier import pipeline
from farrier.artifact.calls import CallRecord
from farrier.compile_pool import CompilePool
from farrier.compile_pool.compile import codegen, lower
from farrier.frontends.onnx.importer import import_model
from farrier.measure import LocalDevice
from farrier.model_tuning import compare
from farrier.model_tuning.compare import Comparison, ComparisonError, compared, mean_samples
from farrier.model_tuning.variant import make_variant
from farrier.options import CompileOptions
from farrier.passes import Settings, layers, prepare
from farrier.passes.algorithm import Algorithm
from farrier.progress import VariantsCompared, Verified, Warned
from farrier.records import MemoryRecords
from farrier.targets import parse_target
from farrier.targets.cpu.codegen.compile import compile_text
from farrier_device.measurement import DeviceFault, MeasureResult
from tests.control_flow.test_models import info, model, node

TARGET = parse_target("host")
INT64 = TensorProto.INT64
RANGE = [(name, []) for name in ("start", "limit", "step")]
MODEL = models.build("resnet18", size=64, classes=11)


@pytest.fixture(scope="module")
def variants():
    """A network as it is, and with the direct sum throughout."""
    settings = Settings(TARGET, 2)
    graph = prepare(import_model(MODEL, {}).graph, settings)
    direct = {layer.key: Algorithm.DIRECT for layer in layers(graph, settings)}
    other = dataclasses.replace(settings, algorithms=direct)
    return make_variant(graph, settings), make_variant(graph, other)


def test_variants_run_in_turns_call_by_call(variants):
    with LocalDevice() as device:
        comparison = Comparison(TARGET, 2, device.runner, device.blobs)
        by_call = comparison.by_call(variants, 0.05)
    for variant, calls in zip(variants, by_call, strict=True):
        assert [timing.call.task for timing in calls] == [call.task for call in variant.calls]
        assert {len(timing.samples_ns) for timing in calls} == {len(calls[0].samples_ns)}
        assert min(min(timing.samples_ns) for timing in calls) > 50
    plain, direct = (sum(min(c.samples_ns) for c in calls) for calls in by_call)
    assert plain < direct * 10  # Both are times of one network.
    assert direct < plain * 10


def test_sizes_that_values_decide_are_the_usual_ones():
    """Memory of zeros would leave a Range without a step, and NonZero without elements."""
    data = model(
        [
            node("Range", ["start", "limit", "step"], ["r"]),
            node("NonZero", ["r"], ["places"]),
            node("Reshape", ["places", "shape"], ["y"]),
        ],
        [info(name, INT64, shape) for name, shape in (*RANGE, ("shape", [2]))],
        [info("y", INT64)],
    )
    settings = Settings(TARGET, 1)
    variant = make_variant(prepare(import_model(data).graph, settings), settings)
    with LocalDevice() as device:
        comparison = Comparison(TARGET, 1, device.runner, device.blobs)
        (calls,) = comparison.by_call([variant], 0.01)
    assert len(calls) == len(variant.calls)


@pytest.mark.parametrize("run_s", [1e-4, 0.004, 0.02, 0.15, 1.0])
@pytest.mark.parametrize("seconds", [0.05, 0.5, 3.0])
def test_a_comparison_takes_the_time_it_is_given_or_the_fewest_runs(seconds, run_s):
    turns, policy = compare._schedule(seconds, run_s, 2)
    runs = turns * (1 + policy.warmup + policy.min_repeats)
    assert policy.min_repeats >= 1
    assert turns >= 3
    assert runs * run_s <= max(seconds, 6 * run_s) * (1 + 1e-9)
    long_s = turns * ((1 + policy.warmup) * run_s + policy.min_time_s)
    assert long_s <= max(seconds, 6 * run_s) * (1 + 1e-9)
    if policy.warmup:
        assert long_s == pytest.approx(seconds)


def test_calls_that_were_disturbed_at_different_times_have_fast_samples_together():
    assert mean_samples([(10, 90, 12), (80, 20, 24)]) == (15, 18, 85)
    assert mean_samples([(10, 90), (80, 20)], 4) == (8, 42)
    assert mean_samples([(30, 20, 10, 60, 40, 50), (7, 8)]) == (14, 29)


class Lost:
    """A device that is not there."""

    devices = 1

    def measure(self, request, blobs, cancelled=None):
        return MeasureResult(fault=DeviceFault.LOST, message="gone")

    def close(self):
        pass


def record(call):
    return CallRecord("kernel", call.task, call.origin, ())


class Timed:
    """A comparison in which the calls of the default, and of a variant, take what they are given:
    `samples(n)` of the call numbered n."""

    race_s = 1.0

    def __init__(self, *samples):
        self.samples = samples

    def by_call(self, both, seconds):
        return [
            [compare.CallTimes(record(call), of(n)) for n, call in enumerate(variant.calls[:9])]
            for variant, of in zip(both, self.samples, strict=True)
        ]


def test_a_race_is_decided_by_calls_that_nothing_disturbed(variants):
    """Each run of the variant, the faster one, has one call that takes a hundred times as long."""
    timed = Timed(lambda n: (10,) * 9, lambda n: (9,) * n + (900,) + (9,) * (8 - n))
    default, variant = variants
    race = compared(timed, default, default, variant, [].append)
    assert race.default_ns == (90,) * 9
    assert race.variant_ns == (972,) * 9
    assert race.is_won


@pytest.mark.parametrize(
    ("samples", "is_won"),
    [((9,) * 8, True), ((7,) * 4 + (11,) * 4, False), ((11,) * 4 + (7,) * 4, False)],
)
def test_a_race_is_won_in_both_halves_or_not_at_all(variants, samples, is_won):
    default, variant = variants
    timed = Timed(lambda n: (10,) * 8, lambda n: samples)
    assert compared(timed, default, default, variant, [].append).is_won is is_won


@pytest.mark.parametrize(("ns", "is_won"), [(7, True), (9, False)])
def test_what_is_in_use_is_to_be_beaten(variants, ns, is_won):
    """Whatever the default takes."""
    default, variant = variants
    in_use = dataclasses.replace(variant)
    timed = Timed(lambda n: (10,) * 8, lambda n: (8,) * 8, lambda n: (ns,) * 8)
    race = compared(timed, default, in_use, variant, [].append)
    assert race.is_won is is_won
    assert (race.default_ns, race.variant_ns) == ((90,) * 8, (9 * ns,) * 8)


def test_a_device_that_is_lost_is_a_warning(variants):
    events = []
    with LocalDevice() as device:
        comparison = Comparison(TARGET, 2, Lost(), device.blobs)
        with pytest.raises(ComparisonError, match="gone"):
            comparison.by_call(variants, 0.01)
        assert compared(comparison, variants[0], *variants, events.append) is None
    assert [type(event) for event in events] == [Warned]


TRAP = """
define i32 @{name}(ptr %args, ptr %pool) {{
  call void @llvm.trap()
  unreachable
}}
declare void @llvm.trap()
"""


class Trapping(CompilePool):
    """A pool that builds a crashing kernel for one space."""

    def __init__(self, space):
        super().__init__(0, TARGET, 2)
        self.space = space

    def build(self, build_inputs):
        kernels = {}
        for key, build_input in build_inputs.items():
            (compiled,) = codegen([lower(build_input, TARGET)], TARGET)
            if build_input.space is self.space:
                trap = compile_text(TRAP.format(name=build_input.name), TARGET)
                compiled = dataclasses.replace(compiled, content=trap)
            kernels[key] = compiled
        return kernels


def test_a_variant_that_crashes_fails_alone(variants):
    default, direct = variants
    others = {choice.task.key for choice in default.choices.values()}
    new = next(choice for choice in direct.choices.values() if choice.task.key not in others)
    events = []
    with LocalDevice() as device:
        runner, blobs = device.runner, device.blobs
        comparison = Comparison(TARGET, 2, runner, blobs, Trapping(new.space))
        ran, failed = comparison.by_call(variants, 0.05)
        assert [timing.call.task for timing in ran] == [call.task for call in default.calls]
        assert "crashed" in failed.reason
        assert "SIG" in failed.reason
        assert compared(comparison, variants[0], *variants, events.append) is None
        with pytest.raises(ComparisonError, match="crashed"):
            comparison.by_call([direct], 0.05)
    (warned,) = events
    assert "crashed" in warned.message


@pytest.mark.long
def test_a_model_is_tuned_in_its_algorithms_and_schedules_and_ships_the_faster():
    events, records = [], MemoryRecords()
    options = CompileOptions(threads=2, trials=60)
    artifact = pipeline.compile_model(MODEL, options, records=records, listener=events.append)
    assert {"algorithms", "schedules"} == {
        event.what for event in events if isinstance(event, VariantsCompared)
    }
    (verified,) = [event for event in events if isinstance(event, Verified)]
    assert verified.max_error < 1e-5
    report = artifact.report
    if report["tuned_ms"] is not None:  # It is None if nothing raced the defaults.
        assert report["tuned_is_faster"] == any(
            kernel.source == "tuned" for kernel in artifact.manifest.kernels
        )
    assert any(layer["measured_us"] for layer in report["algorithms"]["layers"])
    # The records alone give a model that is right, too.
    recompiled = pipeline.compile_model(MODEL, CompileOptions(threads=2), records=records)
    assert recompiled.report["verification"]["max_error"] < 1e-5
