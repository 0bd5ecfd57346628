"""How much code a loop nest makes."""

from __future__ import annotations

from farrier.ir.dim import number
from farrier.ir.loop import Effect, For, LoopKind, Stmt
from farrier.ir.statements import below

WORK = 32  # stores, unrolled, beside which a test costs nothing


def unrolled_size(stmt: Stmt) -> int:
    """Return how many stores, hints and calls the code of a statement has."""
    if stmt.effect is not Effect.NONE:
        return 1
    size = 0
    for part in below(stmt):
        size += unrolled_size(part)
    if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED:
        return size * number(stmt.extent)
    return size
