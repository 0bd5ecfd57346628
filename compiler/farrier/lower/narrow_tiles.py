"""Add narrower register tiles for tails of unknown length.

before:
    @function(m=dim(1, 40, 20))
    def rows(a: f32[m, 3], y: f32[m]):
        for o in parallel((m + 3) // 4):
            with alloc(f32[4] in register) as t:
                for z in unrolled(4):
                    if o * 4 + z < m:
                        t[z] = 0.0
                for k in serial(3):
                    for i in unrolled(4):
                        if o * 4 + i < m:
                            t[i] = t[i] + a[o * 4 + i, k]
                for r in unrolled(4):
                    if o * 4 + r < m:
                        y[o * 4 + r] = t[r]
after:
    @function(m=dim(1, 40, 20))
    def rows(a: f32[m, 3], y: f32[m]):
        for o in parallel((m + 3) // 4):
            if o < m // 4:
                with alloc(f32[4] in register) as t:
                    for z in unrolled(4):
                        t[z] = 0.0
                    for k in serial(3):
                        for i in unrolled(4):
                            t[i] = t[i] + a[o * 4 + i, k]
                    for r in unrolled(4):
                        y[o * 4 + r] = t[r]
            else:
                if ((m + 1) // 4) - 1 < o:
                    with alloc(f32[4] in register) as t:
                        for z_tail2 in unrolled(2):
                            t[z_tail2] = 0.0
                        for k_tail2 in serial(3):
                            for i_tail2 in unrolled(2):
                                t[i_tail2] = t[i_tail2] + a[min(o * 4 + i_tail2, m - 1), k_tail2]
                        for r_tail2 in unrolled(2):
                            if o * 4 + r_tail2 < m:
                                y[o * 4 + r_tail2] = t[r_tail2]
                else:
                    with alloc(f32[4] in register) as t:
                        for z_tail in unrolled(3):
                            t[z_tail] = 0.0
                        for k_tail in serial(3):
                            for i_tail in unrolled(3):
                                t[i_tail] = t[i_tail] + a[min(o * 4 + i_tail, m - 1), k_tail]
                        for r_tail in unrolled(3):
                            if o * 4 + r_tail < m:
                                y[o * 4 + r_tail] = t[r_tail]

A decoder step has one row, and computing a complete tile for it would take many times as long as
necessary. The narrowest tile has the number of accumulators that hides the latency of one
accumulation, because a smaller number takes the same time; from there on widths double up to half
of the full tile. Each width is a copy of the tile's code, so reduction loops are not unrolled in
the copies, and a guard next to other work is decided further inside, where the tile is allocated.
Partitioning decides the guards in a tail once, for its widest tile; the narrower tiles are copies
of the result with shorter loops.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, common_factor, is_less, number, product
from farrier.ir.expr import MemoryScope, Var
from farrier.ir.linear import Linear
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
from farrier.ir.statements import below, map_children, walk_stmts
from farrier.ir.substitute import loads, variables
from farrier.lower.code_size import unrolled_size
from farrier.lower.guards import Guard, Guards

# The sums that a core computes in the latency of one: two multiply-add ports, four cycles.
_IN_FLIGHT = 8
# The unrolled stores next to a tile that are too many to be copied with each width of it.
_MUCH_ELSE = 8


@dataclasses.dataclass(frozen=True, slots=True)
class _Tile:
    """An unrolled loop of `extent` iterations over a register tile, the allocation of the tile, and
    the innermost loop around the allocation; None if they lie outside of the statement examined."""

    extent: int
    alloc: Alloc | None
    around: For | None


class Tiles:
    """The register tiles of a nest and the guards that bound how much of each tile is used.

    The tiles of each statement are cached, because every loop around them is examined.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Stmt, Mapping[str, _Tile]]] = {}
        self._adding: dict[int, tuple[Alloc, bool]] = {}

    def narrower(self, body: Stmt, guard: Guard) -> Iterator[int]:
        """Yield the widths, smaller than that of the full tile, for which a tail gets a register
        tile of its own, smallest first. A width is measured in values of the guard's inner
        terms."""
        bounded = self._tile_of(body, guard)
        if bounded is None:
            return
        extent, alloc, step = bounded[0].extent, bounded[1], bounded[2]
        width = max(1, min(_IN_FLIGHT * extent // _registers(alloc), extent // 2))
        while 2 * width <= extent:
            yield width * step
            width *= 2

    def is_next_to_work(self, body: Stmt, guard: Guard) -> bool:
        """Check whether `body` contains much code outside of the loop in which the guard's tile is
        allocated. Deciding the guard here would copy that code for each width of the tile, so the
        guard is then left to the tile."""
        bounded = self._tile_of(body, guard)
        if bounded is None or bounded[0].around is None:
            return False
        return unrolled_size(body) - unrolled_size(bounded[0].around.body) >= _MUCH_ELSE

    def _tile_of(self, body: Stmt, guard: Guard) -> tuple[_Tile, Alloc, int] | None:
        """Return the loop over an accumulating register tile whose used length the guard bounds,
        the tile, and the step of the guard per iteration of that loop; None if the guard has
        another form."""
        if guard.soft or len(guard.inner) != 1:
            return None  # Seen from an outer loop, complete nests would be copied.
        ((atom, factor),) = guard.inner.items()
        if not isinstance(atom, Var) or not isinstance(factor, int) or factor >= 0:
            return None
        tile = self._within(body).get(atom.name)
        if tile is None or tile.alloc is None or not self._adds(tile.alloc):
            return None
        return tile, tile.alloc, -factor

    def _within(self, stmt: Stmt) -> Mapping[str, _Tile]:
        """Return the unrolled loops in a statement, by variable."""
        entry = self._known.get(id(stmt))
        if entry is None:
            entry = self._known[id(stmt)] = (stmt, self._collect(stmt))
        return entry[1]

    def _collect(self, stmt: Stmt) -> Mapping[str, _Tile]:
        parts = list(map(self._within, below(stmt)))
        tiles = parts[0] if len(parts) == 1 else dict(itertools.chain(*(p.items() for p in parts)))
        if isinstance(stmt, Alloc) and stmt.buffer.scope is MemoryScope.REGISTER:
            return {
                var: tile if tile.alloc is not None else dataclasses.replace(tile, alloc=stmt)
                for var, tile in tiles.items()
            }
        if not isinstance(stmt, For):
            return tiles
        if stmt.kind is LoopKind.UNROLLED and isinstance(stmt.extent, int):
            return {**tiles, stmt.var: _Tile(stmt.extent, None, None)}
        if stmt.kind is LoopKind.SERIAL and stmt.extent != 1:
            return {
                var: tile
                if tile.alloc is None or tile.around is not None
                else dataclasses.replace(tile, around=stmt)
                for var, tile in tiles.items()
            }
        return tiles

    def _adds(self, tile: Alloc) -> bool:
        entry = self._adding.get(id(tile))
        if entry is None:
            entry = self._adding[id(tile)] = (tile, _sums(tile))
        return entry[1]


def _registers(tile: Alloc) -> int:
    """Return the number of vector registers that a tile occupies."""
    loops = (loop for loop in walk_stmts(tile.body) if isinstance(loop, For))
    lanes = (number(loop.extent) for loop in loops if loop.kind is LoopKind.VECTORIZED)
    return max(1, number(product(tile.buffer.shape)) // max(lanes, default=1))


def _sums(tile: Alloc) -> bool:
    """Check whether a tile accumulates: some store to it reads it."""
    stores = (s for s in walk_stmts(tile.body) if isinstance(s, Store))
    own = (s for s in stores if s.buffer.name == tile.buffer.name)
    return any(load.buffer.name == tile.buffer.name for s in own for load in loads(s.value))


def narrow(stmt: Stmt, context: Simplifier, guards: Guards) -> Stmt:
    """Return the statement with each unrolled loop shortened as far as the facts of `context`
    allow: in the omitted iterations, every guard fails."""
    match stmt:
        case For(var, extent, kind, body):
            inside = context.over({var: extent})
            loop = For(var, extent, kind, narrow(body, inside, guards))
            return _shortened(loop, inside, guards) if kind is LoopKind.UNROLLED else loop
        case Block():
            return map_children(stmt, lambda part: narrow(part, context, guards))
        case Alloc(buffer, body):
            alloc = Alloc(buffer, narrow(body, context, guards))
            pairs = zip(_spans(alloc), _spans(stmt), strict=True)
            agree = all(len(new) <= len(old) for new, old in pairs)
            return alloc if agree else stmt
        case If() | While() | Store() | Prefetch() | Intrinsic() | Barrier():
            return stmt
        case _:
            assert_never(stmt)


def parts_of_tail(
    guard: Guard, widths: Iterable[int], low: Extent, high: Extent
) -> tuple[Extent, Extent, list[Extent]]:
    """Split the range [low, high] of the sum of a guard's outer terms into intervals, one for each
    tile of a tail: no element used, then each of the widths in ascending order, then the whole
    tile.

    Return (low, high, the upper ends of all intervals but the last); intervals below `low` or
    beyond `high` are omitted. A sum s means that s + guard.high + 1 elements of the tile are used.
    If the coefficients of the terms and guard.high + 1 have a common factor, that number is a
    multiple of it: the widths are rounded down to multiples, and `high` to the largest possible
    sum.
    """
    step = common_factor((*guard.outer.values(), guard.high + 1))
    whole = number(guard.high - guard.low) + 1
    most = (used - 1 - guard.high for used in range(step, whole, step))
    high = next((end for end in most if step > 1 and is_less(high, end + step)), high)
    ends: list[Extent] = []
    for used in dict.fromkeys(used // step * step for used in (0, *widths)):
        end = used - 1 - guard.high
        if is_less(high, end + step):
            return low, end, ends
        if not is_less(end, low):
            ends.append(end)
    return low, high, ends


def shortened(stmt: Stmt, before: Stmt, after: Stmt, origins: Mapping[str, str]) -> Stmt | None:
    """Derive the result of partitioning `after` from `stmt`, the result of partitioning `before`.
    The two statements differ only in the extents of some loops, which are shorter in `after`; the
    derived statement is `stmt` with these loops shortened. `origins` maps each copied loop to its
    original.

    Return None if that is not possible and `after` must be partitioned itself: partitioning cut one
    of the shortened loops, or one of them has a single iteration in `after`.
    """
    lengths: dict[str, tuple[Extent, Extent]] = {}
    for old, new in zip(walk_stmts(before), walk_stmts(after), strict=True):
        if isinstance(old, For) and isinstance(new, For):
            both = lengths.setdefault(origins.get(old.var, old.var), (old.extent, new.extent))
            if both != (old.extent, new.extent) or (new.extent == 1 != old.extent):
                return None
    short = {var: new for var, (old, new) in lengths.items() if old != new}

    def shorter(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            length = short.get(origins.get(stmt.var, stmt.var), stmt.extent)
            stmt = For(stmt.var, length, stmt.kind, stmt.body)
        return map_children(stmt, shorter)

    loops = [loop for loop in walk_stmts(stmt) if isinstance(loop, For)]
    roots = [(origins.get(loop.var, loop.var), loop.extent) for loop in loops]
    if any(root in short and extent != lengths[root][0] for root, extent in roots):
        return None
    return shorter(stmt)


def rolled(stmt: Stmt) -> Stmt:
    """Return the statement with those unrolled loops rolled up that accumulate sums, except loops
    over the elements of register tiles: in a tail, small code matters more than few jumps.

    before:  for k in unrolled(4): for i in unrolled(8): t[i] = t[i] + a[i, k]
    after:   for k in serial(4): for i in unrolled(8): t[i] = t[i] + a[i, k]
    """
    if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED and _adds_over(stmt.var, stmt.body):
        stmt = For(stmt.var, stmt.extent, LoopKind.SERIAL, stmt.body)
    return map_children(stmt, rolled)


def _adds_over(var: str, body: Stmt) -> bool:
    """Check whether each iteration of a loop adds to the same elements of register tiles."""
    stores = [stmt for stmt in walk_stmts(body) if isinstance(stmt, Store)]
    return bool(stores) and all(_is_sum(s) and not _mentions(s, var) for s in stores)


def _is_sum(store: Store) -> bool:
    own = store.buffer
    return own.scope is MemoryScope.REGISTER and any(
        load.buffer.name == own.name for load in loads(store.value)
    )


def _mentions(store: Store, var: str) -> bool:
    """Check whether the element of a register tile that is stored or read depends on a variable."""
    touched = [store.indices]
    touched += [x.indices for x in loads(store.value) if x.buffer.scope is MemoryScope.REGISTER]
    return any(var in variables(index) for indices in touched for index in indices)


def _spans(alloc: Alloc) -> list[set[Extent]]:
    """Return, for each axis of a register tile, the extents of the unrolled loops that index it.
    All loops that write or read the tile must agree, because a load in the untaken branch of a
    Select is still executed."""
    spans: list[set[Extent]] = [set() for _ in alloc.buffer.shape]
    if alloc.buffer.scope is not MemoryScope.REGISTER:
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
    """Check whether, under the facts of `context`, the statement executes nothing but
    prefetches."""
    match stmt:
        case If(condition, then, otherwise):
            truth = context.truth(condition)
            return (truth is False or is_idle(then, context)) and (
                truth is True or otherwise is None or is_idle(otherwise, context)
            )
        case For(var, extent, _, body):
            return is_idle(body, context.over({var: extent}))
        case Block() | Alloc():
            return all(is_idle(part, context) for part in below(stmt))
        case While():
            return False
        case Store() | Prefetch() | Intrinsic() | Barrier():
            return stmt.effect is Effect.HINT
        case _:
            assert_never(stmt)
