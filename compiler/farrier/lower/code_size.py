"""How much code a loop nest makes."""

from __future__ import annotations

from farrier.ir.dim import number
from farrier.ir.loop import Effect, For, LoopKind, Stmt
from farrier.ir.statements import below

WORK = 32  # stores, unrolled, beside which a test costs nothing


def unrolled_size(stmt: Stmt) -> int:
    """Return how many stores, hints and calls the code of a statement has."""
    inside = sum(map(unrolled_size, below(stmt)))
    if isinstance(stmt, For):
        return inside * number(stmt.extent) if stmt.kind is LoopKind.UNROLLED else inside
    return inside + (stmt.effect is not Effect.NONE)
