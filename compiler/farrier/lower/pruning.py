"""Statements without what does not run or is not read."""

from __future__ import annotations

from typing import assert_never

from farrier.ir.affine import Simplifier
from farrier.ir.expr import Buffer, Const, Expr, Load
from farrier.ir.loop import (
    Alloc,
    Block,
    For,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    While,
)
from farrier.ir.operands import operands
from farrier.ir.statements import block, walk_stmts
from farrier.ir.substitute import loads

EMPTY = Block(())


def loop_over(loop: For, body: Stmt) -> Stmt:
    """The loop with another body."""
    return EMPTY if body == EMPTY else For(loop.var, loop.extent, loop.kind, body)


def either(condition: Expr, then: Stmt, otherwise: Stmt) -> Stmt:
    """The one or the other; nothing where both are."""
    if then == otherwise == EMPTY:
        return EMPTY
    return If(condition, then, None if otherwise == EMPTY else otherwise)


def pruned(stmt: Stmt, context: Simplifier) -> Stmt:
    """What is left of a statement where more is known, without tiles that nothing reads any more:
    they need no tails."""
    match stmt:
        case For(var, extent, _, body):
            return loop_over(stmt, pruned(body, context.over({var: extent})))
        case Block(statements):
            return block([pruned(s, context) for s in statements])
        case Alloc(buffer, body):
            return allocated(buffer, pruned(body, context))
        case If(condition, then, otherwise):
            truth = context.truth(condition)
            if truth is False:
                return EMPTY if otherwise is None else pruned(otherwise, context)
            then = pruned(then, context)
            if truth is True:
                return then
            return If(condition, then, None if otherwise is None else pruned(otherwise, context))
        case Store(buffer, indices, value):
            return Store(buffer, indices, context.simplify(value))
        case While() | Prefetch() | Intrinsic():
            return stmt
        case _:
            assert_never(stmt)


def allocated(buffer: Buffer, body: Stmt) -> Stmt:
    """The body with memory for a buffer; without what fills it where nothing reads it."""
    return Alloc(buffer, body) if _is_read(body, buffer) else _without_stores(body, buffer)


def _is_read(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether a statement does more with a buffer than fill it; sums that add to their own element
    fill it."""
    return any(_reads(s, buffer) for s in walk_stmts(stmt))


def _reads(stmt: Stmt, buffer: Buffer) -> bool:
    own = None
    if isinstance(stmt, Store) and stmt.buffer.name == buffer.name:
        own = Load(buffer, stmt.indices)
    loaded = (load for part in operands(stmt) for load in loads(part))
    return any(load.buffer.name == buffer.name and load != own for load in loaded) or any(
        read.name == buffer.name for read in stmt.reads
    )


def _without_stores(stmt: Stmt, buffer: Buffer) -> Stmt:
    """The statement without what fills a buffer that nothing reads."""
    match stmt:
        case For(_, _, _, body):
            return loop_over(stmt, _without_stores(body, buffer))
        case Block(statements):
            return block([_without_stores(s, buffer) for s in statements])
        case Alloc(other, body):
            inside = _without_stores(body, buffer)
            return inside if inside == EMPTY else Alloc(other, inside)
        case If(condition, then, otherwise):
            then = _without_stores(then, buffer)
            otherwise = EMPTY if otherwise is None else _without_stores(otherwise, buffer)
            return either(condition, then, otherwise)
        case While(condition, body):
            return While(condition, _without_stores(body, buffer))
        case Store(touched, _, _) | Prefetch(touched, _, _) if touched.name == buffer.name:
            return EMPTY
        case Store() | Prefetch() | Intrinsic():
            return stmt
        case _:
            assert_never(stmt)


def short_fill(stmt: Stmt) -> Stmt:
    """Return a statement that writes one constant and does nothing else without unrolled loops and
    prefetches: it takes next to no time, and is to take next to no code. Return any other as it
    is."""
    writers = [s for s in walk_stmts(stmt) if s.writes]
    values = {s.value if isinstance(s, Store) else None for s in writers}
    is_fill = len(values) == 1 and all(isinstance(value, Const) for value in values)
    return _with_loops(stmt) if is_fill else stmt


def _with_loops(stmt: Stmt) -> Stmt:
    match stmt:
        case For(var, extent, LoopKind.UNROLLED, body):
            return loop_over(For(var, extent, LoopKind.SERIAL, body), _with_loops(body))
        case For(_, _, _, body):
            return loop_over(stmt, _with_loops(body))
        case Block(statements):
            return block([_with_loops(s) for s in statements])
        case If(condition, then, otherwise):
            rest = None if otherwise is None else _with_loops(otherwise)
            return If(condition, _with_loops(then), rest)
        case Prefetch():
            return EMPTY
        case Alloc() | While() | Store() | Intrinsic():
            return stmt
        case _:
            assert_never(stmt)
