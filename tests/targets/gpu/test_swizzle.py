"""The primitive `swizzle` in the code that ships: WGSL and PTX compute what interpreters do, and a
column of a tile takes one wavefront."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.run_threads import run_threads
from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from tests.schedule.checks import scheduled
from tests.schedule.test_swizzle import turn
from tests.targets.cuda.running import run_ptx
from tests.targets.cuda.traffic import Traffic
from tests.targets.webgpu import webgpu


def _kernel(arguments, *sizes):
    return lower_threads(scheduled(turn(*sizes), f'swizzle("t", {arguments})'))


def _inputs(rows, width):
    return {"a": np.random.default_rng(0).standard_normal((2, width, rows)).astype(np.float32)}


@pytest.mark.parametrize(
    ("arguments", "rows", "width"),
    [("1, 1, 32", 32, 32), ("2, 3, 8", 7, 48), ("4, 1, 2", 13, 8), ("5, 2, 4", 1, 20)],
)
def test_each_device_computes_the_same(arguments, rows, width):
    kernel, inputs = _kernel(arguments, rows, width), _inputs(rows, width)
    expected = inputs["a"].transpose(0, 2, 1)
    text = ptx_of(render(kernel, "sm_80"), "sm_80")
    for result in (
        run_threads(kernel, inputs),
        run_ptx(text, kernel, inputs),
        webgpu.run(kernel, inputs),
    ):
        np.testing.assert_array_equal(result["b"], expected)


def test_a_column_takes_one_wavefront():
    counts: list[float] = []
    for kernel in (lower_threads(scheduled(turn(32, 32))), _kernel("1, 1, 32", 32, 32)):
        traffic = Traffic()
        run_ptx(ptx_of(render(kernel, "sm_80"), "sm_80"), kernel, _inputs(32, 32), traffic)
        counts.append(traffic.over_the_fewest("shared"))
    assert counts[0] > 4
    assert counts[1] == 1
