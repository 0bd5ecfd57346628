"""The declaration of asynchronous copies to workgroup memory, which proceed while the thread
continues."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.intrinsics.declare import TensorIntrinsic, rendered
from farrier.ir.expr import Buffer, Const, Load, MemoryScope, Var
from farrier.ir.loop import Store
from farrier.ir.types import DType

WHY_NO_EMITTER = "a copy that goes on by itself has no value"


def copy_name(dtype: DType) -> str:
    """Return the name of the tensor intrinsic that computes target[i] = source[i]."""
    return f"copy_{dtype.value}"


def clear_name(dtype: DType) -> str:
    """Return the name of the tensor intrinsic that computes target[i] = 0."""
    return f"clear_{dtype.value}"


def declared(dtypes: Sequence[DType], nbytes: int, feature: str) -> tuple[TensorIntrinsic, ...]:
    """Return the tensor intrinsics that copy or clear `nbytes` bytes, one pair for each dtype. The
    target must have `feature`."""
    return tuple(
        each for dtype in dtypes for each in _declared(dtype, nbytes // dtype.nbytes, feature)
    )


def _declared(dtype: DType, count: int, feature: str) -> tuple[TensorIntrinsic, ...]:
    at = (Var("i"),)
    target = Buffer("target", dtype, (count,), None, MemoryScope.WORKGROUP)
    source = Buffer("source", dtype, (count,))
    zero = Const(0.0 if dtype.is_float else 0, dtype)
    bodies = (
        (copy_name(dtype), (target, source), Load(source, at)),
        (clear_name(dtype), (target,), zero),
    )
    return tuple(
        rendered(name, params, (("i", count),), Store(target, at, value), feature, WHY_NO_EMITTER)
        for name, params, value in bodies
    )
