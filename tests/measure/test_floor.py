"""The floor of a measurement: what answers less was not measured, and nothing that ran is below."""

from __future__ import annotations

import pytest

from farrier.lower.program import to_program
from farrier.measure import BatchBuilder
from farrier_device.measurement import (
    CandidateResult,
    MeasureResult,
    Status,
    TimingPolicy,
    implausible,
    impossible,
)
from tests.measure.conftest import conv_task


def test_what_this_machine_measures_is_above_the_floor(subject, device):
    builder = BatchBuilder(subject.task, subject.target, device.blobs, TimingPolicy(threads=2))
    batch = builder.build(subject.space, [subject.space.default()] * 2)
    floors = batch.request.floors_ns
    assert len(floors) == 2
    assert floors[0][0] > 0
    result = device.runner.measure(batch.request, device.blobs)
    assert implausible(result, floors) == impossible(result) == ""


def test_no_device_is_told_the_floor(subject, device):
    builder = BatchBuilder(subject.task, subject.target, device.blobs)
    request = builder.build(subject.space, [subject.space.default()]).request
    assert request.for_device().floors_ns == ()


@pytest.mark.parametrize("threads", [1, 2])
def test_the_floor_is_below_the_peak_of_this_machine_s_figures(subject, threads):
    task = conv_task(channels=64, size=32, outputs=64)
    program = to_program(task.region, task.symbol, task.constant_inputs)
    peak = threads * subject.target.machine(threads).peak
    products = 64 * 64 * (3 * 32 - 2) ** 2  # Products of padding are left out.
    floor = subject.target.backend.floor_ns(program, subject.target, threads)
    assert 0.1 < floor / (2 * products / peak * 1e9) < 0.7


OK = CandidateResult(Status.OK, (900, 1000, 1100), 1e-6, parts_ns=((400,) * 3, (600,) * 3))


@pytest.mark.parametrize(
    ("floors", "below"),
    [((), False), ((899,), False), ((901,), True), ((0, 399), False), ((0, 0, 601), True)],
)
def test_a_result_is_held_to_the_floor_of_the_whole_and_of_each_part(floors, below):
    crashed = CandidateResult(Status.CRASHED, message="SIGSEGV")
    result = MeasureResult((crashed, OK))
    assert ("no machine of its class" in implausible(result, ((10**9,), floors))) is below


@pytest.mark.parametrize(
    "result",
    [
        CandidateResult(Status.OK, (0, 0)),
        CandidateResult(Status.OK, (5, -1)),
        CandidateResult(Status.OK, (5,), -0.5),
        CandidateResult(Status.OK, (5,), float("nan")),
        CandidateResult(Status.OK, (5,), parts_ns=((-1,), (6,))),
    ],
)
def test_what_cannot_be_a_measurement_of_anything_is_told(result):
    assert impossible(MeasureResult((OK, result)))
    assert not impossible(MeasureResult((OK,)))
