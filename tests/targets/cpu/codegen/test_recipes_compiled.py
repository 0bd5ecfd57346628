"""Whole schedules, from naive nests to broadcast-FMA kernels, compiled and run."""

from __future__ import annotations

import re

import numpy as np
import pytest

from farrier.ir.run_loops import run_loops
from farrier.lower.loops import to_loops
from farrier.targets.cpu.codegen.compile import assembly
from farrier.targets.cpu.codegen.emit import emit_function
from tests.lowering import finalize
from tests.schedule.programs import conv_bias_relu, inputs_of
from tests.schedule.recipes import conv_tiles
from tests.schedule.test_recipes import CASES
from tests.targets.cpu.codegen.differential import run_compiled


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_a_recipe_computes_the_program(case, threads):
    program, recipe = CASES[case]
    inputs = inputs_of(program)
    expected = run_loops(to_loops(program), inputs)
    actual = run_compiled(finalize(recipe(to_loops(program)).function), inputs, threads)
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-4, atol=1e-4)


def test_the_hot_loop_of_a_convolution_spills_nothing(target):
    """The canary of the hidden flags: LLVM ignores a flag it does not know."""
    if target.vector_bits != 512:
        pytest.skip("tiles of this recipe are made for 32 registers of 512 bits")
    function = finalize(conv_tiles(to_loops(conv_bias_relu(64, 64, 56)), 2, 14).function)
    text = assembly(emit_function(function, target), target)
    assert len(re.findall(r"vfmadd\w*ps", text)) >= 28
    assert not re.findall(r"zmm\d+.*\(%rsp\)|\(%rsp\).*zmm\d+", text)
