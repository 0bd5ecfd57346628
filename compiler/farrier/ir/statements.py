"""The statements of a loop nest, one below the other."""

from __future__ import annotations

from collections.abc import Iterator

from farrier.ir.loop import Alloc, Block, For, If, Stmt, While

_AROUND_ONE = (For, Alloc, While)


def below(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly below."""
    if isinstance(stmt, _AROUND_ONE):
        return (stmt.body,)
    if isinstance(stmt, Block):
        return stmt.statements
    if isinstance(stmt, If):
        return (stmt.then,) if stmt.otherwise is None else (stmt.then, stmt.otherwise)
    return ()


def walk_stmts(stmt: Stmt) -> Iterator[Stmt]:
    """The statement and all below it, in order, parents first."""
    stack = [stmt]
    while stack:
        stmt = stack.pop()
        yield stmt
        stack += reversed(below(stmt))
