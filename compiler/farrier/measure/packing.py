"""Generate the kernel that packs constants into the layout of a schedule, for a measurement.

A compilation packs weights in numpy, once. A measurement sends them unpacked, so that one upload
serves every candidate of a task, and packs them on the device before the first call.
"""

from __future__ import annotations

from collections.abc import Sequence

from farrier.ir.blocks import block_of
from farrier.ir.expr import Buffer, Load, MemoryScope, Var
from farrier.ir.loop import Block, For, Function, LoopKind, Stmt, Store
from farrier.lower.runner import run_loop_passes
from farrier.schedule import Schedule
from farrier.targets import Target


def packing_function(
    name: str, params: Sequence[Buffer], pairs: Sequence[tuple[Buffer, Buffer]]
) -> Function:
    """Return a loop function with the parameters `params` that packs buffers. For each pair (plain,
    packed) in `pairs`, it copies every element from the plain buffer to its position in the packed
    buffer. The padding of the packed buffer is not written."""
    nests: list[Stmt] = []
    for number, (plain, packed) in enumerate(pairs):
        loops = [f"c{number}_{axis}" for axis in range(len(plain.shape))]
        point = tuple(Var(loop) for loop in loops)
        stmt: Stmt = Store(packed, point, Load(plain, point))
        for loop, extent in reversed(list(zip(loops, plain.shape, strict=True))):
            stmt = For(loop, extent, LoopKind.SERIAL, stmt)
        nests.append(stmt)
    schedule = Schedule(Function(name, tuple(params), Block(tuple(nests))))
    for number, (_, packed) in enumerate(pairs):
        for axis, extent in enumerate(packed.shape):
            block = block_of(packed.layout, axis)
            if 1 < block < extent:
                schedule.split(f"c{number}_{axis}", block)
    return schedule.function


def packing_objects(functions: Sequence[Function], target: Target) -> list[bytes]:
    """Lower and compile the functions, and return object files that define them."""
    passes = target.backend.loop_passes(target)
    return target.backend.compile([run_loop_passes(each, passes) for each in functions], target)


def as_argument(buffer: Buffer, name: str = "") -> Buffer:
    """Return the buffer as a parameter that a function may write, with another name if `name` is
    passed."""
    return Buffer(name or buffer.name, buffer.dtype, buffer.shape, buffer.layout, MemoryScope.PARAM)
