"""Each rule for GPUs on fifty shapes, with primes and 1: the interpreter of threads and the adapter
of this machine compute what the program means. `make gpus` has both compilers of WGSL do so."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from farrier.ir.evaluate import evaluate
from farrier.ir.run_threads import run_threads
from farrier.lower.lower_threads import lower_threads
from farrier.targets.gpu import attention, direct, few_rows, parts, points, rows, tiles, transposes
from farrier.targets.gpu.device import LEAST, USUAL
from tests.schedule.programs import inputs_of, matmul, softmax
from tests.targets.gpu.convolutions import convolution
from tests.targets.gpu.packed import packed_product
from tests.targets.gpu.test_attention import program_of
from tests.targets.gpu.test_parts import row_ends
from tests.targets.gpu.transposed import relayout
from tests.targets.webgpu import webgpu

SIZES = (1, 2, 3, 5, 7, 8, 11, 13, 16, 17, 23, 31, 32, 37)
COUNT = 50
# A driver may take half a minute to compile a kernel, so a test has ten shapes.
TEN = 10
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def _groups(channels, filters, height, width, side, stride):
    return convolution(3 * channels, 3 * filters, height, width, 2 * side - 1, stride, 3)


def _each_channel(channels, height, width, side, stride):
    return convolution(channels, channels, height, width, 2 * side - 1, stride, channels)


def _long_row(count, length):
    return row_ends(count, 512 * length)


# The rule, the program of a shape, and the greatest of each of its numbers.
RULES = {
    "attention": (attention, program_of, (3, 37, 37, 17)),
    "convolution": (tiles, lambda *shape: convolution(*shape, 3, 1), (11, 17, 13, 13)),
    "convolution of groups": (tiles, _groups, (5, 7, 8, 8, 2, 2)),
    "each channel": (direct, _each_channel, (17, 17, 17, 3, 2)),
    "few terms": (direct, matmul, (37, 37, 8)),
    "packed weights": (few_rows, packed_product, (17, 8, 37, 37, 7)),
    "parts of a product": (parts, lambda m, n, k: matmul(m, n, 128 * k), (17, 17, 8)),
    "parts of a row": (parts, _long_row, (11, 37)),
    "points": (points, lambda *shape: convolution(*shape, 3, 2), (5, 5, 13, 13)),
    "product": (tiles, matmul, (37, 37, 37)),
    "rows": (rows, softmax, (37, 37)),
    "transposes": (transposes, relayout, (3, 37, 13, 17)),
}


def _shapes(most):
    """Different shapes of the sizes, the one of ones first."""
    rng = np.random.default_rng(len(most))
    shapes = {(1,) * len(most): None}
    for _ in range(40 * COUNT):
        shapes[tuple(int(rng.choice([s for s in SIZES if s <= end])) for end in most)] = None
    return list(shapes)


def space_of(rule, program, limits):
    """Return the space of a program by a rule, or None."""
    return rule.space(program) if rule is points else rule.space(program, limits, USUAL)


@functools.cache
def cases_of(name, limits):
    """Return the first fifty shapes that a rule takes, each with its program and its space."""
    rule, program_of_shape, most = RULES[name]
    cases = []
    for shape in _shapes(most):
        program = program_of_shape(*shape)
        space = space_of(rule, program, limits)
        if space is not None:  # The rule leaves sums of one term, or of one column, to others.
            cases.append((shape, program, space))
        if len(cases) == COUNT:
            return cases
    raise AssertionError(f"{name} takes {len(cases)} of the shapes")


@pytest.mark.parametrize("first", range(0, COUNT, TEN))
@pytest.mark.parametrize("name", RULES)
def test_fifty_shapes(name, first):
    cases = cases_of(name, LEAST)[first : first + TEN]
    for seed, (shape, program, space) in enumerate(cases, start=first):
        inputs = inputs_of(program, seed)
        (expected,) = evaluate(program, inputs).values()
        kernel = lower_threads(space.schedule(space.default()).function)
        for result in run_threads(kernel, inputs), webgpu.run(kernel, inputs):
            (array,) = result.values()
            scale = np.abs(expected).max() + 1
            assert np.abs(array - expected).max() <= 1e-5 * scale, shape
