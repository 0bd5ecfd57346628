"""Sketches of random programs compute what the interpreter does."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from space_programs import TARGET

from farrier.ir.evaluate import evaluate
from farrier.ir.run_loops import run_loops
from farrier.ir.verify_kernel import verify_function
from farrier.targets.cpu.rules import sketch
from tests.space.random_programs import programs

EACH = 5  # The candidates that are run of each program, the default among them.


@settings(max_examples=40)
@given(programs(), st.integers(0, 2**32 - 1))
def test_sketches_of_random_programs_equal_the_interpreter(program, seed):
    check_program(program, seed)


def small_integers(program, seed):
    """Inputs whose sums are exact in any order, as nearly all are."""
    rng = np.random.default_rng(seed)
    return {
        buffer.name: rng.integers(0 if buffer.dtype.name == "U8" else -2, 3, buffer.shape).astype(
            buffer.dtype.numpy
        )
        for buffer in program.inputs
    }


def check_program(program, seed):
    inputs = small_integers(program, seed)
    expected = evaluate(program, inputs)
    space = sketch.space(program, TARGET, 2)
    candidates = space.candidates()
    picked = np.random.default_rng(seed).permutation(len(candidates))[: EACH - 1]
    chosen = [space.default(), *map(space.decisions, candidates[picked])]
    for decisions in chosen:
        function = space.build(decisions)
        verify_function(function)
        for name, array in run_loops(function, inputs).items():
            np.testing.assert_allclose(
                array, expected[name], rtol=1e-5, atol=0, err_msg=f"{name} of {decisions}"
            )
