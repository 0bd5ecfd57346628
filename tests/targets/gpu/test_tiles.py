"""The rule `tiles`: the interpreter of threads, which finds races, and the adapter of this machine
compute what the program means."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.evaluate import evaluate
from farrier.ir.expr import Buffer, MemoryScope
from farrier.ir.loop import LoopKind
from farrier.ir.run_threads import run_threads
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.threads import launches
from farrier.ir.types import DType
from farrier.lower.lower_threads import lower_threads
from farrier.schedule.nest import allocated, loops
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.gpu import rules, tiles
from farrier.targets.gpu.device import LEAST, USUAL
from tests.schedule.programs import axes, inputs_of, load, matmul, plus, relu, times, total
from tests.targets.cuda.running import run_ptx
from tests.targets.gpu.convolutions import convolution
from tests.targets.webgpu import webgpu

SIZES = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 64)
F32 = DType.F32


def _batched(batch, m, n, k):
    """relu(x @ w + b) for a batch of matrices."""
    x, w = Buffer("x", F32, (batch, m, k)), Buffer("w", F32, (batch, k, n))
    bias, y = Buffer("b", F32, (n,)), Buffer("y", F32, (batch, m, n))
    product = Buffer("p", F32, (batch, m, n), scope=MemoryScope.WORKSPACE)
    term = times(load(x, "b", "m", "k"), load(w, "b", "k", "n"))
    stages = (
        Stage(product, axes(b=batch, m=m, n=n), total(axes(k=k), term)),
        Stage(
            y,
            axes(b=batch, m=m, n=n),
            relu(plus(load(product, "b", "m", "n"), load(bias, "n"))),
        ),
    )
    return TensorProgram("batched", (x, w, bias), stages, (y,))


def _candidates(program, count, seed):
    space = tiles.space(program, LEAST, USUAL)
    assert space is not None
    rows = space.candidates()
    picks = np.random.default_rng(seed).choice(len(rows), min(count, len(rows)), replace=False)
    return space, [space.default(), *(space.decisions(rows[pick]) for pick in picks)]


def _assert_right(program, count, seed, on_device=True):
    """Compare the default and a few other candidates with the program."""
    inputs = inputs_of(program, seed)
    (expected,) = evaluate(program, inputs).values()
    space, candidates = _candidates(program, count, seed)
    scale = np.abs(expected).max() + 1
    for decisions in candidates:
        kernel = lower_threads(space.schedule(decisions).function)
        results = [run_threads(kernel, inputs)]
        if on_device:
            results.append(webgpu.run(kernel, inputs))
        for result in results:
            (array,) = result.values()
            assert np.abs(array - expected).max() <= 1e-5 * scale, decisions


def _shapes(count, axes):
    rng = np.random.default_rng(0)
    return [tuple(int(size) for size in rng.choice(SIZES, axes)) for _ in range(count)]


def test_products_of_any_shape():
    for seed, (m, n, k) in enumerate([(1, 1, 1), (1, 64, 7), (64, 1, 7), *_shapes(30, 3)]):
        _assert_right(matmul(m, n, k), 1, seed)


def test_products_with_bias_and_batch():
    for seed, (batch, m, n, k) in enumerate(_shapes(10, 4)):
        _assert_right(_batched(min(batch, 3), m, n, k), 1, seed)


@pytest.mark.parametrize("side", [1, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions(side, stride):
    for seed, (channels, filters, height, width) in enumerate(_shapes(5, 4)):
        _assert_right(convolution(channels, filters, height, width, side, stride), 1, seed)


@pytest.mark.parametrize(
    ("groups", "channels", "filters", "size"),
    [(2, 4, 6, 9), (3, 3, 6, 7), (4, 32, 16, 5), (5, 35, 55, 3)],
)
def test_convolutions_of_groups(groups, channels, filters, size):
    program = convolution(channels, filters, size, size + 1, 3, 1, groups)
    _assert_right(program, 2, groups)


def test_one_launch_computes_a_convolution_and_its_bias():
    space = rules.space(convolution(16, 32, 14, 14, 3, 1), LEAST)
    assert space.rule == tiles.RULE
    (launch,) = launches(space.schedule(space.default()).function)
    assert any(loop.kind is LoopKind.THREAD for loop in loops(launch.body))


@pytest.mark.parametrize("m", [1, 100, 1024])
def test_tiles_do_not_reach_far_beyond_a_product(m):
    space = tiles.space(matmul(m, 1000, 64), LEAST, USUAL)
    tile = space.default()
    assert tile["threads_y"] * tile["each_y"] < 2 * m
    assert tile["threads_y"] * tile["threads_x"] <= LEAST.threads


def test_candidates_keep_the_limits():
    space = tiles.space(matmul(512, 512, 512), LEAST, USUAL)
    rows = space.candidates()
    assert len(rows) > 100
    for row in rows[:: len(rows) // 12]:
        kernel = lower_threads(space.schedule(space.decisions(row)).function)
        (launch,) = launches(kernel)
        buffers = allocated(launch.body)
        shared = [b.nbytes for b in buffers if b.scope is MemoryScope.WORKGROUP]
        assert sum(shared) <= LEAST.workgroup_bytes


@pytest.mark.parametrize("program", [matmul(33, 20, 70), convolution(5, 7, 9, 8, 3, 2)])
def test_two_stages_compute_the_same(program):
    space = tiles.space(program, LEAST, USUAL)
    two = [row for row in map(space.decisions, space.candidates()) if row["stages"] == 2]
    inputs = inputs_of(program)
    ((name, expected),) = evaluate(program, inputs).items()
    for decisions in two[:: len(two) // 3]:
        kernel = lower_threads(space.schedule(decisions).function)
        text = ptx_of(render(kernel, "sm_80"), "sm_80")
        for result in (
            run_threads(kernel, inputs),
            run_ptx(text, kernel, inputs),
            webgpu.run(kernel, inputs),
        ):
            np.testing.assert_allclose(result[name], expected, 1e-4, 1e-4)


def test_the_model_offers_stages_where_there_are_turns():
    for terms, stages in ((4, {1}), (512, {1, 2})):
        space = tiles.space(matmul(64, 64, terms), LEAST, USUAL)
        assert {space.decisions(row)["stages"] for row in space.candidates()} == stages
