"""Remove symbolic guards from register tiles: a tail computes a complete tile as well.

before:
    @function(m=dim(1, 20, 9))
    def rows(a: f32[m, 3], y: f32[m]):
        with alloc(f32[4] in register) as t:
            for z in unrolled(4):
                t[z] = 0.0
            for k in serial(3):
                for i in unrolled(4):
                    if i < m:
                        t[i] = t[i] + a[i, k]
            for r in unrolled(4):
                if r < m:
                    y[r] = t[r]
after:
    @function(m=dim(1, 20, 9))
    def rows(a: f32[m, 3], y: f32[m]):
        with alloc(f32[4] in register) as t:
            for z in unrolled(4):
                t[z] = 0.0
            for k in serial(3):
                for i in unrolled(4):
                    t[i] = t[i] + a[min(i, m - 1), k]
            for r in unrolled(4):
                if r < m:
                    y[r] = t[r]

An element of a tile may hold any number if the guard on its use fails, because every reader of the
element has the same guard. So the sums of a tail run at the speed of a complete tile, on addresses
that are clamped to memory; only results that leave the tile are guarded. For tiles of constant
extent, tails of their own size are better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeGuard, assert_never

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.blocks import coverage
from farrier.ir.dim import Extent, bounds, is_less
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, MemoryScope, Size, Var
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
from farrier.ir.statements import walk_stmts
from farrier.ir.substitute import Indices, Substitution, loads, variables
from farrier.ir.walk import walk


def whole_tile(
    body: Stmt, context: Simplifier, around: Mapping[str, frozenset[str]], lanes: frozenset[str]
) -> Stmt | None:
    """Return `body` without its conditions on symbolic sizes. Return None if it has effects other
    than stores to registers, or if a condition does more than select which elements of a register
    tile are used.

    `around` maps each register buffer to the loops around its Alloc; `lanes` is the variable of a
    vectorized loop around `body`. Conditions on lanes stay, because they are masks.
    """
    if not _fills_registers(body) or not any(isinstance(stmt, If) for stmt in walk_stmts(body)):
        return None
    lanes |= {loop.var for loop in walk_stmts(body) if _is_vectorized(loop)}
    drops_any = False
    for store, conditions, ranges in _stores(body, (), {}):
        here = context.over(ranges)
        for condition in conditions:
            names = variables(condition)
            if names & lanes or here.truth(condition):
                continue
            free = _recoverable(store.indices, here) | around.get(store.buffer.name, frozenset())
            bound = {name for name in names - free if here.bounds(Var(name)) != (0, 0)}
            symbolic = any(isinstance(part, Size) for part in walk(condition))
            if not symbolic or bound or any(loads(condition)):
                return None
            drops_any = True
    return _unguarded(body, context, {}, lanes) if drops_any else None


def _fills_registers(stmt: Stmt) -> bool:
    """Check whether a statement only stores to registers, possibly under conditions."""
    match stmt:
        case Store(buffer, _, _):
            return buffer.scope is MemoryScope.REGISTER
        case For(_, _, _, body) | If(_, body, None):
            return _fills_registers(body)
        case Block(statements):
            return all(map(_fills_registers, statements))
        case If() | Alloc() | While() | Prefetch() | Intrinsic() | Barrier():
            return False
        case _:
            assert_never(stmt)


def _stores(
    stmt: Stmt, conditions: tuple[Expr, ...], ranges: Mapping[str, Extent]
) -> Iterator[tuple[Store, tuple[Expr, ...], Mapping[str, Extent]]]:
    """Yield each store within a statement that only fills registers, together with the conditions
    and the extents of the loops around it."""
    match stmt:
        case For(var, extent, _, body):
            yield from _stores(body, conditions, {**ranges, var: extent})
        case Block(statements):
            for each in statements:
                yield from _stores(each, conditions, ranges)
        case If(condition, then, None):
            yield from _stores(then, (*conditions, condition), ranges)
        case Store():
            yield stmt, conditions, ranges
        case _:
            raise AssertionError(f"{stmt} fills no registers")


def _recoverable(indices: Indices, simplifier: Simplifier) -> frozenset[str]:
    """Return the variables whose values can be recovered from `indices`. An index `16*v + l` with l
    in [0, 16), for example, determines both `v` and `l`, like the digits of a number."""
    names: set[str] = set()
    for index in indices:
        terms = simplifier.linear(index).terms
        reach = 0  # The largest sum of the digits examined so far.
        for atom, factor in sorted(terms.items(), key=lambda term: bounds(term[1])[1]):
            if not isinstance(atom, Var) or not is_less(reach, factor):
                break
            reach += bounds(factor * simplifier.bounds(atom)[1])[1]
        else:
            names |= {atom.name for atom in terms if isinstance(atom, Var)}
    return frozenset(names)


def _is_vectorized(stmt: Stmt) -> TypeGuard[For]:
    return isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED


def _unguarded(
    stmt: Stmt, context: Simplifier, inner: dict[str, Extent], lanes: frozenset[str]
) -> Stmt:
    """Return the statement without its conditions, except those on lanes. Loads that the conditions
    guarded are clamped: their indices never lie outside of the buffer's memory."""
    match stmt:
        case For(var, extent, kind, body):
            return For(var, extent, kind, _unguarded(body, context, {**inner, var: extent}, lanes))
        case Block(statements):
            return Block(tuple(_unguarded(s, context, inner, lanes) for s in statements))
        case If(condition, then, _):
            bare = _unguarded(then, context, inner, lanes)
            return If(condition, bare) if variables(condition) & lanes else bare
        case Store(buffer, indices, value):
            here = context.over(inner)

            def within(loaded: Buffer, at: Indices) -> Indices:
                if loaded.scope is MemoryScope.REGISTER:
                    return at
                return tuple(
                    i if variables(i) & lanes else _within(here, i, loaded, axis)
                    for axis, i in enumerate(at)
                )

            return Store(buffer, indices, Substitution(access=within).expr(value))
        case _:
            raise AssertionError(f"{stmt} fills no registers")


def _within(simplifier: Simplifier, index: Expr, buffer: Buffer, axis: int) -> Expr:
    """Return `index` clamped to the memory of `axis` of the buffer, or unchanged if it can never be
    outside."""
    before = buffer.layout.halo_of(axis)[0] if buffer.layout is not None else 0
    end = coverage(buffer, axis)
    low, high = simplifier.bounds(index)
    if not is_less(high, end):
        index = Binary(BinaryOp.MIN, index, e.index(end - 1))
    return index if is_less(-before - 1, low) else Binary(BinaryOp.MAX, index, e.index(-before))
