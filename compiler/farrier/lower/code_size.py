"""How much code a loop nest makes."""

from __future__ import annotations

from farrier.ir.dim import number
from farrier.ir.loop import Alloc, Block, For, If, LoopKind, Stmt, While

WORK = 32  # stores, unrolled, beside which a test costs nothing


def unrolled_size(stmt: Stmt) -> int:
    """How many stores the code of a statement has."""
    if isinstance(stmt, For):
        size = unrolled_size(stmt.body)
        return size * number(stmt.extent) if stmt.kind is LoopKind.UNROLLED else size
    if isinstance(stmt, Alloc | While):
        return unrolled_size(stmt.body)
    if isinstance(stmt, Block):
        return sum(map(unrolled_size, stmt.statements))
    if isinstance(stmt, If):
        rest = 0 if stmt.otherwise is None else unrolled_size(stmt.otherwise)
        return unrolled_size(stmt.then) + rest
    return 1
