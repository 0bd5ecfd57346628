"""Remove statements that do not run or whose results are not read."""

from __future__ import annotations

from typing import assert_never

from farrier.ir.affine import Simplifier
from farrier.ir.expr import Const
from farrier.ir.loop import (
    Alloc,
    Barrier,
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
from farrier.lower.eliminate_dead_stores import EMPTY, allocated, loop_over


def pruned(stmt: Stmt, context: Simplifier) -> Stmt:
    """Return the statement without the parts that do not run under the facts of `context`, and
    without register tiles that nothing reads any more."""
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
        case While() | Prefetch() | Intrinsic() | Barrier():
            return stmt
        case _:
            assert_never(stmt)


def short_fill(stmt: Stmt) -> Stmt:
    """If `stmt` only fills memory with a constant, return it without unrolled loops and prefetches:
    it takes little time, so its code should be small. Otherwise return `stmt` unchanged."""
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
        case Alloc() | While() | Store() | Intrinsic() | Barrier():
            return stmt
        case _:
            assert_never(stmt)
