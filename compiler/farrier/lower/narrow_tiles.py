"""Narrower register tiles for tails of unknown length.

before:  if m % 8 rows are left:  for i in unrolled(8): if o*8 + i < m: …
after:   if m % 8 < 2:            for i in unrolled(1): …
         else if m % 8 < 3:       for i in unrolled(2): …
         else if m % 8 < 5:       for i in unrolled(4): if o*8 + i < m: …
         else:                    for i in unrolled(7): if o*8 + i < m: …

Where few are left, a whole tile takes many times as long as they need: a decoder's step has one
row. Widths are powers of two, so that a tile computes less than twice of what is used.
"""

from __future__ import annotations

from collections.abc import Iterator

from farrier.ir.affine import Linear, Simplifier
from farrier.ir.dim import Extent, is_less
from farrier.ir.expr import Scope, Var
from farrier.ir.loop import Alloc, Block, For, If, LoopKind, Stmt, Store
from farrier.ir.statements import walk_stmts
from farrier.ir.substitute import loads, variables
from farrier.lower.guards import Guard, Guards


def narrower(body: Stmt, guard: Guard) -> Iterator[int]:
    """How many of the values of a guard's inner terms, fewest first, are worth a tile of their own:
    where one unrolled loop over a register tile, with a sum in it, runs over them."""
    if guard.soft or len(guard.inner) != 1:  # seen from further out, whole nests would be copied
        return
    tiled = {
        loop.var: loop.extent
        for alloc in walk_stmts(body)
        if isinstance(alloc, Alloc) and alloc.buffer.scope is Scope.REGISTER and _sums(alloc)
        for loop in walk_stmts(alloc.body)
        if isinstance(loop, For) and loop.kind is LoopKind.UNROLLED
    }
    terms = [
        (tiled[atom.name], -factor)
        for atom, factor in guard.inner.items()
        if isinstance(atom, Var) and atom.name in tiled and isinstance(factor, int)
    ]
    if len(terms) != 1:
        return
    ((extent, step),) = terms
    width = 1
    while isinstance(extent, int) and step > 0 and 4 * width <= 3 * extent:
        yield width * step
        width *= 2


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
        if count < loop.extent and _is_idle(loop.body, beyond):
            return For(loop.var, count, loop.kind, loop.body)
    return loop


def _is_idle(stmt: Stmt, context: Simplifier) -> bool:
    """Whether no condition in a statement lets anything through."""
    match stmt:
        case If(condition, then, otherwise):
            truth = context.truth(condition)
            return (truth is False or _is_idle(then, context)) and (
                truth is True or otherwise is None or _is_idle(otherwise, context)
            )
        case For(var, extent, _, body):
            return _is_idle(body, context.over({var: extent}))
        case Block(statements):
            return all(_is_idle(s, context) for s in statements)
        case Alloc(_, body):
            return _is_idle(body, context)
        case _:
            return False
