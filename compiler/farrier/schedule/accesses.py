"""What a piece of a loop nest reads and writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, Var
from farrier.ir.loop import (
    Alloc,
    For,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    While,
)
from farrier.ir.statements import below, walk_stmts
from farrier.ir.substitute import loads
from farrier.schedule.nest import outermost_block

_ASSOCIATIVE = (BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One place where a statement touches a buffer."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool
    stmt: Store | If | While | Intrinsic
    reduces: BinaryOp | None  # the store is `x = x op e`, and this is its x

    def __str__(self) -> str:
        return f"{'writes' if self.writes else 'reads'} {self.buffer.name}"


def accesses(stmt: Stmt) -> list[Access]:
    """Every access within, in order; prefetches have no effect and are none."""
    return [access for s in walk_stmts(stmt) for access in _of(s)]


def reads_of(stmt: Stmt, buffer: str) -> list[Access]:
    """Every read of the buffer within."""
    return [access for access, _ in guarded_reads(stmt, buffer)]


def guarded_reads(
    stmt: Stmt, buffer: str, conditions: tuple[Expr, ...] = ()
) -> Iterator[tuple[Access, tuple[Expr, ...]]]:
    """Every read of the buffer within, and the conditions under which it happens: `conditions`,
    under which `stmt` stands, and those within."""
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
    """The names of the buffers that are written within."""
    found = set()
    for s in walk_stmts(stmt):
        if isinstance(s, Store):
            found.add(s.buffer.name)
        elif isinstance(s, Intrinsic):
            found.add(s.operands[0].buffer.name)
    return found


def changed_after(body: Stmt, producers: Sequence[Stmt]) -> list[str]:
    """The buffers that `producers`, statements of the outermost block of `body`, read, and that a
    later statement of it writes: what is computed from them must not be computed later."""
    statements = outermost_block(body)
    first = next(i for i, s in enumerate(statements) if s is producers[0])
    own = {name for producer in producers for name in writes(producer)}
    needed = {name for producer in producers for s in walk_stmts(producer) for name in _names(s)}
    later = (s for s in statements[first:] if not any(s is p for p in producers))
    return sorted((needed - own) & {name for stmt in later for name in writes(stmt)})


def touches(stmt: Stmt, buffer: str) -> bool:
    """Whether the buffer is read, written or prefetched within."""
    for s in walk_stmts(stmt):
        if isinstance(s, Prefetch) and s.buffer.name == buffer:
            return True
        if buffer in _names(s):
            return True
    return False


def reduction(store: Store) -> tuple[BinaryOp, Expr] | None:
    """(op, e) where the store is `x = x op e` or `x = e op x`, and `e` does not read x's buffer."""
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


def _names(stmt: Stmt) -> Iterator[str]:
    """The name of the buffer of each access of a statement itself."""
    if isinstance(stmt, Store):
        yield stmt.buffer.name
        for expr in (stmt.value, *stmt.indices):
            yield from (load.buffer.name for load in loads(expr))
    elif isinstance(stmt, If | While):
        yield from (load.buffer.name for load in loads(stmt.condition))
    elif isinstance(stmt, Intrinsic):
        yield from (tile.buffer.name for tile in stmt.operands)


def _of(stmt: Stmt) -> Iterator[Access]:
    if isinstance(stmt, Store):
        found = reduction(stmt)
        op = None if found is None else found[0]
        for load in (*loads(stmt.value), *(x for i in stmt.indices for x in loads(i))):
            own = op is not None and load.buffer.name == stmt.buffer.name
            yield Access(load.buffer, load.indices, False, stmt, op if own else None)
        yield Access(stmt.buffer, stmt.indices, True, stmt, op)
    elif isinstance(stmt, If | While):
        for load in loads(stmt.condition):
            yield Access(load.buffer, load.indices, False, stmt, None)
    elif isinstance(stmt, Intrinsic):
        # Where in the tile an access falls is unknown: it may be anywhere in the buffer.
        for position, tile in enumerate(stmt.operands):
            anywhere = tuple(Var(f"{stmt.name}.{axis}") for axis in range(len(tile.origin)))
            yield Access(tile.buffer, anywhere, False, stmt, None)
            if position == 0:
                yield Access(tile.buffer, anywhere, True, stmt, None)


def private_buffers(stmt: Stmt) -> set[str]:
    """The names of the buffers that exist only within one execution of `stmt`."""
    found: set[str] = set()
    stack: list[Stmt] = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, Alloc):
            found.add(node.buffer.name)
        stack += below(node)
    return found


def is_straight_line(stmt: Stmt) -> bool:
    """Whether nothing below loops, but over a dot product or a group, or allocates."""
    return not any(
        isinstance(s, Alloc | Intrinsic | While)
        or (isinstance(s, For) and s.kind not in (LoopKind.DOT, LoopKind.GROUP))
        for s in walk_stmts(stmt)
    )
