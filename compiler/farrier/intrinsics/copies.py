"""The declaration of asynchronous copies to workgroup memory, which proceed while the thread
continues."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.errors import CompilerError
from farrier.intrinsics.declare import TensorIntrinsic, Writer
from farrier.ir.expr import Buffer, Const, Load, MemoryScope, Var
from farrier.ir.instr import Operand
from farrier.ir.loop import For, Function, LoopKind, Store
from farrier.ir.types import DType


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
        TensorIntrinsic(
            name,
            Function(name, params, For("i", count, LoopKind.SERIAL, Store(target, at, value))),
            frozenset({feature}),
            _by_the_device,
        )
        for name, params, value in bodies
    )


def _by_the_device(writer: Writer, operands: Sequence[Operand]) -> Operand:
    raise CompilerError("a copy that goes on by itself has no value")
