"""Collect the buffer accesses (reads, writes, reductions) of a statement of a loop nest."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import assert_never

from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, Var
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    Effect,
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
from farrier.ir.statements import below, walk_stmts
from farrier.ir.substitute import loads
from farrier.schedule.nest import outermost_block

_ASSOCIATIVE = (BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One read or write of a buffer by a statement, with the indices of the element."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool
    stmt: Stmt
    reduces: BinaryOp | None  # Set if the store is `x = x op e` and this access is its x.

    def __str__(self) -> str:
        return f"{'writes' if self.writes else 'reads'} {self.buffer.name}"


def accesses(stmt: Stmt) -> list[Access]:
    """Return every access within a statement, in order. Prefetches are not accesses."""
    return [access for s in walk_stmts(stmt) for access in _of(s)]


def reads_of(stmt: Stmt, buffer: str) -> list[Access]:
    """Return every read of the buffer within a statement."""
    return [access for access, _ in guarded_reads(stmt, buffer)]


def guarded_reads(
    stmt: Stmt, buffer: str, conditions: tuple[Expr, ...] = ()
) -> Iterator[tuple[Access, tuple[Expr, ...]]]:
    """Yield each read of the buffer within a statement with the conditions under which it happens:
    `conditions`, which guard `stmt` itself, followed by those of the guards within `stmt`."""
    for access in _of(stmt):
        if access.buffer.name == buffer and not access.writes:
            yield access, conditions
    if isinstance(stmt, If):
        yield from guarded_reads(stmt.then, buffer, (*conditions, stmt.condition))
        if stmt.otherwise is not None:
            yield from guarded_reads(stmt.otherwise, buffer, conditions)
        return
    for child in below(stmt):
        yield from guarded_reads(child, buffer, conditions)


def writes(stmt: Stmt) -> set[str]:
    """Return the names of the buffers that a statement writes."""
    return {buffer.name for s in walk_stmts(stmt) for buffer in _written(s)}


def changed_after(body: Stmt, producers: Sequence[Stmt]) -> list[str]:
    """Return the names of the buffers that one of `producers` reads and that a later statement
    writes. `producers` are statements of the outermost block of `body`.

    A producer that reads such a buffer must not be moved to a later position, where it would read
    the new values.
    """
    statements = outermost_block(body)
    own = {name for producer in producers for name in writes(producer)}
    changed: set[str] = set()
    for producer in producers:
        at = next(i for i, stmt in enumerate(statements) if stmt is producer)
        later = (s for s in statements[at:] if not any(s is p for p in producers))
        needed = {name for part in walk_stmts(producer) for name in _names(part)}
        changed |= (needed - own) & {name for stmt in later for name in writes(stmt)}
    return sorted(changed)


def touches(stmt: Stmt, buffer: str) -> bool:
    """Check whether the buffer is read, written or prefetched within a statement."""
    return any(buffer in _names(s) or _hints(s, buffer) for s in walk_stmts(stmt))


def prefetches(stmt: Stmt, buffer: str) -> bool:
    """Check whether the buffer is prefetched within a statement."""
    return any(_hints(s, buffer) for s in walk_stmts(stmt))


def _hints(stmt: Stmt, name: str) -> bool:
    return any(buffer.name == name for buffer in stmt.hints)


def reduction(store: Store) -> tuple[BinaryOp, Expr] | None:
    """Return (op, e) if the store is `x = x op e` or `x = e op x` and `e` does not read x's
    buffer."""
    value = store.value
    if not isinstance(value, Binary) or value.op not in _ASSOCIATIVE:
        return None
    for own, other in ((value.left, value.right), (value.right, value.left)):
        if (
            isinstance(own, Load)
            and own.buffer.name == store.buffer.name
            and own.indices == store.indices
            and all(load.buffer.name != store.buffer.name for load in loads(other))
        ):
            return value.op, other
    return None


def _written(stmt: Stmt) -> tuple[Buffer, ...]:
    match stmt.effect:
        case Effect.NONE | Effect.HINT | Effect.BARRIER:
            return ()
        case Effect.STORE | Effect.CALL:
            return stmt.writes
        case _:
            assert_never(stmt.effect)


def _names(stmt: Stmt) -> Iterator[str]:
    """Yield the buffer's name for each access that the statement itself makes, without accesses of
    the statements within it."""
    if stmt.effect is not Effect.HINT:
        yield from (load.buffer.name for part in operands(stmt) for load in loads(part))
        yield from (buffer.name for buffer in (*stmt.reads, *_written(stmt)))


def _of(stmt: Stmt) -> Iterator[Access]:
    match stmt.effect:
        case Effect.HINT | Effect.BARRIER:
            pass
        case Effect.NONE:
            yield from _loaded(stmt)
        case Effect.STORE:
            assert isinstance(stmt, Store)
            update = reduction(stmt)
            op = None if update is None else update[0]
            for load in (*loads(stmt.value), *(x for i in stmt.indices for x in loads(i))):
                own = op is not None and load.buffer.name == stmt.buffer.name
                yield Access(load.buffer, load.indices, False, stmt, op if own else None)
            yield Access(stmt.buffer, stmt.indices, True, stmt, op)
        case Effect.CALL:
            # The element of the tile is unknown: it may be anywhere in the buffer.
            yield from _loaded(stmt)
            for buffer in stmt.reads:
                yield Access(buffer, _anywhere(buffer), False, stmt, None)
            for buffer in stmt.writes:
                yield Access(buffer, _anywhere(buffer), True, stmt, None)
        case _:
            assert_never(stmt.effect)


def _loaded(stmt: Stmt) -> Iterator[Access]:
    for part in operands(stmt):
        for load in loads(part):
            yield Access(load.buffer, load.indices, False, stmt, None)


def _anywhere(buffer: Buffer) -> tuple[Expr, ...]:
    return tuple(Var(f"{buffer.name}.{axis}") for axis in range(len(buffer.shape)))


def private_buffers(stmt: Stmt) -> set[str]:
    """Return the names of the buffers that are allocated within `stmt`, whose values therefore last
    for one execution of it."""
    names: set[str] = set()
    stack: list[Stmt] = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, Alloc):
            names.add(node.buffer.name)
        stack += below(node)
    return names


def is_straight_line(stmt: Stmt) -> bool:
    """Check that a statement contains no allocation and no loop. A dot loop and a group loop are
    allowed, since each of them is a single instruction."""
    return all(map(_is_straight, walk_stmts(stmt)))


def _is_straight(stmt: Stmt) -> bool:
    match stmt:
        case For(kind=kind):
            return kind in (LoopKind.DOT, LoopKind.GROUP)
        case Alloc() | Intrinsic() | While() | Barrier():
            return False
        case Block() | If() | Store() | Prefetch():
            return True
        case _:
            assert_never(stmt)
