"""The rule `nest`: threads for loops that nobody declares, and the reason where there are none."""

from __future__ import annotations

import pytest
from space_programs import TARGET

from farrier.ir.loop import Function, LoopKind
from farrier.ir.parser import parse_ir
from farrier.schedule.nest import loops
from farrier.space import Space
from farrier.targets.cpu.rules import nest
from tests.lowering import final_loops

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
