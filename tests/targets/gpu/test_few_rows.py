"""The rule `few_rows`: products of few rows with weights that are packed in words."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.intrinsics import lookup
from farrier.ir.evaluate import evaluate
from farrier.ir.loop import For
from farrier.ir.printer import print_ir
from farrier.ir.run_threads import run_threads
from farrier.ir.statements import walk_stmts
from farrier.ir.threads import launches
from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.expressible import LIMITS
from farrier.targets.gpu import few_rows, rules, tiles
from farrier.targets.gpu.device import LEAST, USUAL
from tests.schedule.programs import inputs_of, matmul
from tests.targets.gpu.packed import KINDS, packed_product
from tests.targets.webgpu import webgpu


@pytest.mark.parametrize("kind", KINDS)
def test_threads_share_the_terms_of_packed_weights(kind):
    program = packed_product(3, 3, 40, 21, kind)
    inputs = inputs_of(program)
    (expected,) = evaluate(program, inputs).values()
    scale = np.abs(expected).max()
    for limits in LEAST, LIMITS:
        space = few_rows.space(program, limits, USUAL)
        candidates = space.candidates()
        picks = np.random.default_rng(kind).choice(len(candidates), 3)
        for decisions in space.default(), *(space.decisions(candidates[pick]) for pick in picks):
            function = space.schedule(decisions).function
            assert len(launches(function)) == 1
            kernel = lower_threads(function)
            meaning = lambda intrinsic: lookup(intrinsic).semantics  # noqa: E731
            results = [run_threads(kernel, inputs, meaning=meaning)]
            if limits is LEAST and decisions == space.default():
                results.append(webgpu.run(kernel, inputs))
            for result in results:
                (array,) = result.values()
                assert np.abs(array - expected).max() <= 1e-5 * scale, decisions


def test_scales_are_multiplied_once_a_run():
    space = few_rows.space(packed_product(1, 8, 32, 64), LIMITS, USUAL)
    runs = [
        print_ir(loop)
        for loop in walk_stmts(space.schedule(space.default()).function.body)
        if isinstance(loop, For) and "_term" in loop.var
    ]
    assert any("words[" in run for run in runs)
    assert not any("scales[" in run for run in runs)


def test_the_model_takes_tiles_for_many_rows():
    assert rules.space(packed_product(1, 32, 32, 4096), LIMITS).rule == few_rows.RULE
    assert rules.space(packed_product(4096, 32, 32, 4096), LIMITS).rule == tiles.RULE
    assert few_rows.space(matmul(1, 64, 64), LIMITS, USUAL) is None
