"""The declaration of asynchronous copies of whole tiles to workgroup memory, which one thread
starts for its block. Unlike the copies of `copies.py`, asynchronous products see them once they are
complete, without a barrier that publishes."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.intrinsics.copies import WHY_NO_EMITTER
from farrier.intrinsics.declare import TensorIntrinsic, rendered
from farrier.ir.expr import Buffer, Load, MemoryScope, Var
from farrier.ir.loop import Store
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
    body, loops = Store(target, at, Load(source, at)), (("i", rows), ("j", width))
    name = fetch_name(dtype, rows)
    return rendered(name, (target, source), loops, body, feature, WHY_NO_EMITTER)
