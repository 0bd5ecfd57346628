"""Products of bf16 in tile registers: which programs the rule takes, what its schedules mean."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from farrier.ir.types import DType
from farrier.lower.finalize import finalize
from farrier.lower.loops import to_loops
from farrier.ops.verify import verify_function
from farrier.targets import host, parse_target
from farrier.targets.cpu.codegen.compile import assembly
from farrier.targets.cpu.codegen.emit import emit_function
from farrier.targets.cpu.rules import for_program
from farrier.targets.x86 import matrix_tile
from farrier.targets.x86.intrinsics import AMX_FEATURES
from tests.codegen.differential import run_compiled
from tests.intrinsics.written_out import written_out
from tests.schedule.programs import (
    assert_same_result,
    bf16_matmul,
    conv_bias_relu,
    inputs_of,
    plus,
    relu,
    run,
)

AMX = dataclasses.replace(
    parse_target("x86-64-v4"), features=tuple(sorted({*AMX_FEATURES, "avx512_bf16"}))
)
needs_amx = pytest.mark.skipif(
    not set(host().features) >= AMX_FEATURES, reason="this machine has no AMX"
)
SHAPES = [(8, 16, 32), (19, 16, 32), (8, 32, 32)]
SMALL = {"channels": 16, "filters": 16, "size": 2}
CONVOLUTIONS = {
    "3x3": SMALL,
    "steps of two": {**SMALL, "size": 3, "stride": 2, "halo_out": 1},
    "one tap": {"channels": 48, "filters": 32, "size": 4, "kernel": 1, "padding": 0},
    "steps of one tap": {**SMALL, "size": 7, "kernel": 1, "padding": 0, "stride": 2},
    "prime": {**SMALL, "size": 5, "kernel": 1, "padding": 0},
    "dilated": {**SMALL, "padding": 2, "dilation": 2},
    "planes": {**SMALL, "channels": 3, "size": 6, "kernel": 4, "stride": 2, "planar": True},
}


def twice(value):
    return plus(value, value)


def candidates(space, count=2):
    """Allowed decisions, spread over the space."""
    rows = space.candidates()
    step = max(len(rows) // count, 1)
    return [space.decisions(row) for row in rows[::-step][:count]]


@pytest.mark.parametrize(
    ("shape", "follow"), list(zip(SHAPES, [(), (twice,), (relu, twice)], strict=True))
)
def test_schedules_mean_the_product(shape, follow):
    program = bf16_matmul(*shape, *follow)
    space = matrix_tile.space(program, AMX, 2)
    for decisions in candidates(space):
        function = finalize(space.build(decisions))
        verify_function(function)
        assert_same_result(written_out(function), program)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_schedules_mean_the_convolution(name):
    program = conv_bias_relu(**CONVOLUTIONS[name], dtype=DType.BF16)
    space = matrix_tile.space(program, AMX, 2)
    (decisions,) = candidates(space, 1)
    function = finalize(space.build(decisions))
    verify_function(function)
    assert_same_result(written_out(function), program)


def test_totals_stay_in_tiles():
    """The loop over the reduction loads each operand tile once and moves no total."""
    program = bf16_matmul(64, 64, 128, relu)
    space = matrix_tile.space(program, AMX, 1)
    decisions = {"rows": 16, "high": 2, "wide": 2, "lines": 1, "order": 0, "prefetch": 0}
    text = assembly(emit_function(finalize(space.build(decisions)), AMX), AMX)
    loops = [part for part in re.split(r"^\.LBB", text, flags=re.MULTILINE) if "tdpbf16ps" in part]
    (loop,) = (part.partition("\tj")[0] for part in loops)
    counts = [loop.count(name) for name in ("tileloadd", "tdpbf16ps", "tilestored", "tilezero")]
    assert counts == [4, 4, 0, 0]


@pytest.mark.parametrize(
    "shape",
    [(1, 64, 64), (64, 24, 64), (64, 64, 38)],
    ids=["one row", "odd lanes", "odd depth"],
)
def test_other_extents_are_left_to_vectors(shape):
    program = bf16_matmul(*shape)
    assert matrix_tile.space(program, AMX, 1) is None
    assert for_program(program, AMX, 1).rule.name == "register_tile"


def test_other_targets_are_left_to_vectors():
    assert matrix_tile.space(bf16_matmul(64, 64, 64), parse_target("x86-64-v4"), 1) is None


@needs_amx
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "shape", [(64, 32, 96), (45, 96, 32), (128, 192, 256), (197, 32, 48), (2, 16, 4)]
)
def test_compiled(shape, threads):
    program = bf16_matmul(*shape, relu)
    inputs = inputs_of(program)
    expected = inputs["x"].astype(np.float64) @ inputs["w"].astype(np.float64)
    _check(program, inputs, np.maximum(expected, 0), threads)


@needs_amx
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_compiled_convolution(name):
    program = conv_bias_relu(**CONVOLUTIONS[name], dtype=DType.BF16)
    _check(program, inputs_of(program), run(to_loops(program), program)["y"], 2)


def _check(program, inputs, expected, threads):
    space = matrix_tile.space(program, host(), threads)
    for decisions in candidates(space):
        function = finalize(space.build(decisions))
        found = run_compiled(function, inputs, threads)["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
