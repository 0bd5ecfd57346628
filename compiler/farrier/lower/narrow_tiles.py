"""Narrower register tiles for tails of unknown length.

before:  if m % 16 rows are left:  for i in unrolled(16): if o*16 + i < m: …
after:   if m % 16 < 5:            for i in unrolled(4): if o*16 + i < m: …
         else if m % 16 < 9:       for i in unrolled(8): if o*16 + i < m: …
         else:                     for i in unrolled(15): if o*16 + i < m: …

Where few are left, a whole tile takes many times as long as they need: a decoder's step has one
row. The narrowest tile has as many sums as it takes to hide the latency of one, for fewer take as
long; from there on widths double up to half of the tile. Each is a copy of the tile's code, so the
loops over what is added up are not unrolled in them, and a guard that other work stands beside is
decided further in, where the tile is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from farrier.ir.affine import Linear, Simplifier
from farrier.ir.dim import Extent, is_less, number, product
from farrier.ir.expr import Scope, Var
from farrier.ir.loop import Alloc, Block, For, If, LoopKind, Prefetch, Stmt, Store
from farrier.ir.statements import below, walk_stmts
from farrier.ir.substitute import loads, variables
from farrier.lower.code_size import unrolled_size
from farrier.lower.guards import Guard, Guards

_IN_FLIGHT = 8  # sums at once, fewer of which take as long
_BESIDE = 8  # stores, unrolled, that are not to be copied with each width of a tile


def narrower(body: Stmt, guard: Guard) -> Iterator[int]:
    """How many of the values of a guard's inner terms, fewest first, are worth a tile of their own:
    where one unrolled loop over a register tile, with a sum in it, runs over them."""
    tile = _tile_of(body, guard)
    if tile is None:
        return
    extent, step = tile.extent, tile.step
    width = max(1, min(_IN_FLIGHT * extent // _registers(tile.alloc), extent // 2))
    while 2 * width <= extent:
        yield width * step
        width *= 2


def is_beside_work(body: Stmt, guard: Guard) -> bool:
    """Whether other work stands beside the loop in which a guard's tile is made: decided here, the
    guard would copy that with each width of the tile."""
    tile = _tile_of(body, guard)
    if tile is None or tile.around is None:
        return False
    return unrolled_size(body) - unrolled_size(tile.around.body) >= _BESIDE


@dataclasses.dataclass(frozen=True, slots=True)
class _Tile:
    """A register tile that is added up in, by a guard's inner term: the loop of `extent` over it,
    by how much an iteration counts, and the innermost loop around the tile."""

    alloc: Alloc
    extent: int
    step: int
    around: For | None


def _tile_of(body: Stmt, guard: Guard) -> _Tile | None:
    """The tile of which a guard says how much is used; None where it says something else."""
    if guard.soft or len(guard.inner) != 1:  # seen from further out, whole nests would be copied
        return None
    ((atom, factor),) = guard.inner.items()
    if not isinstance(atom, Var) or not isinstance(factor, int) or factor >= 0:
        return None
    stack: list[tuple[Stmt, For | None, Alloc | None]] = [(body, None, None)]
    while stack:
        stmt, around, tile = stack.pop()
        if isinstance(stmt, For):
            is_over = stmt.kind is LoopKind.UNROLLED and stmt.var == atom.name
            if is_over and tile is not None and isinstance(stmt.extent, int) and _sums(tile):
                return _Tile(tile, stmt.extent, -factor, around)
            if stmt.kind is LoopKind.SERIAL and stmt.extent != 1 and tile is None:
                around = stmt
        elif isinstance(stmt, Alloc) and stmt.buffer.scope is Scope.REGISTER:
            tile = stmt
        stack += [(inner, around, tile) for inner in below(stmt)]
    return None


def _registers(tile: Alloc) -> int:
    """How many vectors a tile takes."""
    loops = (loop for loop in walk_stmts(tile.body) if isinstance(loop, For))
    lanes = (number(loop.extent) for loop in loops if loop.kind is LoopKind.VECTORIZED)
    return max(1, number(product(tile.buffer.shape)) // max(lanes, default=1))


def _sums(tile: Alloc) -> bool:
    """Whether something is added up in a tile."""
    stores = (s for s in walk_stmts(tile.body) if isinstance(s, Store))
    own = (s for s in stores if s.buffer.name == tile.buffer.name)
    return any(load.buffer.name == tile.buffer.name for s in own for load in loads(s.value))


def narrow(stmt: Stmt, context: Simplifier, guards: Guards) -> Stmt:
    """The statement with each unrolled loop as short as what is known in `context` lets it be: no
    condition lets anything through in the iterations that are left out."""
    match stmt:
        case For(var, extent, kind, body):
            inside = context.over({var: extent})
            loop = For(var, extent, kind, narrow(body, inside, guards))
            return _shortened(loop, inside, guards) if kind is LoopKind.UNROLLED else loop
        case Block(statements):
            return Block(tuple(narrow(s, context, guards) for s in statements))
        case Alloc(buffer, body):
            alloc = Alloc(buffer, narrow(body, context, guards))
            pairs = zip(_spans(alloc), _spans(stmt), strict=True)
            agree = all(len(new) <= len(old) for new, old in pairs)
            return alloc if agree else stmt
        case _:
            return stmt


def rolled(stmt: Stmt) -> Stmt:
    """The statement with its sums in loops that are not unrolled but over register tiles: in a
    tail, less code is worth more than fewer jumps.

    before:  for k in unrolled(4): for i in unrolled(8): t[i] = t[i] + a[i, k]
    after:   for k in serial(4): for i in unrolled(8): t[i] = t[i] + a[i, k]
    """
    match stmt:
        case For(var, extent, kind, body):
            adds = kind is LoopKind.UNROLLED and _adds_over(var, body)
            return For(var, extent, LoopKind.SERIAL if adds else kind, rolled(body))
        case Block(statements):
            return Block(tuple(map(rolled, statements)))
        case Alloc(buffer, body):
            return Alloc(buffer, rolled(body))
        case If(condition, then, otherwise):
            return If(condition, rolled(then), None if otherwise is None else rolled(otherwise))
        case _:
            return stmt


def _adds_over(var: str, body: Stmt) -> bool:
    """Whether a loop's body adds to register tiles, the same elements in each iteration."""
    stores = [stmt for stmt in walk_stmts(body) if isinstance(stmt, Store)]
    return bool(stores) and all(_is_sum(s) and not _mentions(s, var) for s in stores)


def _is_sum(store: Store) -> bool:
    own = store.buffer
    return own.scope is Scope.REGISTER and any(
        load.buffer.name == own.name for load in loads(store.value)
    )


def _mentions(store: Store, var: str) -> bool:
    """Whether a variable says which element of a register tile is stored, or read."""
    touched = [store.indices]
    touched += [x.indices for x in loads(store.value) if x.buffer.scope is Scope.REGISTER]
    return any(var in variables(index) for indices in touched for index in indices)


def _spans(alloc: Alloc) -> list[set[Extent]]:
    """The extents of the unrolled loops that walk along each axis of a register tile: all that
    write and read it do so as far, for what a Select does not take is read all the same."""
    spans: list[set[Extent]] = [set() for _ in alloc.buffer.shape]
    if alloc.buffer.scope is not Scope.REGISTER:
        return spans
    inside = list(walk_stmts(alloc.body))
    unrolled = {
        s.var: s.extent for s in inside if isinstance(s, For) and s.kind is LoopKind.UNROLLED
    }
    for store in inside:
        if isinstance(store, Store):
            touched = [(store.buffer, store.indices)]
            touched += [(load.buffer, load.indices) for load in loads(store.value)]
            for buffer, indices in touched:
                if buffer.name == alloc.buffer.name:
                    for span, index in zip(spans, indices, strict=True):
                        span |= {unrolled[v] for v in variables(index) & unrolled.keys()}
    return spans


def _shortened(loop: For, context: Simplifier, guards: Guards) -> For:
    assert isinstance(loop.extent, int)
    at = Var(loop.var)
    for guard in guards.of(loop.body, loop.var, context):
        step = guard.outer.get(at, 0)
        if guard.soft or not isinstance(step, int) or step >= 0:
            continue
        others = {atom: factor for atom, factor in guard.outer.items() if atom != at}
        most = context.bounds_of(Linear(others, guard.high))[1]
        count = next((n for n in range(loop.extent) if is_less(most, -step * n)), loop.extent)
        beyond = context.knowing({at: 1}, count, loop.extent - 1)
        if count < loop.extent and is_idle(loop.body, beyond):
            return For(loop.var, count, loop.kind, loop.body)
    return loop


def is_idle(stmt: Stmt, context: Simplifier) -> bool:
    """Whether no condition in a statement lets anything through but what is fetched ahead."""
    match stmt:
        case If(condition, then, otherwise):
            truth = context.truth(condition)
            return (truth is False or is_idle(then, context)) and (
                truth is True or otherwise is None or is_idle(otherwise, context)
            )
        case For(var, extent, _, body):
            return is_idle(body, context.over({var: extent}))
        case Block(statements):
            return all(is_idle(s, context) for s in statements)
        case Alloc(_, body):
            return is_idle(body, context)
        case _:
            return isinstance(stmt, Prefetch)
