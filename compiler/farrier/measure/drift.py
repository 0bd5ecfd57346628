"""The reference kernel that shows whether the speed of a device changed during a batch.

The kernel sums one small array repeatedly: a chain of dependent additions on first-level cache
data, whose time depends only on the clock frequency. On a GPU every thread does so.
"""

from __future__ import annotations

import functools

import numpy as np

from farrier.ir import expr as e
from farrier.ir.dim import number
from farrier.ir.expr import Binary, BinaryOp, Buffer, Const, Load, MemoryScope, Var
from farrier.ir.loop import Alloc, Block, For, Function, LoopKind, Store
from farrier.ir.types import DType
from farrier.lower.runner import run_loop_passes
from farrier.measure.runner import Keeps
from farrier.targets import Target
from farrier_device.measurement import Argument, Candidate, Role

SYMBOL = "farrier_drift"
_ROUNDS = 64
_STEPS = 128
_LANES = 8
_BLOCKS, _THREADS = 64, 64  # Enough to occupy most GPUs; more would only take longer to emulate.
_ROUNDS_OF_THREADS = 16


@functools.cache
def drift_object(target: Target) -> bytes:
    """Return the object file of the reference kernel."""
    (object_code,) = target.backend.compile([_lowered(target)], target)
    return object_code


def drift_candidate(target: Target, blobs: Keeps) -> Candidate:
    """Return the reference kernel with its arguments: about 10 µs a call, depending on the clock
    frequency."""
    function = _lowered(target)
    source, result = (number(buffer.nbytes) for buffer in function.params)
    data = np.ones(source // 4, np.float32).tobytes()
    return Candidate(
        target.backend.launches(target.backend.interface(function)),
        (
            Argument(Role.INPUT, source, blob=blobs.put(data)),
            Argument(Role.SCRATCH, result),
        ),
    )


@functools.cache
def _lowered(target: Target) -> Function:
    """Return the final loops of the reference kernel."""
    if len(target.axes) == 1:
        return _function()
    return run_loop_passes(_of_threads(), target.backend.loop_passes(target))


def _of_threads() -> Function:
    """Return the reference kernel for devices with blocks of threads."""
    source = Buffer("source", DType.F32, (_STEPS,))
    result = Buffer("result", DType.F32, (_BLOCKS, _THREADS))
    total = Buffer("total", DType.F32, (1,), None, MemoryScope.LOCAL)
    zero = (Const(0, DType.I64),)
    element = Load(source, (Var("step"),))
    add = Store(total, zero, Binary(BinaryOp.ADD, Load(total, zero), element))
    steps = For("step", _STEPS, LoopKind.SERIAL, add)
    rounds = For("round", _ROUNDS_OF_THREADS, LoopKind.SERIAL, steps)
    end = Store(result, (Var("block"), Var("thread")), Load(total, zero))
    body = Block((Store(total, zero, Const(0.0, DType.F32)), rounds, end))
    threads = For("thread", _THREADS, LoopKind.THREAD, Alloc(total, body))
    return Function(SYMBOL, (source, result), For("block", _BLOCKS, LoopKind.BLOCK, threads))


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
