"""The rule `attention`: one launch computes two products and the softmax between them."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.evaluate import evaluate
from farrier.ir.expr import Binary, BinaryOp, Buffer, MemoryScope, Reduce, ReduceOp, Unary, UnaryOp
from farrier.ir.run_threads import run_threads
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.threads import launches
from farrier.ir.types import DType
from farrier.lower.lower_threads import lower_threads
from farrier.targets.gpu import attention, rules, tiles
from farrier.targets.gpu.device import LEAST, USUAL
from tests.schedule.programs import axes, inputs_of, load, times, total
from tests.targets.webgpu import webgpu

F32 = DType.F32


def program_of(heads, queries, keys, width):
    """softmax(q @ k) @ v for each head."""
    q, k = Buffer("q", F32, (heads, queries, width)), Buffer("k", F32, (heads, width, keys))
    v, y = Buffer("v", F32, (heads, keys, width)), Buffer("y", F32, (heads, queries, width))

    def inner(name, *shape):
        return Buffer(name, F32, shape, scope=MemoryScope.WORKSPACE)

    scores, powers = inner("s", heads, queries, keys), inner("p", heads, queries, keys)
    most, norm = inner("most", heads, queries), inner("norm", heads, queries)
    points = axes(h=heads, m=queries, n=keys)
    lower = Binary(BinaryOp.SUB, load(scores, "h", "m", "n"), load(most, "h", "m"))
    share = Binary(BinaryOp.DIV, load(powers, "h", "m", "k"), load(norm, "h", "m"))
    term = times(share, load(v, "h", "k", "n"))
    rows, inside = axes(h=heads, m=queries), axes(k=keys)
    stages = (
        Stage(
            scores,
            points,
            total(axes(k=width), times(load(q, "h", "m", "k"), load(k, "h", "k", "n"))),
        ),
        Stage(most, rows, Reduce(ReduceOp.MAX, inside, load(scores, "h", "m", "k"))),
        Stage(powers, points, Unary(UnaryOp.EXP, lower)),
        Stage(norm, rows, total(inside, load(powers, "h", "m", "k"))),
        Stage(y, axes(h=heads, m=queries, n=width), total(inside, term)),
    )
    return TensorProgram("attention", (q, k, v), stages, (y,))


@pytest.mark.parametrize("shape", [(2, 5, 7, 3), (3, 17, 130, 8)])
def test_one_launch_computes_an_attention(shape):
    program = program_of(*shape)
    space = attention.space(program, LEAST, USUAL)
    inputs = inputs_of(program)
    (expected,) = evaluate(program, inputs).values()
    candidates = space.candidates()
    for decisions in space.default(), space.decisions(candidates[-1]):
        function = space.schedule(decisions).function
        assert len(launches(function)) == 1
        kernel = lower_threads(function)
        results = [run_threads(kernel, inputs)]
        if decisions == space.default():  # The driver takes long to compile such a kernel.
            results.append(webgpu.run(kernel, inputs))
        for result in results:
            np.testing.assert_allclose(result["y"], expected, 1e-4, 1e-5, err_msg=str(decisions))


def test_rows_beyond_workgroup_memory_have_launches_of_their_own():
    program = program_of(2, 9, 4096, 8)
    assert attention.space(program, LEAST, USUAL) is None
    space = rules.space(program, LEAST)
    assert space.rule == tiles.RULE
    assert len(launches(space.schedule(space.default()).function)) == 3
