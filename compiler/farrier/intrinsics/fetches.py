"""The declaration of asynchronous copies of whole tiles to workgroup memory, which one thread
starts for its block. Unlike the copies of `copies.py`, asynchronous products see them once they are
complete, without a barrier that publishes."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.errors import CompilerError
from farrier.intrinsics.declare import TensorIntrinsic, Writer
from farrier.ir.expr import Buffer, Load, MemoryScope, Var
from farrier.ir.instr import Operand
from farrier.ir.loop import For, Function, LoopKind, Store
from farrier.ir.threads import fetch_name
from farrier.ir.types import DType


def declared(
    dtypes: Sequence[DType], rows: Sequence[int], row_bytes: int, feature: str
) -> tuple[TensorIntrinsic, ...]:
    """Return the tensor intrinsics that copy tiles of some `rows` with `row_bytes` bytes each."""
    return tuple(
        _declared(dtype, count, row_bytes // dtype.nbytes, feature)
        for dtype in dtypes
        for count in rows
    )


def _declared(dtype: DType, rows: int, width: int, feature: str) -> TensorIntrinsic:
    at = Var("i"), Var("j")
    target = Buffer("target", dtype, (rows, width), None, MemoryScope.WORKGROUP)
    source = Buffer("source", dtype, (rows, width))
    body = For("j", width, LoopKind.SERIAL, Store(target, at, Load(source, at)))
    nest = For("i", rows, LoopKind.SERIAL, body)
    name = fetch_name(dtype, rows)
    return TensorIntrinsic(
        name, Function(name, (target, source), nest), frozenset({feature}), _by_the_device
    )


def _by_the_device(writer: Writer, operands: Sequence[Operand]) -> Operand:
    raise CompilerError("a copy that goes on by itself has no value")
