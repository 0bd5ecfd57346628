"""The rule `transposes`: copies to another order, by tiles in workgroup memory."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.evaluate import evaluate
from farrier.ir.run_threads import run_threads
from farrier.ir.threads import launches
from farrier.ir.types import DType
from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.expressible import LIMITS
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.gpu import points, rules, transposes
from farrier.targets.gpu.device import LEAST, USUAL
from tests.schedule.programs import inputs_of
from tests.targets.cuda.running import run_ptx
from tests.targets.cuda.traffic import Traffic
from tests.targets.gpu.transposed import relayout
from tests.targets.webgpu import webgpu


@pytest.mark.parametrize("is_last", [True, False])
def test_one_launch_copies_by_tiles(is_last):
    program = relayout(2, 37, 5, 9, is_last=is_last)
    inputs = inputs_of(program)
    (expected,) = evaluate(program, inputs).values()
    space = transposes.space(program, LEAST, USUAL)
    for decisions in space.default(), *map(space.decisions, space.candidates()[:3]):
        function = space.schedule(decisions).function
        assert len(launches(function)) == 1
        kernel = lower_threads(function)
        for result in run_threads(kernel, inputs), webgpu.run(kernel, inputs):
            np.testing.assert_array_equal(*result.values(), expected)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.I8, DType.I64])
@pytest.mark.parametrize("is_last", [True, False])
def test_both_sides_are_accessed_in_whole_sectors(dtype, is_last):
    program = relayout(1, 64, 8, 16, dtype, is_last=is_last)
    inputs, traffic = inputs_of(program), Traffic()
    (expected,) = evaluate(program, inputs).values()
    space = rules.space(program, LIMITS)
    assert space.rule_of(space.default()) == transposes.RULE
    kernel = lower_threads(space.schedule(space.default()).function)
    (result,) = run_ptx(ptx_of(render(kernel, "sm_80"), "sm_80"), kernel, inputs, traffic).values()
    np.testing.assert_array_equal(result, expected)
    assert traffic.over_the_fewest("global") == 1
    assert traffic.over_the_fewest("shared") <= 1.1


def test_few_channels_and_rows_of_one_order_are_for_points():
    for program in relayout(1, 3, 16, 16), relayout(4, 64, 1, 1):
        assert transposes.space(program, LIMITS, USUAL) is None
        assert rules.space(program, LIMITS).rule == points.RULE
