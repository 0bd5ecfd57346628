"""Remove stores that do not affect the result, and statements that then are empty."""

from __future__ import annotations

import dataclasses
from typing import assert_never

from farrier.ir.expr import Binary, Buffer, Const, Expr, Load, ReduceOp
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    Function,
    If,
    Intrinsic,
    Prefetch,
    Stmt,
    Store,
    While,
)
from farrier.ir.operands import operands
from farrier.ir.statements import block, map_children, walk_stmts
from farrier.ir.substitute import loads

EMPTY = Block(())
_IDENTITIES = {op.binary: op for op in ReduceOp}


def eliminate_dead_stores(function: Function) -> Function:
    """Drop stores that have no effect: stores that combine an element with the identity of a
    reduction, and stores to buffers that nothing reads. Also drop the loops, conditions and buffers
    that are empty afterwards.

    before:
        @function
        def window(a: f32[8], b: f32[8]):
            with alloc(f32[8] in register) as fetched:
                for i in serial(8):
                    fetched[i] = a[i]
                for k in serial(3):
                    if k < 2:
                        for j in serial(8):
                            b[j] = b[j] + a[j]
                    else:
                        for j_tail in serial(8):
                            b[j_tail] = b[j_tail] + 0.0
    after:
        @function
        def window(a: f32[8], b: f32[8]):
            for k in serial(3):
                if k < 2:
                    for j in serial(8):
                        b[j] = b[j] + a[j]

    Partitioning leaves such stores. In a copy of a nest for the padding of an image, for example, a
    sum adds zeros, and the elements that were fetched for it are not read.
    """
    body = _live(function.body)
    return function if body is function.body else dataclasses.replace(function, body=body)


def _live(stmt: Stmt) -> Stmt:
    if type(stmt) is Store:
        return EMPTY if _changes_nothing(stmt) else stmt
    stmt = map_children(stmt, _live)
    match stmt:
        case For(_, _, _, body):
            return EMPTY if body == EMPTY else stmt
        case Block(statements):
            is_nested = any(isinstance(part, Block) for part in statements)
            return block([*statements]) if is_nested else stmt
        case Alloc(buffer, body):
            return stmt if _is_read(body, buffer) else _without_stores(body, buffer)
        case If(condition, then, otherwise):
            is_half = then == EMPTY or otherwise == EMPTY
            return either(condition, then, otherwise or EMPTY) if is_half else stmt
        case Store() | While() | Prefetch() | Intrinsic() | Barrier():
            return stmt
        case _:
            assert_never(stmt)


def loop_over(loop: For, body: Stmt) -> Stmt:
    """Return the loop with another body; an empty statement if the body is empty."""
    return EMPTY if body == EMPTY else For(loop.var, loop.extent, loop.kind, body)


def either(condition: Expr, then: Stmt, otherwise: Stmt) -> Stmt:
    """Return an If with the branches `then` and `otherwise`, or an empty statement if both branches
    are empty."""
    if then == otherwise == EMPTY:
        return EMPTY
    return If(condition, then, None if otherwise == EMPTY else otherwise)


def allocated(buffer: Buffer, body: Stmt) -> Stmt:
    """Return an allocation of the buffer around the body; without stores to the buffer if nothing
    reads it."""
    return Alloc(buffer, body) if _is_read(body, buffer) else _without_stores(body, buffer)


def _is_read(stmt: Stmt, buffer: Buffer) -> bool:
    """Check whether a statement uses a buffer in other ways than by stores to it. A store that adds
    to its own element counts as a store, although it reads the element."""
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
    """Return the statement without the stores to a buffer that nothing reads."""
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
        case Store() | Prefetch() | Intrinsic() | Barrier():
            return stmt
        case _:
            assert_never(stmt)


def _changes_nothing(store: Store) -> bool:
    """Check whether the store combines its element with the identity of a reduction."""
    match store.value:
        case Binary(op, Load(buffer, indices), Const() as term) if op in _IDENTITIES:
            same = buffer.name == store.buffer.name and indices == store.indices
            return same and term == _IDENTITIES[op].identity(term.dtype)
        case _:
            return False
