"""The statements of a loop nest without the expressions in them."""

from __future__ import annotations

from collections.abc import Iterator

from farrier.ir.loop import Alloc, Block, For, If, Stmt, While


def statements(stmt: Stmt) -> Iterator[Stmt]:
    """`stmt` and every statement below it, in order."""
    yield stmt
    if isinstance(stmt, Block):
        for child in stmt.statements:
            yield from statements(child)
    elif isinstance(stmt, For | Alloc | While):
        yield from statements(stmt.body)
    elif isinstance(stmt, If):
        yield from statements(stmt.then)
        if stmt.otherwise is not None:
            yield from statements(stmt.otherwise)
