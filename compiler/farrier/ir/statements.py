"""Traverse and rebuild the statements of a loop nest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from farrier.ir.loop import Block, Stmt, Store
from farrier.ir.walk import mapper, parts

_BELOW = parts("Stmt")
_MAPPED = mapper("Stmt")


def below(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return the statements directly within `stmt`."""
    # Half of all statements are stores, and nests are traversed very often.
    return () if type(stmt) is Store else _BELOW[type(stmt)](stmt)


def walk_stmts(stmt: Stmt) -> Iterator[Stmt]:
    """Yield `stmt` and all statements within it in pre-order."""
    stack = [stmt]
    while stack:
        stmt = stack.pop()
        yield stmt
        if type(stmt) is not Store:
            stack += _BELOW[type(stmt)](stmt)[::-1]


def map_children(stmt: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """Return `stmt` with `change` applied to each statement directly within it; `stmt` itself if
    none changes."""
    changed: Stmt = _MAPPED[type(stmt)](stmt, change)
    return changed


def block(statements: list[Stmt]) -> Stmt:
    """Return a sequence of statements as one statement; nested Blocks are flattened."""
    flat: list[Stmt] = []
    for stmt in statements:
        flat += stmt.statements if isinstance(stmt, Block) else (stmt,)
    return flat[0] if len(flat) == 1 else Block(tuple(flat))
