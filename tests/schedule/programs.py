"""Small tensor programs that schedules are tried on, and their inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from farrier.ir import expr as e
from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Load,
    MemoryScope,
    Reduce,
    ReduceOp,
    Var,
)
from farrier.ir.loop import Function
from farrier.ir.run_loops import run_loops
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType, Layout
from farrier.lower.loops import to_loops

F32 = DType.F32


def axes(**extents: int) -> tuple[Axis, ...]:
    return tuple(Axis(name, extent) for name, extent in extents.items())


def total(reduced: tuple[Axis, ...], body: e.Expr) -> Reduce:
    return Reduce(ReduceOp.SUM, reduced, body)


def times(left: e.Expr, right: e.Expr) -> e.Expr:
    return Binary(BinaryOp.MUL, left, right)


def plus(left: e.Expr, right: e.Expr) -> e.Expr:
    return Binary(BinaryOp.ADD, left, right)


def load(buffer: Buffer, *indices: e.Expr | str | int) -> Load:
    return Load(buffer, tuple(Var(i) if isinstance(i, str) else e.index(i) for i in indices))


def relu(value: e.Expr) -> e.Expr:
    return Binary(BinaryOp.MAX, value, Const(0.0, F32))


def matmul(m: int, n: int, k: int) -> TensorProgram:
    """y[m, n] = sum_k x[m, k] * w[k, n]"""
    x = Buffer("x", F32, (m, k))
    w = Buffer("w", F32, (k, n), None, MemoryScope.CONSTANT)
    y = Buffer("y", F32, (m, n))
    body = total(axes(k=k), times(load(x, "m", "k"), load(w, "k", "n")))
    return TensorProgram("matmul", (x, w), (Stage(y, axes(m=m, n=n), body),), (y,))


def bf16_matmul(m: int, n: int, k: int, *follow: Callable[[e.Expr], e.Expr]) -> TensorProgram:
    """y[m, n] = sum_k x[m, k] * w[k, n], multiplied in bf16 and summed in f32; `follow` are applied
    to the sum, a stage each."""
    x = Buffer("x", DType.BF16, (m, k))
    w = Buffer("w", DType.BF16, (k, n), None, MemoryScope.CONSTANT)
    factors = (e.Cast(F32, load(x, "m", "k")), e.Cast(F32, load(w, "k", "n")))
    names = [*(f"s{number}" for number in range(len(follow))), "y"]
    buffers = [Buffer(name, F32, (m, n), None, MemoryScope.WORKSPACE) for name in names[:-1]]
    buffers.append(Buffer("y", F32, (m, n)))
    stages = [Stage(buffers[0], axes(m=m, n=n), total(axes(k=k), times(*factors)))]
    for before, after, apply in zip(buffers, buffers[1:], follow, strict=False):
        stages.append(Stage(after, axes(m=m, n=n), apply(load(before, "m", "n"))))
    return TensorProgram("matmul", (x, w), tuple(stages), (buffers[-1],))


def conv_bias_relu(
    channels: int,
    filters: int,
    size: int,
    kernel: int = 3,
    stride: int = 1,
    dilation: int = 1,
    padding: int = 1,
    block: int | None = 16,
    halo_out: int = 0,
    dtype: DType = F32,
    planar: bool = False,
) -> TensorProgram:
    """relu(conv(x, w) + b) in NCHW<block>c; the padding is the input's halo, or a Select if
    plain. What is multiplied is of `dtype`, the rest of f32; the input lies in planes if
    `planar`."""
    out = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1

    def blocked(halo: int) -> Layout | None:
        around = ((0, 0), (0, 0), (halo, halo), (halo, halo)) if halo else ()
        return Layout.blocked(4, 1, block, around) if block else None

    planes = Layout(Layout.plain(4).dims, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    x = Buffer("x", dtype, (1, channels, size, size), planes if planar else blocked(padding))
    w = Buffer("w", dtype, (filters, channels, kernel, kernel), None, MemoryScope.CONSTANT)
    b = Buffer("b", F32, (filters,), None, MemoryScope.CONSTANT)
    conv = Buffer("conv", F32, (1, filters, out, out), blocked(0), MemoryScope.WORKSPACE)
    y = Buffer("y", F32, (1, filters, out, out), blocked(halo_out))
    rows, cols = (
        e.sub(e.add(e.mul(Var(o), stride), e.mul(Var(k), dilation)), padding)
        for o, k in (("oh", "kh"), ("ow", "kw"))
    )
    read: e.Expr = Load(x, (Var("n"), Var("ic"), rows, cols))
    if padding and not block:
        for at in (rows, cols):
            inside = e.both(e.less(-1, at), e.less(at, size))
            read = e.Select(inside, read, Const(0.0, F32))
    factors = read, load(w, "oc", "ic", "kh", "kw")
    product = times(*(factors if dtype is F32 else (e.Cast(F32, factor) for factor in factors)))
    reduced = axes(ic=channels, kh=kernel, kw=kernel)
    points = axes(n=1, oc=filters, oh=out, ow=out)
    stages = (
        Stage(conv, points, total(reduced, product)),
        Stage(y, points, relu(plus(load(conv, "n", "oc", "oh", "ow"), load(b, "oc")))),
    )
    return TensorProgram("conv_bias_relu", (x, w, b), stages, (y,))


def softmax(rows: int, columns: int) -> TensorProgram:
    """y = exp(x - max(x)) / sum(exp(x - max(x))) by rows"""
    x = Buffer("x", F32, (rows, columns))
    most = Buffer("most", F32, (rows,), None, MemoryScope.WORKSPACE)
    power = Buffer("power", F32, (rows, columns), None, MemoryScope.WORKSPACE)
    norm = Buffer("norm", F32, (rows,), None, MemoryScope.WORKSPACE)
    y = Buffer("y", F32, (rows, columns))
    shifted = Binary(BinaryOp.SUB, load(x, "i", "j"), load(most, "i"))
    stages = (
        Stage(most, axes(i=rows), Reduce(ReduceOp.MAX, axes(k=columns), load(x, "i", "k"))),
        Stage(power, axes(i=rows, j=columns), e.Unary(e.UnaryOp.EXP, shifted)),
        Stage(norm, axes(i=rows), total(axes(k=columns), load(power, "i", "k"))),
        Stage(
            y,
            axes(i=rows, j=columns),
            Binary(BinaryOp.DIV, load(power, "i", "j"), load(norm, "i")),
        ),
    )
    return TensorProgram("softmax", (x,), stages, (y,))


def inputs_of(program: TensorProgram, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {b.name: rng.standard_normal(b.shape).astype(b.dtype.numpy) for b in program.inputs}


def run(function: Function, program: TensorProgram, seed: int = 0) -> dict[str, np.ndarray]:
    return run_loops(function, inputs_of(program, seed))


def assert_same_result(function: Function, program: TensorProgram, seed: int = 0) -> None:
    """The scheduled function computes what the naive nests compute."""
    expected = run(to_loops(program), program, seed)
    found = run(function, program, seed)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5, err_msg=name)
