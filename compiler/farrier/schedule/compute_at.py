"""The schedule primitives `compute_at` and `compute_whole_at`: compute a buffer within a loop that
reads it.
"""

from __future__ import annotations

import dataclasses

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, is_less
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, MemoryScope, Var
from farrier.ir.loop import Alloc, For, Function, Stmt
from farrier.ir.statements import below, block, map_children, walk_stmts
from farrier.ir.substitute import Indices, Substitution
from farrier.ir.types import Shape
from farrier.schedule.accesses import changed_after, guarded_reads, prefetches, touches, writes
from farrier.schedule.nest import (
    NestView,
    Path,
    alloc_at,
    find,
    guarded,
    local_scope,
    loops,
    outermost_block,
    replaced,
    stores,
    without,
)
from farrier.schedule.region import Interval, everything, region


def compute_at(function: Function, buffer: str, loop: str) -> Function:
    """Compute, at the start of each iteration of `loop`, the elements of `buffer` that the
    iteration reads.

    before:
        @function
        def add_one(a: f32[8], b: f32[8]):
            with alloc(f32[8] in workspace) as t:
                for i in serial(8):
                    t[i] = a[i] + 1.0
                for o in serial(2):
                    for j in serial(4):
                        b[4 * o + j] = t[4 * o + j]
    after compute_at("t", "o"):
        @function
        def add_one(a: f32[8], b: f32[8]):
            for o in serial(2):
                with alloc(f32[4] in local) as t:
                    for i in serial(4):
                        t[i] = a[o * 4 + i] + 1.0
                    for j in serial(4):
                        b[4 * o + j] = t[j]

    The buffer shrinks to the box that the body of `loop` reads and becomes local to the iteration.
    The nests that write the buffer keep their loops, with smaller extents; their stores are guarded
    if the box may reach past the end of the buffer, or past the elements that guarded reads need.
    Elements that several iterations read are computed by each of them. Split the writing nests
    afterwards, not before.
    """
    nest = NestView(function, "compute_at")
    return _edit(nest, _check(nest, buffer, loop))


def compute_whole_at(function: Function, buffer: str, loop: str) -> Function:
    """Compute as `compute_at` does, but never beyond the end of the buffer: if the box of an
    iteration would extend past the end, it is shifted so that it ends there.

    before:
        @function
        def add_one(a: f32[10], b: f32[10]):
            with alloc(f32[10] in workspace) as t:
                for i in serial(10):
                    t[i] = a[i] + 1.0
                for o in serial(3):
                    for j in serial(4):
                        if 4 * o + j < 10:
                            b[4 * o + j] = t[4 * o + j]
    after compute_whole_at("t", "o"):
        @function
        def add_one(a: f32[10], b: f32[10]):
            for o in serial(3):
                with alloc(f32[4] in local) as t:
                    for i in serial(4):
                        t[i] = a[min(o * 4, 6) + i] + 1.0
                    for j in serial(4):
                        if 4 * o + j < 10:
                            b[4 * o + j] = t[o * 4 + j - min(o * 4, 6)]

    So every box is computed completely and without a guard, as tensor intrinsics require; the last
    box overlaps the box before it, whose elements are computed twice.
    """
    nest = NestView(function, "compute_whole_at")
    move = _check(nest, buffer, loop)
    covered = _covered(nest, move.producers, buffer)
    box = zip(move.box, covered, strict=True)
    inside = tuple(_inside(nest, interval, extent, move.simplifier) for interval, extent in box)
    return _edit(nest, dataclasses.replace(move, box=inside))


def _inside(nest: NestView, interval: Interval, extent: Extent, simplifier: Simplifier) -> Interval:
    """Return `interval`, shifted down if it would extend past `extent`, so that it ends there."""
    low, high = simplifier.bounds(interval.first)
    if interval.whole or not is_less(extent, high + interval.extent):
        return interval
    if is_less(low, 0) or not is_less(interval.extent, extent + 1):
        nest.fail(f"a box of {interval.extent} does not fit into {extent}")
    first = Binary(BinaryOp.MIN, interval.first, e.index(extent - interval.extent))
    return Interval(first, interval.extent)


@dataclasses.dataclass(frozen=True, slots=True)
class _Move:
    """The change that `compute_at` makes: the nests to move, the loop into which they are moved,
    and the box of the buffer that one iteration of that loop reads."""

    alloc_path: Path
    producers: list[Stmt]
    loop: For
    box: tuple[Interval, ...]
    simplifier: Simplifier


def _check(nest: NestView, name: str, loop_name: str) -> _Move:
    alloc_path, loop = nest.path_to_alloc(name), nest.loop(loop_name)
    alloc = alloc_at(alloc_path)
    if alloc.buffer.layout is not None and any(map(any, alloc.buffer.layout.halo)):
        nest.fail(f"{name} has a halo, which a part of it would lack")
    producers = [s for s in outermost_block(alloc.body) if name in writes(s)]
    if not producers:
        nest.fail(f"no nest writes {name}")
    for producer in producers:
        if writes(producer) != {name}:
            nest.fail(f"the nest that writes {name} also writes {sorted(writes(producer))}")
        if any(isinstance(s, Alloc) for s in walk_stmts(producer)):
            nest.fail(f"the nest that writes {name} allocates buffers of its own")
        _check_stores(nest, producer, name)
    _check_readers(nest, alloc, producers, loop)
    simplifier = Simplifier(nest.ranges())
    inner = frozenset(inside.var for inside in loops(loop.body))
    reads = list(guarded_reads(loop.body, name))
    if not reads:
        nest.fail(f"nothing within {loop_name} reads {name}")
    box = region(
        simplifier,
        [access.indices for access, _ in reads],
        inner,
        everything(_covered(nest, producers, name)),
        [conditions for _, conditions in reads],
    )
    return _Move(alloc_path, producers, loop, box, simplifier)


def _check_stores(nest: NestView, producer: Stmt, name: str) -> None:
    """Check that a nest stores each element at indices that are distinct loop variables of the
    nest."""
    bound = {loop.var for loop in loops(producer)}
    stored = {store.indices for store in stores(producer, name)}
    for indices in stored:
        names = [index.name for index in indices if isinstance(index, Var)]
        if len(stored) > 1 or len(set(names)) != len(indices) or not set(names) <= bound:
            nest.fail(
                f"{name} is not written at distinct loop variables: compute_at before you split"
            )


def _covered(nest: NestView, producers: list[Stmt], name: str) -> Shape:
    """Return, for each axis of the buffer, the extent of the loop over it in the nests that write
    the buffer."""
    ranges = nest.ranges()
    shapes = {
        tuple(
            ranges[index.name]
            for index in stores(producer, name)[0].indices
            if isinstance(index, Var)
        )
        for producer in producers
    }
    if len(shapes) > 1:
        nest.fail(f"the nests that write {name} cover different ranges: {shapes}")
    return shapes.pop()


def _check_readers(nest: NestView, alloc: Alloc, producers: list[Stmt], loop: For) -> None:
    """Check that all reads of the buffer are within the loop, and that no later statement changes a
    buffer that the producers read."""
    name = alloc.buffer.name
    if any(inside is loop for producer in producers for inside in walk_stmts(producer)):
        nest.fail(f"{loop.var} is one of the loops that compute {name}")
    changed = changed_after(alloc.body, producers)
    if changed:
        nest.fail(f"{name} is computed from {', '.join(changed)}, which change in between")
    for stmt in outermost_block(alloc.body):
        if any(stmt is producer for producer in producers):
            continue
        path = find(stmt, lambda s: s is loop)
        if path is None and touches(stmt, name):
            nest.fail(f"{name} is also read outside {loop.var}")
        for parent, child in zip(path or (), (path or ())[1:], strict=False):
            if any(s is not child and touches(s, name) for s in below(parent)):
                nest.fail(f"{name} is also read outside {loop.var}")
    if find(alloc.body, lambda s: s is loop) is None:
        nest.fail(f"{loop.var} does not stand where {name} is allocated")
    if prefetches(alloc.body, name):
        nest.fail(f"{name} is prefetched")


def _edit(nest: NestView, move: _Move) -> Function:
    alloc = alloc_at(move.alloc_path)
    old, box, simplifier = alloc.buffer, move.box, move.simplifier
    scope = local_scope(move.loop) if old.scope is MemoryScope.WORKSPACE else old.scope
    new = Buffer(old.name, old.dtype, tuple(i.extent for i in box), None, scope)

    def shift(buffer: Buffer, indices: Indices) -> Indices:
        if buffer.name != old.name:
            return indices
        return tuple(
            simplifier.simplify(e.sub(index, interval.first))
            for index, interval in zip(indices, box, strict=True)
        )

    change = Substitution(buffers={old.name: new}, access=shift)
    moved = [_shrunk(producer, move, change) for producer in move.producers]
    body = change.stmt(move.loop.body)
    inside = Alloc(new, block([*moved, body]))
    loop = For(move.loop.var, move.loop.extent, move.loop.kind, inside)
    rest = without(alloc.body, move.producers)
    path = find(rest, lambda s: s is move.loop)
    assert path is not None
    return nest.replace(move.alloc_path, replaced(path, loop))


def _shrunk(producer: Stmt, move: _Move, shift: Substitution) -> Stmt:
    """Return `producer` reduced to the elements within the box of `move`."""
    extents = {loop.var: loop.extent for loop in loops(producer)}
    first_store = stores(producer, next(iter(shift.buffers)))[0]
    variables: dict[str, Expr] = {}
    shorter: dict[str, Extent] = {}
    conditions: list[Expr] = []
    for index, interval in zip(first_store.indices, move.box, strict=True):
        assert isinstance(index, Var)
        if interval.whole and interval.extent == extents[index.name]:
            continue
        at = e.add(interval.first, index)
        variables[index.name] = at
        shorter[index.name] = interval.extent
        low, high = move.simplifier.bounds(interval.first)
        if not is_less(-1, low):
            conditions.append(e.less(-1, at))
        if not is_less(high + interval.extent, extents[index.name] + 1):
            conditions.append(e.less(at, extents[index.name]))
        if interval.last is not None:
            within = e.less(at, e.add(interval.last, 1))
            conditions.append(move.simplifier.simplify(within))
    moved = dataclasses.replace(shift, variables=variables).stmt(producer)
    moved = _with_extents(moved, shorter)
    for condition in conditions:
        moved = guarded(moved, condition)
    return moved


def _with_extents(stmt: Stmt, extents: dict[str, Extent]) -> Stmt:
    stmt = map_children(stmt, lambda s: _with_extents(s, extents))
    if isinstance(stmt, For) and stmt.var in extents:
        return For(stmt.var, extents[stmt.var], stmt.kind, stmt.body)
    return stmt
