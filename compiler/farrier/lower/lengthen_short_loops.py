"""Unroll loops with short bodies, so that several iterations share the cost of a branch."""

from __future__ import annotations

import dataclasses
from typing import assert_never

from farrier.ir import expr as e
from farrier.ir.dim import number
from farrier.ir.expr import MemoryScope, Var
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    Function,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    While,
)
from farrier.ir.statements import map_children, walk_stmts
from farrier.ir.substitute import Substitution, loads

# The most steps in an iteration, and the most accesses of memory and registers. In a longer one the
# counter and the branch at its end no longer show.
_STEPS = 8
_ACCESSES = 32


def lengthen_short_loops(function: Function) -> Function:
    """Unroll innermost loops with few memory accesses by the largest factor up to 8 that divides
    their extent.

    before:
        @function
        def zeros(a: f32[96, 4]):
            for i in serial(96):
                for lane in vectorized(4):
                    a[i, lane] = 0.0
    after:
        @function
        def zeros(a: f32[96, 4]):
            for i in serial(12):
                for i_step in unrolled(8):
                    for lane in vectorized(4):
                        a[i * 8 + i_step, lane] = 0.0

    Such loops write zeros around an image, copy, or sum in pooling. Other loops contain register
    tiles, whose bodies the schedules have made long enough.
    """
    taken = {stmt.var for stmt in walk_stmts(function.body) if isinstance(stmt, For)}
    body = _lengthened(function.body, taken)
    return function if body is function.body else dataclasses.replace(function, body=body)


def _lengthened(stmt: Stmt, taken: set[str]) -> Stmt:
    if isinstance(stmt, For):
        has_steps = stmt.kind in (LoopKind.SERIAL, LoopKind.PARALLEL)
        return _loop(stmt, taken) if has_steps else stmt
    return map_children(stmt, lambda part: _lengthened(part, taken))


def _loop(loop: For, taken: set[str]) -> Stmt:
    accesses = _accesses(loop.body)
    if accesses is None:
        return map_children(loop, lambda part: _lengthened(part, taken))
    name = f"{loop.var}_step"
    if loop.kind is not LoopKind.SERIAL or not isinstance(loop.extent, int) or name in taken:
        return loop
    most = min(_STEPS, _ACCESSES // max(1, accesses))
    steps = max((n for n in range(2, most + 1) if loop.extent % n == 0), default=1)
    if steps == 1:
        return loop
    place = e.add(e.mul(Var(loop.var), steps), Var(name))
    body = Substitution(variables={loop.var: place}).stmt(loop.body)
    return For(loop.var, loop.extent // steps, loop.kind, For(name, steps, LoopKind.UNROLLED, body))


def _accesses(stmt: Stmt) -> int | None:
    """Return the number of loads and stores of a body; None if the body contains a loop, an
    allocation or a branch."""
    match stmt:
        case Store(_, indices, value):
            return 1 + sum(1 for part in (*indices, value) for _ in loads(part))
        case Block(parts):
            counts = [_accesses(part) for part in parts]
            plain = [count for count in counts if count is not None]
            return sum(plain) if len(plain) == len(counts) else None
        case Alloc(buffer, body) if buffer.scope is MemoryScope.REGISTER:
            return _accesses(body)
        case For(_, extent, LoopKind.VECTORIZED, body):
            return _accesses(body)
        case For(_, extent, LoopKind.UNROLLED, body):
            inside = _accesses(body)
            return None if inside is None else inside * number(extent)
        case For() | Alloc() | If() | While() | Prefetch() | Intrinsic() | Barrier():
            return None
        case _:
            assert_never(stmt)
