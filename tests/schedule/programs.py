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
BF16 = (DType.BF16, DType.BF16)  # The operands of a product.
U8_I8 = (DType.U8, DType.I8)


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


def real(value: e.Expr) -> e.Expr:
    """A value as f32."""
    return value if e.dtype_of(value) is F32 else e.Cast(F32, value)


def requantized(value: e.Expr) -> e.Expr:
    """Sums of i32 as u8: scaled, rounded, clipped."""
    scaled = e.Unary(e.UnaryOp.ROUND, times(real(value), Const(0.001, F32)))
    clipped = Binary(BinaryOp.MIN, relu(scaled), Const(255.0, F32))
    return e.Cast(DType.U8, clipped)


def sum_of(*operands: DType) -> DType:
    """The dtype in which products of narrow operands are summed."""
    return F32 if operands[0].is_float else DType.I32


def matmul(m: int, n: int, k: int) -> TensorProgram:
    """y[m, n] = sum_k x[m, k] * w[k, n]"""
    x = Buffer("x", F32, (m, k))
    w = Buffer("w", F32, (k, n), None, MemoryScope.CONSTANT)
    y = Buffer("y", F32, (m, n))
    body = total(axes(k=k), times(load(x, "m", "k"), load(w, "k", "n")))
    return TensorProgram("matmul", (x, w), (Stage(y, axes(m=m, n=n), body),), (y,))


def narrow_matmul(
    m: int,
    n: int,
    k: int,
    *follow: Callable[[e.Expr], e.Expr],
    operands: tuple[DType, DType] = BF16,
) -> TensorProgram:
    """y[m, n] = sum_k x[m, k] * w[k, n], multiplied in narrow dtypes and summed in 32 bits;
    `follow` are applied to the sum, a stage each."""
    wide = sum_of(*operands)
    x = Buffer("x", operands[0], (m, k))
    w = Buffer("w", operands[1], (k, n), None, MemoryScope.CONSTANT)
    factors = (e.Cast(wide, load(x, "m", "k")), e.Cast(wide, load(w, "k", "n")))
    value: e.Expr = total(axes(k=k), times(*factors))
    stages = []
    for number, apply in enumerate((*follow, None)):
        name, scope = (f"s{number}", MemoryScope.WORKSPACE) if apply else ("y", MemoryScope.PARAM)
        buffer = Buffer(name, e.dtype_of(value), (m, n), None, scope)
        stages.append(Stage(buffer, axes(m=m, n=n), value))
        value = apply(load(buffer, "m", "n")) if apply else value
    return TensorProgram("matmul", (x, w), tuple(stages), (stages[-1].buffer,))


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
    operands: tuple[DType, DType] = (F32, F32),
    planar: bool = False,
    groups: int = 1,
) -> TensorProgram:
    """relu(conv(x, w) + b) in NCHW<block>c; the padding is the input's halo, or a Select if plain.
    The factors are of `operands`, the rest of f32; the input lies in planes if `planar`."""
    inputs, outputs = channels // groups, filters // groups  # of a group
    out = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1

    def blocked(halo: int) -> Layout | None:
        around = ((0, 0), (0, 0), (halo, halo), (halo, halo)) if halo else ()
        return Layout.blocked(4, 1, block, around) if block else None

    planes = Layout(Layout.plain(4).dims, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    left, right = operands
    wide = sum_of(*operands)
    x = Buffer("x", left, (1, channels, size, size), planes if planar else blocked(padding))
    w = Buffer("w", right, (filters, inputs, kernel, kernel), None, MemoryScope.CONSTANT)
    b = Buffer("b", F32, (filters,), None, MemoryScope.CONSTANT)
    conv = Buffer("conv", wide, (1, filters, out, out), blocked(0), MemoryScope.WORKSPACE)
    y = Buffer("y", F32, (1, filters, out, out), blocked(halo_out))
    rows, cols = (
        e.sub(e.add(e.mul(Var(o), stride), e.mul(Var(k), dilation)), padding)
        for o, k in (("oh", "kh"), ("ow", "kw"))
    )
    first = e.mul(e.floordiv(Var("oc"), outputs), inputs) if groups > 1 else Const(0, DType.I64)
    read: e.Expr = Load(x, (Var("n"), e.add(first, Var("ic")), rows, cols))
    if padding and not block:
        for at in (rows, cols):
            inside = e.both(e.less(-1, at), e.less(at, size))
            read = e.Select(inside, read, Const(0.0, F32))
    factors = read, load(w, "oc", "ic", "kh", "kw")
    product = times(*(factors if left is F32 else (e.Cast(wide, factor) for factor in factors)))
    reduced = axes(ic=inputs, kh=kernel, kw=kernel)
    points = axes(n=1, oc=filters, oh=out, ow=out)
    stages = (
        Stage(conv, points, total(reduced, product)),
        Stage(y, points, relu(plus(real(load(conv, "n", "oc", "oh", "ow")), load(b, "oc")))),
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
    return {b.name: _some(b, rng) for b in program.inputs}


def _some(buffer: Buffer, rng: np.random.Generator) -> np.ndarray:
    """Normal floats, or any integers of the dtype."""
    kind = buffer.dtype.numpy
    if buffer.dtype.is_float:
        return rng.standard_normal(buffer.shape).astype(kind)
    low, high = buffer.dtype.limits
    return rng.integers(low, high, buffer.shape, endpoint=True).astype(kind)


def run(function: Function, program: TensorProgram, seed: int = 0) -> dict[str, np.ndarray]:
    return run_loops(function, inputs_of(program, seed))


def assert_same_result(function: Function, program: TensorProgram, seed: int = 0) -> None:
    """The scheduled function computes what the naive nests compute."""
    expected = run(to_loops(program), program, seed)
    actual = run(function, program, seed)
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-5, atol=1e-5, err_msg=name)
