"""Loops that do little hold several steps in an iteration, and compute what they did."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.loop import For
from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.statements import walk_stmts
from farrier.lower.lengthen_short_loops import lengthen_short_loops
from farrier.targets import parse_target
from farrier.targets.cpu.codegen import assembly, emit_function
from tests.intrinsics.written_out import written_out
from tests.lowering import finalize
from tests.targets.cpu.rules.golden_kernels import PATHS, GoldenKernel

OF_TILES = ("attention_tile", "matrix_tile")
OF_ALL_CPUS = [path for path in PATHS if path.stem not in OF_TILES]
ZEROS = """
@function
def zeros(a: f32[{extent}, 4]):
    for i in serial({extent}):
        for lane in vectorized(4):
            a[i, lane] = 0.0
"""
SUM = """
@function
def pool(x: f32[3, 96, 4], y: f32[4]):
    with alloc(f32[4] in register) as s:
        for start in vectorized(4):
            s[start] = 0.0
        for i in serial(3):
            for j in serial(96):
                for lane in vectorized(4):
                    s[lane] = s[lane] + x[i, j, lane]
        for out in vectorized(4):
            y[out] = s[out]
"""


def steps(function):
    """The extents of the loops over steps."""
    lengthened = lengthen_short_loops(function)
    actual = [stmt for stmt in walk_stmts(lengthened.body) if isinstance(stmt, For)]
    return [loop.extent for loop in actual if loop.var.endswith("_step")]


@pytest.mark.parametrize(("extent", "wanted"), [(7, [7]), (10, [5]), (26, [2]), (13, [])])
def test_steps_divide_the_extent(extent, wanted):
    assert steps(parse_ir(ZEROS.format(extent=extent))) == wanted


def test_an_iteration_of_many_accesses_stays_as_it_is():
    tile = ZEROS.format(extent=96).replace("vectorized(4)", "unrolled(32)").replace(", 4]", ", 32]")
    assert steps(parse_ir(tile)) == []


@pytest.mark.parametrize("path", OF_ALL_CPUS, ids=lambda path: path.stem)
def test_kernels_compute_the_same(path):
    kernel = GoldenKernel.of(path)
    shapes = {param.name: param.type.static_shape for param in kernel.function.params}
    inputs = {name: array.reshape(shapes[name]) for name, array in kernel.inputs().items()}
    function = written_out(kernel.function)
    before, after = (
        run_loops(version, inputs) for version in (function, lengthen_short_loops(function))
    )
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)


def test_code_for_arm_goes_round_once_in_eight_steps():
    pool = parse_ir(SUM)
    texts = {
        name: assembly(emit_function(finalize(pool, target), target), target)
        for name, target in ((n, parse_target(n)) for n in ("rpi5", "x86-64-v2"))
    }
    assert texts["rpi5"].count("fadd") == 8
    assert texts["x86-64-v2"].count("addps") == 1
