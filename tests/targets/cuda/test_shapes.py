"""Each rule on fifty shapes, within CUDA's limits: the PTX and the interpreter of threads compute
what the program means. Products of fragments are in test_fragments.py."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.intrinsics import lookup
from farrier.ir.evaluate import evaluate
from farrier.ir.run_threads import run_threads
from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.expressible import LIMITS
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from tests.schedule.programs import inputs_of
from tests.targets.cuda.running import run_ptx
from tests.targets.gpu.test_shapes import COUNT, RULES, TEN, cases_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("first", range(0, COUNT, TEN))
@pytest.mark.parametrize("name", RULES)
def test_fifty_shapes(name, first):
    cases = cases_of(name, LIMITS)[first : first + TEN]
    for seed, (shape, program, space) in enumerate(cases, start=first):
        inputs = inputs_of(program, seed)
        (expected,) = evaluate(program, inputs).values()
        kernel = lower_threads(space.schedule(space.default()).function)
        scale = np.abs(expected).max() + 1
        for results in (
            run_threads(kernel, inputs, meaning=lambda intrinsic: lookup(intrinsic).semantics),
            run_ptx(ptx_of(render(kernel, "sm_80"), "sm_80"), kernel, inputs),
        ):
            (result,) = results.values()
            assert np.abs(result - expected).max() <= 1e-5 * scale, shape
