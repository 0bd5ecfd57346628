"""The statements of a loop nest, one below the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from farrier.ir.loop import Alloc, Block, For, If, Stmt, Store, While


def below(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly below."""
    # By their exact types, the commonest first: nests are walked again and again.
    if type(stmt) is Store:
        return ()
    if type(stmt) is For or type(stmt) is Alloc or type(stmt) is While:
        return (stmt.body,)
    if type(stmt) is Block:
        return stmt.statements
    if type(stmt) is If:
        return (stmt.then,) if stmt.otherwise is None else (stmt.then, stmt.otherwise)
    return ()


def walk_stmts(stmt: Stmt) -> Iterator[Stmt]:
    """The statement and all below it, in order, parents first."""
    stack = [stmt]
    while stack:
        stmt = stack.pop()
        yield stmt
        stack += below(stmt)[::-1]


def map_children(stmt: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """The statement with `change` made of each directly below it."""
    match stmt:
        case For(var, extent, kind, body):
            return For(var, extent, kind, change(body))
        case Block(statements):
            return Block(tuple(map(change, statements)))
        case Alloc(buffer, body):
            return Alloc(buffer, change(body))
        case If(condition, then, otherwise):
            return If(condition, change(then), None if otherwise is None else change(otherwise))
        case While(condition, body):
            return While(condition, change(body))
        case _:
            return stmt


def block(statements: list[Stmt]) -> Stmt:
    """The statements as one, blocks within them flattened."""
    flat: list[Stmt] = []
    for stmt in statements:
        flat += stmt.statements if isinstance(stmt, Block) else (stmt,)
    return flat[0] if len(flat) == 1 else Block(tuple(flat))
