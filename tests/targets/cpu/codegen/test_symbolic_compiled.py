"""Kernels of symbolic shape: compiled once, right for every size in range."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from farrier.ir.evaluate import evaluate
from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.verify_kernel import verify_function
from farrier.lower.loops import to_loops
from farrier.targets import host
from farrier.targets.cpu.rules import for_program
from tests.ir.bind import bind
from tests.lowering import final_loops, finalize
from tests.schedule.programs import inputs_of
from tests.targets.cpu.codegen.differential import Compiled

MATMUL = """@program(m=dim(1, 300, 128))
def matmul(a: f32[m, 48], b: f32[48, 64] in constant, r: f32[m, 64]):
    matmul: f32[m, 64] in workspace
    for m_, n in axes(m, 64):
        matmul[m_, n] = sum(a[m_, k] * b[k, n] for k in axes(48))
    y: f32[m, 64]
    for i, j in axes(m, 64):
        y[i, j] = max(matmul[i, j] + r[i, j], 0.0)
    return y
"""
CONV = """@program(h=dim(1, 40, 28), w=dim(1, 40, 28))
def conv(x: f32[1, 16, h, w] @ layout(0, 1 / 16, 2, 3, 1 % 16),
         f: f32[32, 16, 3, 3] in constant):
    conv: f32[1, 32, h, w] @ layout(0, 1 / 16, 2, 3, 1 % 16)
    for n, oc, oy, ox in axes(1, 32, h, w):
        conv[n, oc, oy, ox] = sum((x[n, ic, oy + ky - 1, ox + kx - 1]
            if 0 <= oy + ky - 1 and oy + ky - 1 < h and 0 <= ox + kx - 1 and ox + kx - 1 < w
            else 0.0) * f[oc, ic, ky, kx] for ic, ky, kx in axes(16, 3, 3))
    return conv
"""
POINTWISE = """@program(h=dim(1, 40, 28), w=dim(1, 40, 28))
def pointwise(x: f32[1, 24, h, w] @ layout(0, 1 / 8, 2, 3, 1 % 8), f: f32[32, 24] in constant):
    conv: f32[1, 32, h, w] @ layout(0, 1 / 16, 2, 3, 1 % 16)
    for n, oc, oy, ox in axes(1, 32, h, w):
        conv[n, oc, oy, ox] = sum(x[n, ic, oy, ox] * f[oc, ic] for ic in axes(24))
    return conv
"""
ELEMENTWISE = """@program(n=dim(0, 70, 64))
def act(x: f32[n, 5, n + 1], b: f32[n + 1]):
    y: f32[n, 5, n + 1]
    for i, j, k in axes(n, 5, n + 1):
        y[i, j, k] = tanh(x[i, j, k] + b[k])
    return y
"""
TRANSPOSE = """@program(n=dim(1, 70, 64), m=dim(1, 50, 20))
def turn(x: f32[n, m]):
    y: f32[m, n]
    for i, j in axes(m, n):
        y[i, j] = x[j, i] * 2.0
    return y
"""
SOFTMAX = """@program(n=dim(1, 9, 4), s=dim(1, 200, 128))
def softmax(x: f32[n, s]):
    most: f32[n] in workspace
    for i in axes(n):
        most[i] = max(x[i, k] for k in axes(s))
    e: f32[n, s] in workspace
    for i, j in axes(n, s):
        e[i, j] = exp(x[i, j] - most[i])
    total: f32[n] in workspace
    for i in axes(n):
        total[i] = sum(e[i, k] for k in axes(s))
    y: f32[n, s]
    for i, j in axes(n, s):
        y[i, j] = e[i, j] / total[i]
    return y
"""
HALVES = """@program(n=dim(1, 33, 16))
def pool(x: f32[8, 2*n + 1]):
    y: f32[8, (2*n + 1) // 2]
    for i, j in axes(8, (2*n + 1) // 2):
        y[i, j] = max(x[i, 2 * j + k] for k in axes(2))
    return y
"""
ATTENTION = """@program(s=dim(1, 150, 64), t=dim(1, 200, 64))
def attention(q: f32[3, s, 16], k: f32[3, t, 16], v: f32[3, t, 32]):
    scores: f32[3, s, t] in workspace
    for b, i, j in axes(3, s, t):
        scores[b, i, j] = sum(q[b, i, d] * k[b, j, d] for d in axes(16))
    scaled: f32[3, s, t] in workspace
    for b, i, j in axes(3, s, t):
        scaled[b, i, j] = scores[b, i, j] * 0.25
    most: f32[3, s] in workspace
    for b, i in axes(3, s):
        most[b, i] = max(scaled[b, i, j] for j in axes(t))
    e: f32[3, s, t] in workspace
    for b, i, j in axes(3, s, t):
        e[b, i, j] = exp(scaled[b, i, j] - most[b, i])
    total: f32[3, s] in workspace
    for b, i in axes(3, s):
        total[b, i] = sum(e[b, i, j] for j in axes(t))
    weights: f32[3, s, t] in workspace
    for b, i, j in axes(3, s, t):
        weights[b, i, j] = e[b, i, j] / total[b, i]
    y: f32[3, s, 32]
    for b, i, d in axes(3, s, 32):
        y[b, i, d] = sum(weights[b, i, j] * v[b, j, d] for j in axes(t))
    return y
"""
NORMALIZED = """@program(n=dim(0, 40, 1))
def normalized(x: f32[3, n, 37]):
    sums: f32[3, n] in workspace
    for i, j in axes(3, n):
        sums[i, j] = sum(x[i, j, k] for k in axes(37))
    total: f32[3] in workspace
    for i in axes(3):
        total[i] = sum(x[i, j, 0] for j in axes(n))
    y: f32[3, n, 37]
    for i, j, k in axes(3, n, 37):
        y[i, j, k] = x[i, j, k] * sums[i, j] + total[i]
    return y
"""
DEPTHWISE = """@program(h=dim(1, 40, 28), w=dim(1, 40, 28))
def depthwise(x: f32[1, 32, h, w] @ layout(0, 1 / 16, 2, 3, 1 % 16),
              f: f32[32, 3, 3] in constant):
    conv: f32[1, 32, h, w] @ layout(0, 1 / 16, 2, 3, 1 % 16)
    for n, c, oy, ox in axes(1, 32, h, w):
        conv[n, c, oy, ox] = sum((x[n, c, oy + ky - 1, ox + kx - 1]
            if 0 <= oy + ky - 1 and oy + ky - 1 < h and 0 <= ox + kx - 1 and ox + kx - 1 < w
            else 0.0) * f[c, ky, kx] for ky, kx in axes(3, 3))
    return conv
"""
POOL = """@program(h=dim(1, 40, 28), w=dim(1, 40, 28))
def maxpool(x: f32[1, 32, h, w] @ layout(0, 1 / 16, 2, 3, 1 % 16)):
    pool: f32[1, 32, (h + 1) // 2, (w + 1) // 2] @ layout(0, 1 / 16, 2, 3, 1 % 16)
    for n, c, oy, ox in axes(1, 32, (h + 1) // 2, (w + 1) // 2):
        pool[n, c, oy, ox] = max(x[n, c, 2 * oy + ky - 1, 2 * ox + kx - 1]
            if 0 <= 2 * oy + ky - 1 and 2 * oy + ky - 1 < h and 0 <= 2 * ox + kx - 1
            and 2 * ox + kx - 1 < w else -inf for ky, kx in axes(3, 3))
    return pool
"""
SHORT_SOFTMAX = SOFTMAX.replace(
    "n=dim(1, 9, 4), s=dim(1, 200, 128)", "n=dim(1, 9, 4), s=dim(1, 7, 4)"
)
PROGRAMS = {
    "matmul": MATMUL, "conv": CONV, "pointwise": POINTWISE, "elementwise": ELEMENTWISE,
    "transpose": TRANSPOSE, "softmax": SOFTMAX, "halves": HALVES,
    "short_softmax": SHORT_SOFTMAX, "attention": ATTENTION, "depthwise": DEPTHWISE, "pool": POOL,
    "normalized": NORMALIZED,
}  # fmt: skip
SIZES = (1, 2, 5, 7, 8, 13, 16, 28, 33, 40, 64, 131, 300)


def _cases(program, count=9):
    """Sizes of the program's dims: the ends of their ranges, and some between."""
    columns = []
    for at, symbol in enumerate(program.dims):
        inner = [size for size in SIZES if symbol.low < size < symbol.high]
        ends = [symbol.low, symbol.high, symbol.typical]
        columns.append(itertools.cycle([*ends, *inner[at:], *inner[:at]]))
    for _ in range(count):
        yield {symbol: next(column) for symbol, column in zip(program.dims, columns, strict=True)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_size_in_range(name):
    program = parse_ir(PROGRAMS[name])
    space = for_program(program, host(), 2)
    assert not space.rule.name.startswith("sketch/")
    function = final_loops(space, space.default())
    verify_function(function)
    with Compiled(function, threads=2) as kernel:
        for sizes in _cases(program):
            bound = bind(program, sizes)
            inputs = inputs_of(bound)
            for output, expected in evaluate(bound, inputs).items():
                actual = kernel(inputs, sizes)[output]
                np.testing.assert_allclose(
                    actual, expected, rtol=2e-5, atol=2e-5, err_msg=str(sizes)
                )


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_decisions(name):
    program = parse_ir(PROGRAMS[name])
    space = for_program(program, host(), 2)
    rows = space.candidates(64, seed=3)
    for row in rows[:: max(len(rows) // 6, 1)]:
        function = final_loops(space, space.decisions(row))
        with Compiled(function, threads=2) as kernel:
            for sizes in _cases(program, 4):
                bound = bind(program, sizes)
                inputs = inputs_of(bound)
                for output, expected in evaluate(bound, inputs).items():
                    actual = kernel(inputs, sizes)[output]
                    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_naive_nests_compile_to_the_same(name):
    program = parse_ir(PROGRAMS[name])
    function = finalize(to_loops(program))
    with Compiled(function) as kernel:
        for wanted in (1, 7, 11):  # Loops are slow in Python.
            sizes = {dim: min(max(wanted, dim.low), dim.high) for dim in program.dims}
            bound = bind(program, sizes)
            inputs = inputs_of(bound)
            expected = run_loops(bind(function, sizes), inputs)
            for output, array in expected.items():
                np.testing.assert_allclose(
                    kernel(inputs, sizes)[output], array, rtol=2e-5, atol=2e-5
                )
