"""The rule `parts`: sums of which each has several blocks."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.evaluate import evaluate
from farrier.ir.expr import Buffer, Reduce, ReduceOp
from farrier.ir.run_threads import run_threads
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.threads import launches
from farrier.ir.types import DType
from farrier.lower.lower_threads import lower_threads
from farrier.targets.gpu import parts, rules
from farrier.targets.gpu.device import LEAST, USUAL
from tests.schedule.programs import axes, inputs_of, load, matmul
from tests.targets.gpu.convolutions import convolution
from tests.targets.webgpu import webgpu


def row_ends(count, length, op=ReduceOp.SUM):
    """The sum, or the greatest, of each row."""
    x, y = Buffer("x", DType.F32, (count, length)), Buffer("y", DType.F32, (count,))
    stage = Stage(y, axes(i=count), Reduce(op, axes(k=length), load(x, "i", "k")))
    return TensorProgram("ends", (x,), (stage,), (y,))


PROGRAMS = {
    "tall product": matmul(5, 7, 1024),
    "one result": matmul(1, 1, 640),
    "convolution": convolution(32, 8, 7, 5, 3, 1),
    "sum of a row": row_ends(1, 8192, ReduceOp.SUM),
    "greatest of rows": row_ends(3, 6000, ReduceOp.MAX),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_launches_compute_a_long_sum(name):
    program = PROGRAMS[name]
    inputs = inputs_of(program)
    (expected,) = evaluate(program, inputs).values()
    space = parts.space(program, LEAST, USUAL)
    candidates = space.candidates()
    for decisions in space.default(), space.decisions(candidates[0]):
        function = space.schedule(decisions).function
        assert len(launches(function)) == 2, decisions
        kernel = lower_threads(function)
        results = [run_threads(kernel, inputs)]
        if decisions == space.default():  # The driver takes long to compile some kernels.
            results.append(webgpu.run(kernel, inputs))
        for result in results:
            (array,) = result.values()
            np.testing.assert_allclose(array, expected, 1e-4, 1e-4, err_msg=str(decisions))


def test_the_model_splits_sums_of_few_results_alone():
    assert rules.space(row_ends(1, 1 << 22, ReduceOp.SUM), LEAST).rule == parts.RULE
    assert rules.space(matmul(16, 16, 1 << 16), LEAST).rule == parts.RULE
    for program in matmul(512, 512, 512), row_ends(512, 4096, ReduceOp.SUM):
        assert rules.space(program, LEAST).rule != parts.RULE
