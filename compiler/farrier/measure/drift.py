"""The reference kernel that shows whether a device kept its pace through a batch.

It adds one small array up again and again: a chain of additions in the first-level cache, whose
time follows the clock and nothing else.
"""

from __future__ import annotations

import functools

import numpy as np

from farrier.ir import expr as e
from farrier.ir.expr import Binary, BinaryOp, Buffer, Const, Load, MemoryScope, Var
from farrier.ir.loop import Alloc, Block, For, Function, LoopKind, Store
from farrier.ir.types import DType
from farrier.measure.runner import Keeps
from farrier.targets import Target
from farrier_device.measurement import Argument, Candidate, Launch, Role

SYMBOL = "farrier_drift"
_ROUNDS = 64
_STEPS = 128
_LANES = 8


@functools.cache
def drift_object(target: Target) -> bytes:
    """The kernel as an object."""
    (made,) = target.backend.compile([_function()], target)
    return made


def drift_candidate(blobs: Keeps) -> Candidate:
    """The kernel with its arguments: some 10 µs a call, depending on the clock."""
    data = np.ones(_STEPS * _LANES, np.float32).tobytes()
    return Candidate(
        (Launch(SYMBOL),),
        (
            Argument(Role.INPUT, len(data), blob=blobs.put(data)),
            Argument(Role.SCRATCH, _LANES * 4),
        ),
    )


def _function() -> Function:
    source = Buffer("source", DType.F32, (_STEPS * _LANES,))
    result = Buffer("result", DType.F32, (_LANES,))
    total = Buffer("total", DType.F32, (_LANES,), None, MemoryScope.REGISTER)
    lane, first, last = Var("lane"), Var("first"), Var("last")
    element = Load(source, (e.add(e.mul(Var("step"), _LANES), lane),))
    add = Store(total, (lane,), Binary(BinaryOp.ADD, Load(total, (lane,)), element))
    body = For(
        "round",
        _ROUNDS,
        LoopKind.SERIAL,
        For("step", _STEPS, LoopKind.SERIAL, For("lane", _LANES, LoopKind.VECTORIZED, add)),
    )
    start = For("first", _LANES, LoopKind.VECTORIZED, Store(total, (first,), Const(0.0, DType.F32)))
    end = For("last", _LANES, LoopKind.VECTORIZED, Store(result, (last,), Load(total, (last,))))
    return Function(SYMBOL, (source, result), Alloc(total, Block((start, body, end))))
