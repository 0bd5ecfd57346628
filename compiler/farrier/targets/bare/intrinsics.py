"""The dot products of four bytes in a 32-bit register, for cores without vector registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from farrier.intrinsics.declare import Writer
from farrier.intrinsics.dot import Dot
from farrier.ir import instr
from farrier.ir.instr import F32, I8, I32, Operand
from farrier.ir.types import DType
from farrier.targets.bare.cores import DSP, MULTIPLIES
from farrier.targets.llvm.builder import Builder

_BITS = 8
# (writer, total, a, b) -> the new total, of groups of four bytes.
_Add: TypeAlias = Callable[[Writer, Operand, Operand, Operand], Operand]


def _in_pairs(left: DType, right: DType) -> _Add:
    """Return an emitter of the dot product of four bytes by two SMLAD instructions. The first
    multiplies the even bytes of both factors, extended to 16 bits, and the second the odd bytes.
    `left` and `right` are the dtypes of the factors."""

    def halves(writer: Writer, group: Operand, dtype: DType) -> tuple[Operand, Operand]:
        name = "llvm.arm.sxtb16" if dtype.is_signed else "llvm.arm.uxtb16"
        odd = writer.call("llvm.fshr.i32", I32, group, group, instr.number_of(I32, _BITS))
        return writer.call(name, I32, group), writer.call(name, I32, odd)

    def add(writer: Writer, total: Operand, a: Operand, b: Operand) -> Operand:
        for pair in zip(halves(writer, a, left), halves(writer, b, right), strict=True):
            total = writer.call("llvm.arm.smlad", I32, *pair, total)
        return total

    return add


def _one_by_one(left: DType, right: DType) -> _Add:
    """Return an emitter of the dot product of four bytes that extracts, multiplies and adds each
    pair of bytes separately. `left` and `right` are the dtypes of the factors."""

    def byte(writer: Writer, group: Operand, number: int, dtype: DType) -> Operand:
        shifted = writer.op(instr.LSHR, group, instr.number_of(I32, _BITS * number))
        narrow = writer.convert(instr.TRUNC, shifted, I8)
        return writer.convert(instr.SEXT if dtype.is_signed else instr.ZEXT, narrow, I32)

    def add(writer: Writer, total: Operand, a: Operand, b: Operand) -> Operand:
        for number in range(4):
            factors = byte(writer, a, number, left), byte(writer, b, number, right)
            total = writer.op(instr.ADD, total, writer.op(instr.MUL, *factors))
        return total

    return add


def to_nearest_i32(b: Builder, x: Operand) -> Operand:
    """Emit VCVTR, which converts an f32 to an i32 in the current rounding mode. After reset, the
    mode is round to nearest."""
    return b.bitcast(b.call("llvm.arm.vcvtr.f32", F32, x), I32)


def rounded_high(b: Builder, x: Operand, y: Operand) -> Operand:
    """Emit VRMULH, which computes the upper half of x · y + 2³¹ in each of four lanes."""
    return b.call("llvm.arm.mve.vrmulh.v4i32", x.type, x, y, instr.number_of(I32, 0))


def _dots(feature: str, add_of: Callable[[DType, DType], _Add], parts: int) -> tuple[Dot, ...]:
    """Return the dot products of u8 with i8 and of i8 with i8. `add_of` returns the emitter for the
    dtypes of the factors."""

    def dot(left: DType) -> Dot:
        add = add_of(left, DType.I8)
        return Dot(
            name=f"{feature}_dot_{left.value}_i8",
            group=4,
            left=left,
            right=DType.I8,
            total=DType.I32,
            lanes=(1,),
            feature=feature,
            emit=lambda writer, lanes, total, a, b: add(writer, total, a, b),
            parts=parts,
        )

    return dot(DType.I8), dot(DType.U8)


DOTS = (*_dots(DSP, _in_pairs, 2), *_dots(MULTIPLIES, _one_by_one, 4))
