"""Loop functions written by hand, compiled, called and compared with numpy."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from farrier.ir.expr import Binary, BinaryOp, Buffer, Const, Load, MemoryScope, Var, add, mul
from farrier.ir.loop import Alloc, Block, For, Function, LoopKind, Store
from farrier.ir.types import DType
from farrier.targets.cpu.codegen.emit import emit_function

SERIAL, UNROLLED = LoopKind.SERIAL, LoopKind.UNROLLED
VECTORIZED, PARALLEL = LoopKind.VECTORIZED, LoopKind.PARALLEL
F32 = DType.F32


def plus(a, b):
    return Binary(BinaryOp.ADD, a, b)


def times(a, b):
    return Binary(BinaryOp.MUL, a, b)


def elementwise(n: int, kind: LoopKind) -> Function:
    x, y, out = (Buffer(name, F32, (n,)) for name in ("x", "y", "out"))
    i = (Var("i"),)
    body = Store(out, i, plus(times(Load(x, i), Load(y, i)), Const(0.5, F32)))
    return Function("kernel", (x, y, out), For("i", n, kind, body))


@pytest.mark.parametrize("kind", [SERIAL, UNROLLED, VECTORIZED, PARALLEL])
@pytest.mark.parametrize("n", [1, 2, 7, 13, 16, 31, 64, 100])
def test_elementwise(run_function, kind, n):
    random = np.random.default_rng(n)
    x, y = random.normal(size=(2, n)).astype(np.float32)
    out = np.full(n + 3, 9, np.float32)
    run_function(elementwise(n, kind), x, y, out)
    np.testing.assert_allclose(out[:n], x * y + 0.5, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(out[n:], 9)


def matmul(m, n, k, tile_m, lanes, unroll) -> Function:
    """C[m, n] = A[m, k] B[k, n] in register tiles of tile_m rows and `lanes` columns."""
    a, b, c = Buffer("a", F32, (m, k)), Buffer("b", F32, (k, n)), Buffer("c", F32, (m, n))
    acc = Buffer("acc", F32, (tile_m, lanes), scope=MemoryScope.REGISTER)
    row = add(mul(Var("mo"), tile_m), Var("mi"))
    column = add(mul(Var("no"), lanes), Var("l"))
    depth = add(mul(Var("ko"), unroll), Var("ki"))
    at = (Var("mi"), Var("l"))
    product = times(Load(a, (row, depth)), Load(b, (depth, column)))
    tile = lambda stmt: For("mi", tile_m, UNROLLED, For("l", lanes, VECTORIZED, stmt))  # noqa: E731
    init = For("mi0", tile_m, UNROLLED, For("l0", lanes, VECTORIZED, Store(
        acc, (Var("mi0"), Var("l0")), Const(0.0, F32))))  # fmt: skip
    update = For("ko", k // unroll, SERIAL, For("ki", unroll, UNROLLED, tile(
        Store(acc, at, plus(Load(acc, at), product)))))  # fmt: skip
    row1 = add(mul(Var("mo"), tile_m), Var("mi1"))
    column1 = add(mul(Var("no"), lanes), Var("l1"))
    finish = For("mi1", tile_m, UNROLLED, For("l1", lanes, VECTORIZED, Store(
        c, (row1, column1), Load(acc, (Var("mi1"), Var("l1"))))))  # fmt: skip
    nest = For("no", n // lanes, PARALLEL, For("mo", m // tile_m, SERIAL, Alloc(
        acc, Block((init, update, finish)))))  # fmt: skip
    return Function("kernel", (a, b, c), nest)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("m", "n", "k", "tile_m", "lanes", "unroll"),
    [(12, 64, 20, 6, 32, 4), (7, 13, 5, 7, 13, 1), (8, 48, 9, 4, 16, 3), (3, 1, 4, 1, 1, 2)],
)
def test_register_tiles(run_function, m, n, k, tile_m, lanes, unroll, threads):
    random = np.random.default_rng(5)
    a = random.normal(size=(m, k)).astype(np.float32)
    b = random.normal(size=(k, n)).astype(np.float32)
    c = np.zeros((m, n), np.float32)
    run_function(matmul(m, n, k, tile_m, lanes, unroll), a, b, c, threads=threads)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


def test_a_kernel_that_is_text_leaves_no_garbage(target):
    """Helper processes compile thousands of candidates without the garbage collector."""
    kernel = matmul(24, 64, 32, 4, 16, 4)
    emit_function(kernel, target)
    gc.collect()
    gc.disable()
    try:
        emit_function(kernel, target)
        assert gc.collect() < 100
    finally:
        gc.enable()
