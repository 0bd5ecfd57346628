"""The statements of a loop nest, one below the other."""

from __future__ import annotations

from collections.abc import Iterator

from farrier.ir.loop import Alloc, Block, For, If, Stmt, While


def below(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly below."""
    if isinstance(stmt, For | Alloc | While):
        return (stmt.body,)
    if isinstance(stmt, Block):
        return stmt.statements
    if isinstance(stmt, If):
        return (stmt.then,) if stmt.otherwise is None else (stmt.then, stmt.otherwise)
    return ()


def walk_stmts(stmt: Stmt) -> Iterator[Stmt]:
    """The statement and all below it, in order, parents first."""
    yield stmt
    for child in below(stmt):
        yield from walk_stmts(child)
