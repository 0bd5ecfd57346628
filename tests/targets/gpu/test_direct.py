"""The rule `direct`: the interpreter of threads, which finds races, and the adapter of this machine
compute what the program means."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.evaluate import evaluate
from farrier.ir.run_threads import run_threads
from farrier.ir.threads import launches
from farrier.lower.lower_threads import lower_threads
from farrier.targets.gpu import direct, rules, tiles
from farrier.targets.gpu.device import LEAST, USUAL
from tests.schedule.programs import inputs_of, matmul
from tests.targets.gpu.convolutions import convolution
from tests.targets.webgpu import webgpu

# Channels, filters, height, width, side, stride, groups.
CONVOLUTIONS = [
    (1, 1, 1, 1, 1, 1, 1),
    (3, 3, 7, 5, 3, 1, 3),
    (8, 8, 14, 14, 3, 2, 8),
    (13, 13, 6, 11, 5, 1, 13),
    (6, 12, 9, 8, 3, 1, 6),
    (3, 5, 8, 9, 3, 2, 1),
    (4, 2, 16, 3, 3, 1, 2),
    (17, 3, 5, 7, 1, 1, 1),
]


def _assert_right(program, seed):
    """Compare the default and another candidate with the program."""
    inputs = inputs_of(program, seed)
    (expected,) = evaluate(program, inputs).values()
    space = direct.space(program, LEAST, USUAL)
    candidates = space.candidates()
    pick = np.random.default_rng(seed).integers(len(candidates))
    for decisions in space.default(), space.decisions(candidates[pick]):
        function = space.schedule(decisions).function
        assert len(launches(function)) == 1
        kernel = lower_threads(function)
        for result in run_threads(kernel, inputs), webgpu.run(kernel, inputs):
            (array,) = result.values()
            np.testing.assert_allclose(array, expected, 1e-5, 1e-5, err_msg=str(decisions))


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_convolutions(shape):
    _assert_right(convolution(*shape), shape[0])


def test_products_of_few_terms_or_columns():
    for seed, shape in enumerate([(33, 17, 3), (5, 3, 40), (1, 7, 1)]):
        _assert_right(matmul(*shape), seed)


def test_the_model_ranks_rules():
    by_channel = rules.space(convolution(64, 64, 28, 28, 3, 1, 64), LEAST)
    assert by_channel.rule == direct.RULE
    assert by_channel.default()["direct_columns"] > 1
    many_channels = rules.space(convolution(64, 64, 28, 28, 3, 1), LEAST)
    assert many_channels.rule == tiles.RULE
