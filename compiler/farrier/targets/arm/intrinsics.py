"""Dot products of aarch64."""

from __future__ import annotations

from farrier.intrinsics.declare import Writer
from farrier.intrinsics.dot import Dot, EmitDot
from farrier.ir.types import DType


def _bytes(instruction: str) -> EmitDot:
    """An instruction that adds to a total the products of four bytes a lane, and wraps around. LLVM
    takes one lane of a register for a factor that is the same in every lane: of USDOT the u8
    (SUDOT), of the others, whose factors may be exchanged, the second."""

    def emit(writer: Writer, lanes: int, total: str, a: str, b: str) -> str:
        sums, groups = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
        left, right = (
            writer.pure(f"bitcast <{lanes} x i32> {side} to {groups}") for side in (a, b)
        )
        factors = (left, right) if instruction == "usdot" else (right, left)
        name = f"llvm.aarch64.neon.{instruction}.v{lanes}i32.v{4 * lanes}i8"
        return writer.call(name, sums, (sums, total), *((groups, factor) for factor in factors))

    return emit


def _pairs_of_bf16(writer: Writer, lanes: int, total: str, a: str, b: str) -> str:
    """A BFDOT. Its sums are rounded to odd and its denormals are zeros, but on processors with
    FEAT_EBF16 that are told otherwise: a sum may differ from one of f32 by an f32's rounding for
    each pair, which is far below that of bf16 operands."""
    sums, pairs = f"<{lanes} x float>", f"<{2 * lanes} x bfloat>"
    left, right = (writer.pure(f"bitcast <{lanes} x i32> {side} to {pairs}") for side in (a, b))
    name = f"llvm.aarch64.neon.bfdot.v{lanes}f32.v{2 * lanes}bf16"
    return writer.call(name, sums, (sums, total), (pairs, left), (pairs, right))


def _dot_of_bytes(left: DType, right: DType, feature: str, instruction: str) -> Dot:
    return Dot(
        name=f"neon_dot_{left.value}_{right.value}",
        group=4,
        left=left,
        right=right,
        total=DType.I32,
        lanes=(2, 4),
        feature=feature,
        emit=_bytes(instruction),
    )


DOTS = (
    _dot_of_bytes(DType.U8, DType.I8, "i8mm", "usdot"),
    _dot_of_bytes(DType.I8, DType.I8, "asimddp", "sdot"),
    _dot_of_bytes(DType.U8, DType.U8, "asimddp", "udot"),
    Dot(
        name="neon_dot_bf16",
        group=2,
        left=DType.BF16,
        right=DType.BF16,
        total=DType.F32,
        lanes=(2, 4),
        feature="bf16",
        emit=_pairs_of_bf16,
    ),
)
