"""Estimate the size of the code that is generated for a loop nest."""

from __future__ import annotations

from farrier.ir.dim import number
from farrier.ir.loop import Effect, For, LoopKind, Stmt
from farrier.ir.statements import below

# The unrolled stores from which on the cost of a test next to them does not show.
WORK = 32


def unrolled_size(stmt: Stmt) -> int:
    """Return the number of stores, prefetches and calls in the code of a statement after
    unrolling."""
    if stmt.effect is not Effect.NONE:
        return 1
    size = 0
    for part in below(stmt):
        size += unrolled_size(part)
    if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED:
        return size * number(stmt.extent)
    return size
