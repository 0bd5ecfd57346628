"""Statements without what does not run or is not read."""

from __future__ import annotations

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
        case _:
            return stmt


def allocated(buffer: Buffer, body: Stmt) -> Stmt:
    """The body with memory for a buffer; without what fills it where nothing reads it."""
    return Alloc(buffer, body) if _is_read(body, buffer) else _without_stores(body, buffer)


def _is_read(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether a statement does more with a buffer than fill it; sums that add to their own element
    fill it."""
    return any(_reads(s, buffer) for s in walk_stmts(stmt))


def _reads(stmt: Stmt, buffer: Buffer) -> bool:
    match stmt:
        case Store(written, indices, value):
            own = Load(buffer, indices) if written.name == buffer.name else None
            read = (*loads(value), *(load for index in indices for load in loads(index)))
            return any(load.buffer.name == buffer.name and load != own for load in read)
        case If(condition, _, _) | While(condition, _):
            return any(load.buffer.name == buffer.name for load in loads(condition))
        case Prefetch(_, indices):
            return any(load.buffer.name == buffer.name for i in indices for load in loads(i))
        case Intrinsic(_, operands):
            return any(tile.buffer.name == buffer.name for tile in operands)
        case _:
            return False


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
        case _:
            return stmt


def short_fill(stmt: Stmt) -> Stmt:
    """A statement that writes one constant and does nothing else, without unrolled loops and
    prefetches: it takes next to no time, and is to take next to no code. Any other as it is."""
    stores = [s for s in walk_stmts(stmt) if isinstance(s, Store)]
    values = {store.value for store in stores}
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
        case _:
            return stmt
