"""Handle register tiles that one iteration of the surrounding loops uses only in part.

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

If the guard were decided in the outer loop, all code next to the tile would be copied.
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
    """A tile of which exactly one iteration of the surrounding loops uses only a part; `at` maps
    the variables of these loops to their values in that iteration.

    A guard decides how much of the tile an iteration uses. If the guard's outer terms add up to at
    least `whole`, it uses the complete tile. If they add up to less than `least`, it uses nothing;
    `least` is None if that never happens.
    """

    at: Mapping[str, int]
    whole: int
    least: int | None


def part_of_tile(guard: Guard, context: Simplifier) -> Part | None:
    """Return the single iteration of the surrounding loops that uses a tile in part, according to a
    guard as seen from the tile; None if there are several such iterations, or none."""
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
    """Check whether a guard should be decided at the allocation of a register tile within `body`,
    the body of the loop over `var`.

    Three conditions must hold: the guard limits the used part of the tile; at least `least_else`
    unrolled stores are outside of the tile in `body`; and only a single iteration of the
    surrounding loops uses the tile in part.
    """
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
    """Yield the outermost register tiles in a statement, with the loops around each."""
    if isinstance(stmt, Alloc) and stmt.buffer.scope is MemoryScope.REGISTER:
        yield stmt, around
        return
    inside = (*around, stmt) if isinstance(stmt, For) else around
    for part in below(stmt):
        yield from _tiles(part, inside)


def _unrolled(tile: Alloc) -> set[str]:
    """Return the variables of the unrolled loops in a tile."""
    loops = (stmt for stmt in walk_stmts(tile) if isinstance(stmt, For))
    return {loop.var for loop in loops if loop.kind is LoopKind.UNROLLED}
