"""The rule `nest`: threads for loops that nobody declares, and the reason where there are none."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.loop import Function, LoopKind
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.schedule.nest import loops
from farrier.space import Space
from farrier.space.machine import Machine
from farrier.targets.cpu.rules import nest
from tests.lowering import final_loops
from tests.targets.cpu.rules.space_programs import TARGET

INDEPENDENT = """
@function
def double(x: f32[4096, 512], y: f32[4096, 512]):
    for i in serial(4096):
        for j in serial(512):
            y[i, j] = x[i, j] + x[i, j]
"""
ALONE = """
@function
def double(x: f32[4096, 512], y: f32[4096, 512]):
    for p in independent(1):
        for i in serial(4096):
            for j in serial(512):
                y[p + i, j] = x[i, j] + x[i, j]
"""
INDIRECT = """
@function
def scatter(p: i64[1048576], x: f32[1048576], y: f32[1048576]):
    for i in serial(1048576):
        y[p[i]] = x[i]
"""
RUNNING = """
@function
def running(x: f32[4096, 512], y: f32[4097, 512]):
    for i in serial(4096):
        for j in serial(512):
            y[i + 1, j] = x[i, j] + y[i, j]
"""
VECTORS = """
@function
def scatter(p: i64[65536], x: f32[65536, 64], y: f32[65536, 64]):
    for i in serial(65536):
        for j in serial(64):
            y[p[i], j] = x[i, j]
"""
SHORT = """
@function
def gather(p: i64[64], x: f32[64], y: f32[64]):
    for i in serial(64):
        y[i] = x[p[i]]
"""


def space(text: str, threads: int = 2) -> Space:
    function = parse_ir(text)
    assert isinstance(function, Function)
    return nest.space(function, TARGET, threads)


def kinds(text: str, threads: int = 2) -> dict[str, LoopKind]:
    """The kind of each loop in the default schedule."""
    schedules = space(text, threads)
    function = final_loops(schedules, schedules.default())
    return {loop.var: loop.kind for loop in loops(function.body)}


@pytest.mark.parametrize("text", [INDEPENDENT, ALONE])
def test_iterations_that_are_proven_independent_are_shared(text):
    assert kinds(text)["i"] is LoopKind.PARALLEL
    assert space(text).slow_reason is None
    assert "i" not in kinds(text, threads=1) or kinds(text, threads=1)["i"] is LoopKind.SERIAL


def test_of_two_loops_the_inner_is_shared_if_it_is_long_enough():
    wide = RUNNING.replace("512", "2097152").replace("4096", "4").replace("4097", "5")
    assert kinds(wide)["j_o"] is LoopKind.PARALLEL
    assert kinds(wide)["j_i_i"] is LoopKind.VECTORIZED
    assert LoopKind.PARALLEL not in kinds(RUNNING).values()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (INDIRECT, "iterations of i conflict: one writes y, another writes y"),
        (RUNNING.replace("512", "1"), "iterations of i conflict"),
        (SHORT, "i is too short to be shared"),
    ],
)
def test_what_stays_serial_and_scalar_has_a_reason(text, reason):
    assert reason in space(text).slow_reason
    assert all(kind is not LoopKind.PARALLEL for kind in kinds(text).values())


def test_vectors_within_a_serial_loop_are_no_scalar_code():
    assert space(VECTORS).slow_reason is None


CHOICES = """
@function(width=choice(1, 8, 2), parts=choice(1, 64, 2))
def sums(x: f32[60, 64], y: f32[60]):
    for part in independent(parts):
        for block in serial(-((-(-((-60) // width))) // parts)):
            with alloc(i64[()] in register) as row:
                row[()] = (part * (-((-(-((-60) // width))) // parts)) + block) * width
                with alloc(f32[width, 16] in register) as sum:
                    for u in unrolled(width):
                        for lane in serial(16):
                            sum[u, lane] = 0.0
                    for k in serial(4):
                        for v in unrolled(width):
                            for lane_1 in serial(16):
                                sum[v, lane_1] = sum[v, lane_1] + x[\
                                    min(row[()] + v, 59), k * 16 + lane_1]
                    for w in unrolled(width):
                        if row[()] + w < 60:
                            y[row[()] + w] = sum[w, 0]
"""


def test_choices_fill_the_registers_evenly_and_give_every_thread_a_part():
    function = parse_ir(CHOICES)
    assert parse_ir(print_ir(function)) == function
    choices = nest.Choices(function, TARGET.machine(4))
    assert choices.shared == ("parts",)
    assert choices.parts(4) == {"parts": 4}
    groups = (TARGET.registers - 8) * TARGET.lanes // 16
    most = min(groups, 8)
    fewest = -(-60 // most)
    assert choices.held == {"width": min(w for w in range(1, most + 1) if -(-60 // w) == fewest)}


def test_a_nest_computes_the_same_with_all_its_choices(monkeypatch):
    monkeypatch.setattr(Machine, "fork_join", 0.0)  # Threads pay for so little work, too.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 64), np.float32)
    schedules = space(CHOICES, threads=2)
    expected = run_loops(parse_ir(CHOICES), {"x": x})["y"]
    decided = [schedules.decisions(row) for row in schedules.candidates()]
    assert {d["parallel"] for d in decided} == {0, 1}
    assert schedules.default()["width"] == max(d["width"] for d in decided) > 1
    for decisions in decided:
        scheduled = schedules.schedule(decisions).function
        assert not scheduled.choices
        np.testing.assert_array_equal(run_loops(scheduled, {"x": x})["y"], expected)


TABLE = {
    "neighbours become vectors": ("y[i, j] = x[i, j]", LoopKind.VECTORIZED),
    "neighbours at a row that was loaded": ("y[i, j] = x[p[i], j]", LoopKind.VECTORIZED),
    "a sum of integers is the same in any order": ("c[i] = c[i] + p[j]", LoopKind.VECTORIZED),
    "a sum of floats is not": ("y[i, 0] = y[i, 0] + x[i, j]", LoopKind.SERIAL),
    "the largest of floats is": ("y[i, 0] = max(y[i, 0], x[i, j])", LoopKind.VECTORIZED),
    "a gather": ("y[i, j] = x[i, p[j]]", LoopKind.SERIAL),
    "a column": ("y[j, i] = x[i, j]", LoopKind.SERIAL),
    "the order backwards": ("y[i, j] = x[i, 63 - j]", LoopKind.SERIAL),
    "a condition on neighbours": (
        "if 0.0 < x[i, j]:\n            y[i, j] = 1.0",
        LoopKind.VECTORIZED,
    ),
}


@pytest.mark.parametrize("why", TABLE)
def test_innermost_loops_over_neighbours_become_vectors(why):
    statement, kind = TABLE[why]
    head = "@function\ndef nest(p: i64[64], x: f32[64, 64], y: f32[64, 64], c: i64[64]):\n"
    text = (
        f"{head}    for i in serial(64):\n        for j in serial(64):\n            {statement}\n"
    )
    text = text.replace("\n            y[i, j] = 1.0", "\n                y[i, j] = 1.0")
    chosen = kinds(text, threads=1)
    assert chosen.get("j", chosen.get("j_i")) is kind


def test_a_loop_that_fills_no_vector_stays_scalar():
    text = INDEPENDENT.replace("512", str(TARGET.lanes - 1))
    assert kinds(text, threads=1)["j"] is LoopKind.SERIAL


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_loop_of_open_length_has_vectors_of_a_fixed_one(beyond):
    head = f"@function(n=dim(1, {TARGET.lanes + beyond}, 2))\ndef copy(x: f32[n], y: f32[n]):\n"
    schedules = space(f"{head}    for i in serial(n):\n        y[i] = x[i]\n", threads=1)
    function = final_loops(schedules, schedules.default())
    vectors = [loop for loop in loops(function.body) if loop.kind is LoopKind.VECTORIZED]
    assert vectors
    assert {loop.extent for loop in vectors} == {TARGET.lanes}


def test_loops_are_joined_while_there_are_too_few_iterations_for_all_threads():
    few = INDEPENDENT.replace("i in serial(4096)", "i in serial(4)")
    deep = few.replace("512", "4096").replace(
        "for j in serial(4096):\n            y[i, j] = x[i, j] + x[i, j]",
        "for j in serial(4096):\n            for k in serial(3):\n"
        "                y[i, j] = x[i, j] + x[i, j]",
    )
    assert kinds(deep)["i_j"] is LoopKind.PARALLEL
    assert kinds(deep.replace("serial(4)", "serial(64)").replace("[4096, ", "[64, "))["i"] is (
        LoopKind.PARALLEL
    )
