"""Properties of lowered kernels that the renderers of all GPUs use."""

from __future__ import annotations

import math

from farrier.ir.dim import Extent, bounds
from farrier.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, MemoryScope, Size, Var
from farrier.ir.loop import Alloc, Function
from farrier.ir.statements import walk_stmts
from farrier.ir.threads import LoweredLaunch, extents_of, launches
from farrier.targets.interface import EntryPoint


def workspaces(function: Function) -> list[Buffer]:
    """Return the workspace buffers of a kernel."""
    allocs = (s.buffer for s in walk_stmts(function.body) if isinstance(s, Alloc))
    return [buffer for buffer in allocs if buffer.scope is MemoryScope.WORKSPACE]


def entry_points(function: Function) -> tuple[EntryPoint, ...]:
    """Return the entry points of a lowered kernel, in the order of its launches."""
    points = []
    for position, launch in enumerate(launches(function)):
        blocks: Extent = 1
        for loop in launch.blocks:
            blocks = blocks * loop.extent
        threads = math.prod(extents_of(LoweredLaunch.of(launch).threads))
        points.append(EntryPoint(f"_{position}", function.over_dims(blocks), threads))
    return tuple(points)


def is_natural(expr: Expr) -> bool:
    """Check whether an integer expression cannot be negative because of its form: it combines
    non-negative constants, loop variables and sizes by operators that preserve the property. Loop
    variables always count from zero. Return False if the form does not decide it."""
    match expr:
        case Const(value, _):
            return value >= 0
        case Var():
            return True
        case Size(extent):
            return bounds(extent)[0] >= 0
        case Binary(
            BinaryOp.ADD | BinaryOp.MUL | BinaryOp.DIV | BinaryOp.MOD | BinaryOp.MIN | BinaryOp.MAX,
            left,
            right,
        ):
            return is_natural(left) and is_natural(right)
    return False
