"""The rule `rows`: the interpreter of threads, which finds races, and the adapter of this machine
compute what the program means."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.dim import dim, symbols
from farrier.ir.evaluate import evaluate
from farrier.ir.expr import Buffer, Load, MemoryScope, Reduce, ReduceOp, Var
from farrier.ir.run_threads import run_threads
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.threads import launches
from farrier.ir.types import DType
from farrier.lower.lower_threads import lower_threads
from farrier.targets.gpu import rows, rules
from farrier.targets.gpu.device import LEAST, USUAL
from tests.ir.bind import bind
from tests.schedule.programs import axes, inputs_of, load, softmax, times, total
from tests.targets.webgpu import webgpu

F32 = DType.F32
SIZES = (1, 2, 3, 7, 16, 31, 64, 100, 129, 300)


def _norm(batch, features, positions, op=ReduceOp.SUM):
    """x - reduce(x over features), with the features in the middle."""
    shape = (batch, features, positions)
    x, y = Buffer("x", F32, shape), Buffer("y", F32, shape)
    most = Buffer("r", F32, (batch, positions), scope=MemoryScope.WORKSPACE)
    element = Load(x, (Var("b"), Var("k"), Var("p")))
    stages = (
        Stage(most, axes(b=batch, p=positions), Reduce(op, axes(k=features), element)),
        Stage(
            y,
            axes(b=batch, f=features, p=positions),
            times(load(x, "b", "f", "p"), load(most, "b", "p")),
        ),
    )
    return TensorProgram("norm", (x,), stages, (y,))


def _row_sums(count, length):
    x, y = Buffer("x", F32, (count, length)), Buffer("y", F32, (count,))
    stage = Stage(y, axes(i=count), total(axes(k=length), load(x, "i", "k")))
    return TensorProgram("sums", (x,), (stage,), (y,))


def _assert_right(program, seed):
    inputs = inputs_of(program, seed)
    (expected,) = evaluate(program, inputs).values()
    space = rows.space(program, LEAST, USUAL)
    candidates = space.candidates()
    picks = np.random.default_rng(seed).choice(
        len(candidates), min(1, len(candidates)), replace=False
    )
    for decisions in space.default(), *(space.decisions(candidates[pick]) for pick in picks):
        function = space.schedule(decisions).function
        assert len(launches(function)) == 1, decisions
        kernel = lower_threads(function)
        for result in run_threads(kernel, inputs), webgpu.run(kernel, inputs):
            (array,) = result.values()
            np.testing.assert_allclose(array, expected, 1e-4, 1e-5, err_msg=str(decisions))


def _shapes(count, rank):
    rng = np.random.default_rng(0)
    return [tuple(int(size) for size in rng.choice(SIZES, rank)) for _ in range(count)]


def test_softmax_of_any_shape():
    for seed, (count, length) in enumerate([(1, 1), (1, 2000), *_shapes(10, 2)]):
        if length > 1:
            _assert_right(softmax(count, length), seed)


def test_norms_over_an_axis_in_the_middle():
    for seed, (features, positions) in enumerate(_shapes(4, 2)):
        if features > 1:
            _assert_right(_norm(2, features, positions), seed)
            _assert_right(_norm(1, features, positions, ReduceOp.MAX), seed)


@pytest.mark.parametrize(("count", "length"), [(1, 5000), (7, 513), (33, 1024)])
def test_sums_of_long_rows(count, length):
    _assert_right(_row_sums(count, length), 0)


def test_rows_of_open_size():
    count, length = dim("count", 1, 1000, 64), dim("length", 1, 1000, 128)
    space = rules.space(softmax(count, length), LEAST)
    function = space.schedule(space.default()).function
    assert len(launches(function)) == 1
    for sizes in (3, 7), (40, 130):
        values = dict(zip(symbols((count, length)), sizes, strict=True))
        inputs = inputs_of(softmax(*sizes))
        (array,) = run_threads(lower_threads(bind(function, values)), inputs).values()
        (expected,) = evaluate(softmax(*sizes), inputs).values()
        np.testing.assert_allclose(array, expected, 1e-5, 1e-6)


def test_a_thread_has_a_row_where_rows_are_short_and_many():
    space = rows.space(softmax(10_000, 8), LEAST, USUAL)
    assert space.default()["row_threads"] == 1


def test_threads_share_a_row_where_rows_are_long_and_few():
    space = rows.space(softmax(16, 2048), LEAST, USUAL)
    assert space.default()["row_threads"] >= 32
