"""Statements whose code is not a straight line: branches, captured values, scratch memory."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.errors import CompilerError
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Load,
    MemoryScope,
    Select,
    Var,
    add,
    both,
    floordiv,
    less,
    mod,
    mul,
)
from farrier.ir.loop import Alloc, Block, For, Function, If, LoopKind, Prefetch, Store
from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.types import DType, Layout
from farrier.targets.cpu.codegen.workspace import SLICE_STEP, plan, sizes_of
from tests.targets.cpu.codegen.differential import check, run_compiled

SERIAL, UNROLLED = LoopKind.SERIAL, LoopKind.UNROLLED
VECTORIZED, PARALLEL = LoopKind.VECTORIZED, LoopKind.PARALLEL
F32, I64 = DType.F32, DType.I64
I, J, K = Var("i"), Var("j"), Var("k")  # noqa: E741
ZERO = Const(0, I64)
RANDOM = np.random.default_rng(11)


def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def plus(a, b):
    return Binary(BinaryOp.ADD, a, b)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_register_that_branches_change_is_merged(threads):
    """acc of each row: adds, resets every third step, doubles in a nested branch."""
    x, out = Buffer("x", F32, (9, 17)), Buffer("out", F32, (9,))
    acc = Buffer("acc", F32, (2,), scope=MemoryScope.REGISTER)
    first, second = (ZERO,), (Const(1, I64),)
    step = If(
        Binary(BinaryOp.EQ, mod(J, 3), ZERO),
        Store(acc, first, Load(x, (I, J))),
        Block(
            (
                Store(acc, first, plus(Load(acc, first), Load(x, (I, J)))),
                If(
                    less(Const(8, I64), J),
                    Store(acc, second, plus(Load(acc, second), Load(acc, second))),
                ),
            )
        ),
    )
    body = Alloc(
        acc,
        Block(
            (
                Store(acc, first, Const(0.0, F32)),
                Store(acc, second, Const(1.0, F32)),
                For("j", 17, SERIAL, step),
                Store(out, (I,), plus(Load(acc, first), Load(acc, second))),
            )
        ),
    )
    function = Function("kernel", (x, out), For("i", 9, PARALLEL, body))
    check(function, {"x": normal(9, 17)}, threads)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_parallel_loop_sees_what_is_around_it(threads):
    """An outer serial variable, a scratch buffer and a register value reach the body."""
    x, out = Buffer("x", F32, (4, 10, 19)), Buffer("out", F32, (4, 10, 19))
    row = Buffer("row", F32, (19,), scope=MemoryScope.WORKSPACE)
    scale = Buffer("scale", F32, (1,), scope=MemoryScope.REGISTER)
    fill = For("k0", 19, VECTORIZED, Store(row, (Var("k0"),), Load(x, (I, ZERO, Var("k0")))))
    body = Store(
        out,
        (I, J, K),
        plus(
            Binary(BinaryOp.MUL, Load(x, (I, J, K)), Load(scale, (ZERO,))),
            plus(Load(row, (K,)), Cast(F32, I)),
        ),
    )
    rows = For("j", 10, PARALLEL, For("k", 19, VECTORIZED, body))
    nest = For("i", 4, SERIAL, Alloc(row, Alloc(scale, Block((
        fill, Store(scale, (ZERO,), Load(x, (I, ZERO, ZERO))), rows)))))  # fmt: skip
    check(Function("kernel", (x, out), nest), {"x": normal(4, 10, 19)}, threads)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("columns", [50, 40_000])
def test_scratch_of_one_thread(threads, columns):
    """A LOCAL buffer on the stack, and one so large that it is a slice of the workspace."""
    x, out = Buffer("x", F32, (5, columns)), Buffer("out", F32, (5, columns))
    line = Buffer("line", F32, (columns,), scope=MemoryScope.LOCAL)
    write = For("j", columns, SERIAL, Store(line, (J,), plus(Load(x, (I, J)), Const(1.0, F32))))
    last = Binary(BinaryOp.SUB, Const(columns - 1, I64), K)
    read = For("k", columns, SERIAL, Store(out, (I, K), Load(line, (last,))))
    function = Function(
        "kernel", (x, out), For("i", 5, PARALLEL, Alloc(line, Block((write, read))))
    )
    assert bool(plan(function).per_worker) is (columns == 40_000)
    assert (SLICE_STEP in sizes_of(function)) is (columns == 40_000)
    check(function, {"x": normal(5, columns)}, threads)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shared", [1, 77])
def test_memory_of_all_threads_beside_that_of_each(shared, threads):
    """The sum of a line, by way of a copy in the thread's slice, times what all threads share."""
    columns = 20_000
    x, out = Buffer("x", F32, (5, columns)), Buffer("out", F32, (5, shared))
    line = Buffer("line", F32, (columns,), scope=MemoryScope.LOCAL)
    factors = Buffer("factors", F32, (shared,), scope=MemoryScope.WORKSPACE)
    write = For("j", columns, SERIAL, Store(line, (J,), Load(x, (I, J))))
    total = plus(Load(line, (Const(0, I64),)), Load(line, (Const(columns - 1, I64),)))
    read = For("k", shared, SERIAL, Store(out, (I, K), mul(total, Load(factors, (K,)))))
    each = For("i", 5, PARALLEL, Alloc(line, Block((write, read))))
    fill = For("k", shared, SERIAL, Store(factors, (K,), Cast(F32, K)))
    function = Function("kernel", (x, out), Alloc(factors, Block((fill, each))))
    memory = plan(function)
    assert memory.shared_bytes == -(-4 * shared // 64) * 64
    assert memory.slice_bytes == 4 * columns
    check(function, {"x": normal(5, columns)}, threads)


def test_a_parallel_loop_may_not_write_an_outer_register():
    out = Buffer("out", F32, (4,))
    acc = Buffer("acc", F32, (1,), scope=MemoryScope.REGISTER)
    body = Block((Store(acc, (ZERO,), Const(1.0, F32)), Store(out, (I,), Load(acc, (ZERO,)))))
    with pytest.raises(CompilerError, match="acc"):
        check(Function("kernel", (out,), Alloc(acc, For("i", 4, PARALLEL, body))), {})


def test_a_register_index_that_is_not_constant_is_an_error():
    out = Buffer("out", F32, (4,))
    acc = Buffer("acc", F32, (4,), scope=MemoryScope.REGISTER)
    nest = For("i", 4, SERIAL, Store(acc, (I,), Const(1.0, F32)))
    with pytest.raises(CompilerError, match="not constant"):
        check(Function("kernel", (out,), Alloc(acc, nest)), {})


STRIDES = [1, 2, 3, -1, 0]


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("extent", [1, 4, 11, 16, 32])
def test_loads_and_stores_of_any_stride(stride, extent):
    size = extent * 3 + 2
    x, out = Buffer("x", F32, (size,)), Buffer("out", F32, (2, size))
    start = 2 * extent if stride < 0 else 1
    read = add(mul(I, stride), start)
    fill = For("f", 2 * size, SERIAL, Store(
        out, (floordiv(Var("f"), size), mod(Var("f"), size)), Const(0.0, F32)))  # fmt: skip
    gather = For("i", extent, VECTORIZED, Store(out, (ZERO, I), Load(x, (read,))))
    write = add(mul(J, stride or 1), start)
    scatter = For("j", extent, VECTORIZED, Store(out, (Const(1, I64), write), Load(x, (J,))))
    check(Function("kernel", (x, out), Block((fill, gather, scatter))), {"x": normal(size)})


def test_lanes_that_gather_through_an_index_tensor():
    table, index = Buffer("table", F32, (23, 5)), Buffer("index", I64, (19,))
    out = Buffer("out", F32, (19, 5))
    nest = For("j", 5, SERIAL, For("i", 19, VECTORIZED, Store(
        out, (I, J), Load(table, (Load(index, (I,)), J)))))  # fmt: skip
    inputs = {"table": normal(23, 5), "index": RANDOM.integers(0, 23, 19)}
    check(Function("kernel", (table, index, out), nest), inputs)


@pytest.mark.parametrize("kind", [VECTORIZED, SERIAL, UNROLLED])
def test_a_select_guards_loads_outside_the_buffer(kind):
    """Padding without a halo, on the lane and on a scalar."""
    x, out = Buffer("x", F32, (7, 13)), Buffer("out", F32, (9, 17))
    at = (add(I, -1), add(J, -2))
    inside = both(
        both(less(Const(-1, I64), at[0]), less(at[0], 7)),
        both(less(Const(-1, I64), at[1]), less(at[1], 13)),
    )
    value = Select(inside, Load(x, at), Const(0.0, F32))
    nest = For("i", 9, SERIAL, For("j", 17, kind, Store(out, (I, J), value)))
    check(Function("kernel", (x, out), nest), {"x": normal(7, 13)})


def test_a_condition_on_the_lane_masks_stores():
    x, out = Buffer("x", F32, (5, 20)), Buffer("out", F32, (5, 20))
    body = If(
        less(J, mul(I, 4)),
        Store(out, (I, J), Load(x, (I, J))),
        Store(out, (I, J), Const(-1.0, F32)),
    )
    nest = For("i", 5, SERIAL, For("j", 20, VECTORIZED, body))
    check(Function("kernel", (x, out), nest), {"x": normal(5, 20)})


@pytest.mark.parametrize("read", [ZERO, J])
def test_a_condition_that_one_lane_meets_may_name_its_element(read):
    """The first of a row, be its value the same in all lanes or not."""
    x, out = Buffer("x", F32, (5, 20)), Buffer("out", F32, (5, 20))
    first = Store(out, (I, ZERO), plus(Load(x, (I, read)), Const(1.0, F32)))
    body = If(less(J, 1), first, Store(out, (I, J), Load(x, (I, J))))
    nest = For("i", 5, SERIAL, For("j", 20, VECTORIZED, body))
    check(Function("kernel", (x, out), nest), {"x": normal(5, 20)})


def test_a_condition_on_the_lane_masks_registers_and_reductions():
    x, out, total = (Buffer(n, F32, s) for n, s in (("x", (20,)), ("out", (20,)), ("total", (1,))))
    acc = Buffer("acc", F32, (20,), scope=MemoryScope.REGISTER)
    sum_up = Store(total, (ZERO,), plus(Load(total, (ZERO,)), Load(x, (J,))))
    nest = Alloc(
        acc,
        Block(
            (
                For("a", 20, VECTORIZED, Store(acc, (Var("a"),), Const(1.0, F32))),
                For("i", 20, VECTORIZED, If(less(I, 7), Store(acc, (I,), Load(x, (I,))))),
                For("b", 20, VECTORIZED, Store(out, (Var("b"),), Load(acc, (Var("b"),)))),
                Store(total, (ZERO,), Const(0.5, F32)),
                For("j", 20, VECTORIZED, If(less(Const(3, I64), J), sum_up)),
            )
        ),
    )
    check(Function("kernel", (x, out, total), nest), {"x": normal(20)})


@pytest.mark.parametrize("kind", [VECTORIZED, SERIAL])
def test_a_blocked_layout_with_a_halo(kind):
    """Channels 20 of NCHW16c with partial blocks; the input's halo is read as zeros."""
    layout = Layout.blocked(4, 1, 16, ((0, 0), (0, 0), (1, 1), (1, 1)))
    x = Buffer("x", F32, (1, 20, 5, 6), layout)
    out = Buffer("out", F32, (1, 20, 5, 6), Layout.blocked(4, 1, 8))
    channel = Var("c")
    around = plus(
        Load(x, (ZERO, channel, add(I, -1), add(J, 1))), Load(x, (ZERO, channel, add(I, 1), J))
    )
    nest = For("i", 5, SERIAL, For("j", 6, SERIAL, For("c", 20, kind, Store(
        out, (ZERO, channel, I, J), around))))  # fmt: skip
    check(Function("kernel", (x, out), nest), {"x": normal(1, 20, 5, 6)})


def test_indices_that_do_not_simplify():
    """Quotients and remainders over fused loops, minima, and a negative index."""
    x, out = Buffer("x", F32, (6, 7)), Buffer("out", F32, (42,))
    row = mod(add(floordiv(I, 7), -3), 6)
    column = Binary(BinaryOp.MIN, mod(I, 7), Const(4, I64))
    for kind in (SERIAL, VECTORIZED, PARALLEL, UNROLLED):
        nest = For("i", 42, kind, Store(out, (I,), Load(x, (row, column))))
        check(Function("kernel", (x, out), nest), {"x": normal(6, 7)}, threads=2)


def test_a_prefetch_beyond_the_end_is_harmless():
    x, out = Buffer("x", F32, (64,)), Buffer("out", F32, (64,))
    body = Block((Prefetch(x, (add(I, 1 << 20),), 2), Store(out, (I,), Load(x, (I,)))))
    check(Function("kernel", (x, out), For("i", 64, SERIAL, body)), {"x": normal(64)})


def test_a_load_after_a_store_sees_it():
    """A value loaded from a buffer is dropped when the buffer is stored to."""
    x, out = Buffer("x", F32, (16,)), Buffer("out", F32, (16,))
    at = (I,)
    body = Block(
        (
            Store(out, at, Load(x, at)),
            Store(out, at, plus(Load(out, at), Load(x, at))),
            Store(out, at, plus(Load(out, at), Load(out, at))),
        )
    )
    for kind in (SERIAL, VECTORIZED, UNROLLED):
        check(Function("kernel", (x, out), For("i", 16, kind, body)), {"x": normal(16)})


def test_parallel_loops_within_parallel_loops_and_extents_of_one():
    x, out = Buffer("x", F32, (1, 6, 5)), Buffer("out", F32, (1, 6, 5))
    body = Store(out, (I, J, K), plus(Load(x, (I, J, K)), Const(1.0, F32)))
    nest = For("i", 1, PARALLEL, For("j", 6, PARALLEL, For("k", 5, PARALLEL, body)))
    for threads in (1, 2, 3):
        check(Function("kernel", (x, out), nest), {"x": normal(1, 6, 5)}, threads)


WHILES = {
    "registers": """
@function
def collatz(x: i64[9], y: i64[9, 2]):
    for i in parallel(9):
        with alloc(i64[2] in register) as r:
            r[0] = x[i]
            r[1] = 0
            while 1 < r[0]:
                if r[0] % 2 == 0:
                    r[0] = r[0] // 2
                else:
                    r[0] = r[0] * 3 + 1
                r[1] = r[1] + 1
            y[i, 0] = r[0]
            y[i, 1] = r[1]
""",
    "memory": """
@function
def sorted(x: i64[9], y: i64[9]):
    for i in serial(9):
        with alloc(i64[()] in register) as at:
            at[()] = i
            y[i] = x[i]
            while x[i] < y[at[()] - 1] if 0 < at[()] else False:
                y[at[()]] = y[at[()] - 1]
                at[()] = at[()] - 1
            y[at[()]] = x[i]
""",
    "nested, with vectors": """
@function
def rows(x: i64[9], y: i64[9, 21]):
    with alloc(i64[2] in register) as n:
        with alloc(i64[21] in register) as total:
            for v in vectorized(21):
                total[v] = v
            n[0] = 0
            while n[0] < 9:
                n[1] = 0
                while n[1] < x[n[0]]:
                    for w in vectorized(21):
                        total[w] = total[w] + n[1]
                    n[1] = n[1] + 5
                for l in vectorized(21):
                    y[n[0], l] = total[l]
                n[0] = n[0] + 1
""",
}


@pytest.mark.parametrize("text", WHILES.values(), ids=WHILES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_while_loop_hands_on_registers(text, threads):
    x = np.array([7, 1, 6, 27, 2, 0, 3, 97, 3], np.int64)
    check(parse_ir(text), {"x": x}, threads)


def test_a_while_loop_sorts():
    """The interpreter knows what a while loop means."""
    x = RANDOM.permutation(9)
    actual = run_loops(parse_ir(WHILES["memory"]), {"x": x})["y"]
    np.testing.assert_array_equal(actual, np.arange(9))


def test_a_gather_sees_what_its_indices_became():
    """Lanes read x at indices that change between two reads."""
    text = """
@function
def twice(x: f32[32], at: i64[8], y: f32[2, 8]):
    for lane in vectorized(8):
        y[0, lane] = x[at[lane]]
        at[lane] = at[lane] + 1
        y[1, lane] = x[at[lane]]
"""
    at = RANDOM.integers(0, 31, 8)
    function, x = parse_ir(text), normal(32)
    actual = run_compiled(function, {"x": x, "at": at.copy()})
    np.testing.assert_array_equal(actual["y"], [x[at], x[at + 1]])


def test_lanes_beyond_a_tail_do_not_read_for_the_others():
    """The condition holds in lane 3 of a loop over 3: nothing is read there, far outside."""
    x, out = Buffer("x", F32, (4,)), Buffer("out", F32, (3,))
    only_beyond = Binary(BinaryOp.EQ, mod(mul(J, 7), 5), Const(1, I64))
    far = Load(x, (mul(add(I, 1), 1 << 40),))
    store = Store(out, (J,), Select(only_beyond, far, Const(0.0, F32)))
    function = Function("kernel", (x, out), For("i", 1, SERIAL, For("j", 3, VECTORIZED, store)))
    check(function, {"x": normal(4)})


@pytest.mark.parametrize("bound", [0.0, 9.0])
def test_a_register_that_lanes_store_to_under_a_condition(bound):
    x, out = Buffer("x", F32, (7,)), Buffer("out", F32, (1,))
    flag = Buffer("flag", F32, (1,), scope=MemoryScope.REGISTER)
    at = (ZERO,)
    above = Binary(BinaryOp.LT, Const(bound, F32), Load(x, (J,)))
    parts = (
        Store(flag, at, Const(1.0, F32)),
        For("j", 7, VECTORIZED, If(above, Store(flag, at, Const(7.0, F32)))),
        Store(out, at, Load(flag, at)),
    )
    check(Function("kernel", (x, out), Alloc(flag, Block(parts))), {"x": normal(7)})


def test_a_constant_holds_what_its_dtype_does():
    """300 as i8 is 44, 0.1 as f32 no longer that of f64."""
    x, out = Buffer("x", DType.F64, (4,)), Buffer("out", DType.F64, (4,))
    wrapped = Cast(DType.F64, Cast(DType.I8, Const(300, DType.I32)))
    rounded = Cast(DType.F64, Cast(F32, Const(0.1, DType.F64)))
    value = plus(Load(x, (I,)), plus(wrapped, rounded))
    function = Function("kernel", (x, out), For("i", 4, SERIAL, Store(out, (I,), value)))
    check(function, {"x": np.zeros(4)}, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [DType.I8, DType.I64, DType.U8])
@pytest.mark.parametrize("kind", [SERIAL, VECTORIZED])
def test_powers_of_integers(dtype, kind):
    bases = [0, 0, 1, 2, 2, 3, 3, 7, 1, 0]
    exponents = [0, 64, 100, 64, 6, 4, 0, 2, 65, 1]
    if dtype.is_signed:
        bases += [-1, -1, -1, 1, 2, -3]
        exponents += [64, 65, -3, -1, -1, -2]
    size = len(bases)
    x, y, out = (Buffer(name, dtype, (size,)) for name in ("x", "y", "out"))
    power = Binary(BinaryOp.POW, Load(x, (I,)), Load(y, (I,)))
    function = Function("kernel", (x, y, out), For("i", size, kind, Store(out, (I,), power)))
    operands = (np.array(values).astype(dtype.numpy) for values in (bases, exponents))
    check(function, dict(zip(("x", "y"), operands, strict=True)))
