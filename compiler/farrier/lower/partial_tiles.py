"""Register tiles of which one iteration of the loops around uses a part.

before:
    @function
    def rows(a: f32[7], w: f32[64], y: f32[7], z: f32[2, 64]):
        for n in serial(2):
            for j in unrolled(64):
                z[n, j] = w[j]
            for o in serial(2):
                with alloc(f32[2] in register) as t:
                    for i in unrolled(2):
                        if n * 4 + (o * 2 + i) < 7:
                            t[i] = a[n * 4 + (o * 2 + i)]
                    for r in unrolled(2):
                        if n * 4 + (o * 2 + r) < 7:
                            y[n * 4 + (o * 2 + r)] = t[r] + t[r]
after:
    @function
    def rows(a: f32[7], w: f32[64], y: f32[7], z: f32[2, 64]):
        for n in serial(2):
            for j in unrolled(64):
                z[n, j] = w[j]
            for o in serial(2):
                if n * 2 + o < 3:
                    with alloc(f32[2] in register) as t:
                        for i in unrolled(2):
                            t[i] = a[n * 4 + o * 2 + i]
                        for r in unrolled(2):
                            y[n * 4 + o * 2 + r] = t[r] + t[r]
                else:
                    with alloc(f32[2] in register) as t:
                        t[0] = a[6]
                        y[6] = t[0] + t[0]

Decided in the outer loop, the guard would cost a copy of all the code next to the tile.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from farrier.ir.affine import Simplifier
from farrier.ir.dim import product
from farrier.ir.expr import MemoryScope, Var
from farrier.ir.loop import Alloc, For, LoopKind, Stmt
from farrier.ir.statements import below, walk_stmts
from farrier.ir.substitute import variables
from farrier.lower.code_size import unrolled_size
from farrier.lower.guards import Guard, Guards

# The iterations of the loops around are examined one by one, up to this number of them.
_MOST = 4096


class Part(NamedTuple):
    """The iteration that uses a part of a tile: `at` are the variables of the loops around.

    The tile is used whole if a guard's outer terms add up to `whole` or more, and not at all if
    they are less than `least`, which is None if that never happens.
    """

    at: Mapping[str, int]
    whole: int
    least: int | None


def part_of_tile(guard: Guard, context: Simplifier) -> Part | None:
    """The one iteration of the loops around that uses a part of a tile, by a guard as it is seen
    from the tile; None where there is none, or several."""
    low, high = guard.low, guard.high
    factors: dict[str, int] = {}
    ranges: list[range] = []
    for atom, factor in guard.outer.items():
        first, last = context.bounds(atom)
        if not (isinstance(atom, Var) and isinstance(factor, int)):
            return None
        if not (isinstance(first, int) and isinstance(last, int)):
            return None
        factors[atom.name] = factor
        ranges.append(range(first, last + 1))
    if not (isinstance(low, int) and isinstance(high, int)) or product(map(len, ranges)) > _MOST:
        return None
    parts: list[Mapping[str, int]] = []
    is_ever_idle = False
    for values in itertools.product(*ranges):
        outer = sum(k * value for k, value in zip(factors.values(), values, strict=True))
        if outer + high < 0:
            is_ever_idle = True
        elif outer + low < 0:
            parts.append(dict(zip(factors, values, strict=True)))
    if len(parts) != 1:
        return None
    return Part(parts[0], -low, -high if is_ever_idle else None)


def is_left_to_tile(
    guard: Guard, var: str, body: Stmt, context: Simplifier, guards: Guards, least_else: int
) -> bool:
    """Check whether to decide a guard where a register tile in the body of `var`'s loop is
    allocated, whose used part it bounds: if there are `least_else` unrolled stores or more next to
    that tile, and a single iteration of the loops around uses a part of it."""
    if guard.soft:
        return False
    names = {name for atom in guard.inner for name in variables(atom)}
    own = [(tile, around) for tile, around in _tiles(body) if names & _unrolled(tile)]
    if len(own) != 1:
        return False
    ((tile, around),) = own
    if unrolled_size(body) - unrolled_size(tile) < least_else:
        return False
    terms = {**guard.outer, **guard.inner}
    here = context.over({loop.var: loop.extent for loop in around})
    return any(
        {**seen.outer, **seen.inner} == terms and part_of_tile(seen, here) is not None
        for seen in guards.of(tile, var, here)
    )


def _tiles(stmt: Stmt, around: tuple[For, ...] = ()) -> Iterator[tuple[Alloc, tuple[For, ...]]]:
    """The register tiles in a statement, outermost ones, and the loops around each."""
    if isinstance(stmt, Alloc) and stmt.buffer.scope is MemoryScope.REGISTER:
        yield stmt, around
        return
    inside = (*around, stmt) if isinstance(stmt, For) else around
    for part in below(stmt):
        yield from _tiles(part, inside)


def _unrolled(tile: Alloc) -> set[str]:
    """The variables of unrolled loops in a tile."""
    loops = (stmt for stmt in walk_stmts(tile) if isinstance(stmt, For))
    return {loop.var for loop in loops if loop.kind is LoopKind.UNROLLED}
