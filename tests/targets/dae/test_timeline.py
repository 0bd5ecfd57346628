"""The timeline of kernels, and the trace of a model."""

from __future__ import annotations

import itertools
import json

import pytest

import farrier
from farrier.cli.profile import profile
from farrier.errors import UsageError
from farrier.targets.dae.instructions import Kind
from farrier.targets.dae.machines import VTA
from farrier.targets.dae.program import Program
from farrier.targets.dae.simulator.timed import simulate
from farrier.targets.dae.simulator.timeline import LANES, STALL, trace
from tests.targets.dae import models


@pytest.fixture(scope="module")
def artifact():
    return farrier.compile(models.convolution(64, 32, (14, 14), adds=True), target="dae:vta")


def test_a_module_works_or_waits_from_its_first_instruction_to_its_last(artifact):
    (code,) = (each for each in artifact.code.objects if each.kind == "dae")
    program = Program.of_text(code.content.decode())
    timing = simulate(program.instructions, program.accelerator)
    events = trace(program)
    works = [each for each in events if each["cat"] != STALL]
    assert len(works) == len(program.instructions)
    assert {each["name"] for each in works} >= {"input", "weight", "gemm", "quantize", "store"}
    causes = {each["name"] for each in events if each["cat"] == STALL}
    assert {"waits for load", "waits for compute"} <= causes
    module = {"load": 0, "gemm": 1, "alu": 1, "store": 2}
    for number in range(3):
        own = [each for each in events if module[LANES[each["tid"]]] == number]
        assert own[0]["ts"] == 0
        for before, behind in itertools.pairwise(own):
            end = before["args"]["begin"] + before["args"]["cycles"]
            assert behind["args"]["begin"] == end
    last = max(each["args"]["begin"] + each["args"]["cycles"] for each in events)
    assert last == timing.cycles
    assert sum(kind.kind is Kind.LOAD for kind in program.instructions) == sum(
        each["cat"] == "load" for each in events
    )


def test_the_trace_of_a_model_has_its_calls_and_queues(artifact, tmp_path):
    artifact.save(tmp_path / "m.farrier")
    profile(tmp_path / "m.farrier", seconds=0.0, timeline=tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert names == {"calls", *LANES}
    calls = [each for each in events if each.get("cat") == "call"]
    assert len(calls) == len(artifact.calls)
    for before, behind in itertools.pairwise(calls):
        assert behind["ts"] == pytest.approx(before["ts"] + before["dur"])
    (device,) = (each for each in calls if each["name"].startswith("conv"))
    inside = [each for each in events if each.get("pid") == device["pid"] and "dur" in each]
    ends = [each["ts"] + each["dur"] for each in inside]
    assert max(ends) == pytest.approx(device["ts"] + device["dur"], abs=0.01)
    cycles = max(each["args"].get("begin", 0) + each["args"].get("cycles", 0) for each in inside)
    assert device["dur"] * VTA.mhz == pytest.approx(cycles, abs=1)


def test_a_timeline_that_cannot_be_written_is_named(artifact, tmp_path):
    artifact.save(tmp_path / "m.farrier")
    with pytest.raises(UsageError, match=r"cannot write the timeline .*: No such file"):
        profile(tmp_path / "m.farrier", seconds=0.0, timeline=tmp_path / "none" / "t.json")
