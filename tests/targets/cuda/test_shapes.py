"""Each rule that GPUs share on fifty shapes: the PTX computes what the program means. Products of
fragments are in test_fragments.py, and the interpreter of threads in tests/targets/gpu."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.evaluate import evaluate
from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from tests.schedule.programs import inputs_of
from tests.targets.cuda.running import run_ptx
from tests.targets.gpu.test_shapes import RULES, _cases

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("name", RULES)
def test_fifty_shapes(name):
    for seed, (shape, program, space) in enumerate(_cases(name)):
        inputs = inputs_of(program, seed)
        (expected,) = evaluate(program, inputs).values()
        kernel = lower_threads(space.schedule(space.default()).function)
        (result,) = run_ptx(ptx_of(render(kernel, "sm_80"), "sm_80"), kernel, inputs).values()
        scale = np.abs(expected).max() + 1
        assert np.abs(result - expected).max() <= 1e-5 * scale, shape
