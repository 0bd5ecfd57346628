"""Tensor intrinsics of x86-64."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.intrinsics.declare import TensorIntrinsic, Writer
from farrier.intrinsics.dot import Dot
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, Var
from farrier.ir.loop import For, Function, LoopKind, Store
from farrier.ir.types import DType


def _broadcast_fma(name: str, lanes: int, feature: str) -> TensorIntrinsic:
    """c[l] = c[l] + a * b[l] for `lanes` f32 lanes, rounded once: one vfmadd231ps."""
    c, a, b = (
        Buffer("c", DType.F32, (lanes,)),
        Buffer("a", DType.F32, ()),
        Buffer("b", DType.F32, (lanes,)),
    )
    lane: tuple[Expr, ...] = (Var("l"),)
    product = Binary(BinaryOp.MUL, Load(a, ()), Load(b, lane))
    update = Store(c, lane, Binary(BinaryOp.ADD, Load(c, lane), product))
    semantics = Function(name, (c, a, b), For("l", lanes, LoopKind.SERIAL, update))

    def emit(writer: Writer, operands: Sequence[str]) -> str:
        total, scalar, vector = operands
        kind = f"<{lanes} x float>"
        arguments = ((kind, scalar), (kind, vector), (kind, total))
        return writer.call(f"llvm.fma.v{lanes}f32", kind, *arguments)

    return TensorIntrinsic(name, semantics, frozenset({feature}), emit)


def _dot_bf16(writer: Writer, lanes: int, total: str, a: str, b: str) -> str:
    """total + a[0] * b[0] + a[1] * b[1], each of the sums rounded: one vdpbf16ps."""
    pairs, sums = f"<{2 * lanes} x bfloat>", f"<{lanes} x float>"
    left, right = (writer.pure(f"bitcast <{lanes} x i32> {side} to {pairs}") for side in (a, b))
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
    return writer.call(name, sums, (sums, total), (pairs, left), (pairs, right))


def _dot_u8_i8(writer: Writer, lanes: int, total: str, a: str, b: str) -> str:
    """total + a[0] * b[0] + … + a[3] * b[3] in i32, wrapping around: one vpdpbusd."""
    sums, bytes_ = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
    left, right = (writer.pure(f"bitcast {sums} {side} to {bytes_}") for side in (a, b))
    name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    return writer.call(name, sums, (sums, total), (bytes_, left), (bytes_, right))


AVX512_DOT_U8_I8 = Dot(
    name="avx512_dot_u8_i8",
    group=4,
    left=DType.U8,
    right=DType.I8,
    total=DType.I32,
    lanes=(4, 8, 16),
    feature="avx512_vnni",
    emit=_dot_u8_i8,
)
AVX512_DOT_BF16 = Dot(
    name="avx512_dot_bf16",
    group=2,
    left=DType.BF16,
    right=DType.BF16,
    total=DType.F32,
    lanes=(4, 8, 16),
    feature="avx512_bf16",
    emit=_dot_bf16,
)
AVX512_BROADCAST_FMA = _broadcast_fma("avx512_broadcast_fma", 16, "x86-64-v4")
AVX2_BROADCAST_FMA = _broadcast_fma("avx2_broadcast_fma", 8, "x86-64-v3")
INTRINSICS = (AVX512_BROADCAST_FMA, AVX2_BROADCAST_FMA)
DOTS = (AVX512_DOT_BF16, AVX512_DOT_U8_I8)
