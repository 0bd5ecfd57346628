"""Partition loop nests: the main part needs no tests, because its guards always hold; the tails are
copies for the remaining iterations."""

from __future__ import annotations

import dataclasses
from typing import assert_never

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Dim, Extent, is_less
from farrier.ir.expr import (
    Const,
    MemoryScope,
    Var,
)
from farrier.ir.linear import Linear, to_expr
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
from farrier.ir.operands import map_operands
from farrier.ir.statements import block
from farrier.lower.copies import Copies
from farrier.lower.eliminate_dead_stores import EMPTY, either, loop_over
from farrier.lower.guards import Guard, Guards
from farrier.lower.inner_loops import MUCH, is_decided_within
from farrier.lower.narrow_tiles import (
    Tiles,
    is_idle,
    narrow,
    parts_of_tail,
    rolled,
    shortened,
)
from farrier.lower.partial_tiles import is_left_to_tile, part_of_tile
from farrier.lower.pruning import pruned, short_fill
from farrier.lower.whole_tiles import whole_tile


def partition_loops(function: Function) -> Function:
    """Simplify indices, drop loops of one iteration, and remove guards from hot loops: a loop is
    cut where a guard starts or ceases to hold, and the tail is a copy.

    before:
        @function
        def rows(a: f32[1, 10], b: f32[1, 10]):
            for n in serial(1):
                for o in serial(3):
                    for i in vectorized(4):
                        if o * 4 + i < 10:
                            b[n, o * 4 + i] = a[n, o * 4 + i]
    after:
        @function
        def rows(a: f32[1, 10], b: f32[1, 10]):
            for o in serial(2):
                for i in vectorized(4):
                    b[0, o * 4 + i] = a[0, o * 4 + i]
            for i_tail in vectorized(2):
                b[0, i_tail + 8] = a[0, i_tail + 8]

    A guard is a condition of an If or a Select that bounds a linear form of loop variables from
    below. Seen from the loop over a variable `v`, the form has outer terms, whose variables have a
    value at this point, and inner terms, whose variables are those of loops within.

    If a bound on `v` alone makes the guard hold for all inner iterations, the loop over `v` is cut
    in two at that bound. If that takes another condition on the outer terms (such as on a digit of
    a fused loop), or if the loop is parallel, its body becomes an If instead. Loops are cut from
    the outside in, so that in the tails, the guards reduce the inner loops to constant extents.

    A guard stays where it is, in an inner loop that does enough work to amortize the test, in two
    cases: the guard is symbolic, so that it would not shorten a loop; or removing it would copy
    much code. `partial_tiles` decides whether a guard is left to a register tile in such a loop.
    """
    body = _Partitioner(function).stmt(function.body, Simplifier({}))
    return dataclasses.replace(function, body=body)


class _Partitioner:
    """A traversal of a nest that carries the facts known at each statement.

    `_loops` are the loops around the current statement. Some guards are not decided in these loops
    but later, at the allocation of a register tile: `_sunk` has the loops that deferred guards on
    symbolic sizes, `_left` the loops that deferred guards on constants. `_settled` are the
    conditions of the Ifs already placed around the statement. `_around` maps each buffer to the
    loops around its last Alloc.
    """

    def __init__(self, function: Function) -> None:
        self._symbolic = bool(function.dims)
        self._copies = Copies(function.body)
        self._guards = Guards()
        self._tiles = Tiles()
        self._loops: list[str] = []
        self._sunk: list[str] = []
        self._left: list[str] = []
        self._settled: tuple[Linear, ...] = ()
        self._around: dict[str, frozenset[str]] = {}

    def stmt(self, stmt: Stmt, context: Simplifier) -> Stmt:
        match stmt:
            case For():
                return self._loop(stmt, context)
            case Block(statements):
                return block([self.stmt(s, context) for s in statements])
            case Alloc(buffer, body):
                self._around[buffer.name] = frozenset(self._loops)
                decided = self._tile(stmt, context)
                return Alloc(buffer, self.stmt(body, context)) if decided is None else decided
            case If():
                return self._if(stmt, context)
            case While(condition, body):
                return While(context.simplify(condition), self.stmt(body, context))
            case Store() | Prefetch() | Intrinsic() | Barrier():
                return map_operands(stmt, context.simplify)
        assert_never(stmt)

    def _tile(self, stmt: Alloc, context: Simplifier) -> Stmt | None:
        """Decide the guards that were left to a register tile. Return an If with two versions of
        the tile: one for iterations that use it completely, and one for the single iteration that
        uses a part of it. Return None if no guard was left to the tile."""
        if stmt.buffer.scope is not MemoryScope.REGISTER:
            return None
        for var in self._left:
            for guard in self._guards.of(stmt, var, context):
                test = Linear(guard.outer, guard.low)
                part = None if test in self._settled else part_of_tile(guard, context)
                if part is None:
                    continue
                outer = to_expr(Linear(guard.outer, 0))
                at = {name: e.index(value) for name, value in part.at.items()}
                rest = self.stmt(self._copies.of(stmt, at), context)
                if part.least is not None:
                    rest = If(context.simplify(e.less(part.least - 1, outer)), rest)
                _, most = context.bounds_of(Linear(guard.outer, 0))
                before = self._settled
                self._settled = (*before, test)
                whole = self.stmt(stmt, context.knowing(guard.outer, part.whole, most))
                self._settled = before
                condition = context.simplify(e.less(part.whole - 1, outer))
                if isinstance(condition, Const):
                    return whole if condition.value else rest
                return If(condition, whole, rest)
        return None

    def _if(self, stmt: If, context: Simplifier) -> Stmt:
        condition = context.simplify(stmt.condition)
        if isinstance(condition, Const):
            taken = stmt.then if condition.value else stmt.otherwise
            return EMPTY if taken is None else self.stmt(taken, context)
        then = self.stmt(stmt.then, context)
        otherwise = None if stmt.otherwise is None else self.stmt(stmt.otherwise, context)
        if isinstance(then, If) and (condition, otherwise) == (then.condition, then.otherwise):
            return then
        return If(condition, then, otherwise)

    def _loop(self, loop: For, context: Simplifier) -> Stmt:
        if loop.extent == 0:
            return EMPTY
        inside = context.over({loop.var: loop.extent})
        if loop.extent == 1:
            return self.stmt(loop.body, inside)
        if self._symbolic and loop.kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED):
            lanes = {loop.var} if loop.kind is LoopKind.VECTORIZED else set()
            whole = whole_tile(loop.body, inside, self._around, frozenset(lanes))
            if whole is not None:
                loop = dataclasses.replace(loop, body=whole)
        if loop.kind is not LoopKind.PARALLEL:
            guards = self._open_guards(loop.body, loop.var, inside)
            cut = self._cut(loop, guards, inside)
            if cut is not None:
                first = self._loop(For(loop.var, cut, loop.kind, loop.body), context)
                return block([first, self.stmt(self._copies.rest(loop, cut), context)])
            return loop_over(loop, self._branch(loop.var, loop.kind, loop.body, inside, guards))
        # One condition around unrelated statements would gain nothing, so each gets its own.
        parts = loop.body.statements if isinstance(loop.body, Block) else (loop.body,)
        branches = [
            self._branch(loop.var, loop.kind, p, inside, self._open_guards(p, loop.var, inside))
            for p in parts
        ]
        return loop_over(loop, block(branches))

    def _open_guards(self, body: Stmt, var: str, context: Simplifier) -> list[Guard]:
        """Return the guards to decide in the body of the loop over `var`: all that mention `var`,
        and guards whose decision outer loops have deferred if they can make a tile in the body
        narrower."""
        guards = list(self._guards.of(body, var, context))
        for outer in self._sunk:
            if outer != var:
                for guard in self._guards.of(body, outer, context):
                    is_settled = any(guard.outer == test.terms for test in self._settled)
                    if not is_settled and any(self._tiles.narrower(body, guard)):
                        guards.append(guard)
        return guards

    def _cut(self, loop: For, guards: list[Guard], context: Simplifier) -> Extent | None:
        """Return the iteration at which to cut the loop in two, such that some guard always holds
        in one of the two parts. Return None if no cut is worthwhile."""
        at = Var(loop.var)
        for guard in guards:
            if len(guard.outer) != 1:
                continue
            factor = guard.outer.get(at)
            if not isinstance(factor, int):
                continue
            # First the cut from which on the guard always holds, then that where it never holds.
            for slack in (guard.low, guard.high):
                cut = slack // -factor + 1 if factor < 0 else -(slack // factor)
                if guard.soft and not isinstance(loop.extent, int):
                    continue
                if isinstance(cut, Dim) and loop.kind is not LoopKind.SERIAL:
                    continue
                if not _is_cut(cut, loop.extent):
                    continue
                if isinstance(cut, int) and (
                    is_decided_within(guard, loop.body, False)
                    or self._is_left_to_tile(guard, loop.var, loop.body, context)
                ):
                    continue
                if self._copies.may_free(guard, loop.body):
                    return cut
        return None

    def _is_left_to_tile(self, guard: Guard, var: str, body: Stmt, context: Simplifier) -> bool:
        """Check whether a guard on constants is not decided in the loop over `var` but at the
        allocation of a register tile. If an outer loop has left the guard to the tile, all loops
        within it do so too."""
        is_left = any(Var(outer) in guard.outer for outer in self._left)
        least = 0 if is_left else MUCH
        return is_left_to_tile(guard, var, body, context, self._guards, least)

    def _branch(
        self,
        var: str,
        kind: LoopKind,
        body: Stmt,
        context: Simplifier,
        guards: list[Guard],
        tested: tuple[Linear, ...] = (),
        is_edge: bool = False,
    ) -> Stmt:
        """Return the body of the loop over `var`, within an If for each guard that the outer terms
        decide. Guards in `tested` are already decided. If `is_edge` is true, a symbolic guard is
        known to fail here, and further copies of the body are made for narrower tiles only."""
        sunk = left = False
        for guard in guards:
            test = Linear(guard.outer, guard.low)
            low, high = context.bounds_of(Linear(guard.outer, 0))
            if is_less(high, low):
                return EMPTY  # No values of the dims reach this code.
            is_symbolic = any(isinstance(end, Dim) for end in (low, high, guard.low, guard.high))
            if is_symbolic and self._tiles.is_next_to_work(body, guard):
                sunk = True
                continue
            if not is_symbolic and self._is_left_to_tile(guard, var, body, context):
                left = True
                continue
            if is_less(high, -guard.low):
                narrowed = self._narrowed(var, kind, body, context, guard, tested)
                if narrowed is not None:
                    return narrowed
            if test in tested:
                continue
            # From here on, outer terms make the guard hold for all inner iterations.
            border = -guard.low
            if is_less(border - 1, low) or is_less(high, border):
                continue
            if guard.soft and (not guard.is_uniform or is_symbolic):
                continue
            if kind in (LoopKind.VECTORIZED, LoopKind.UNROLLED) and is_symbolic:
                continue  # Lanes are masked, and a register must be written in both branches.
            if is_decided_within(guard, body, is_symbolic):
                continue
            cold = context.knowing(guard.outer, low, border - 1)
            is_all = is_symbolic and is_idle(body, cold)
            is_last = is_edge and is_symbolic and not is_all
            if is_last and not any(self._tiles.narrower(body, guard)):
                continue
            if not self._copies.may_free(guard, body):
                continue
            condition = context.simplify(e.less(border - 1, to_expr(Linear(guard.outer, 0))))
            hot = context.knowing(guard.outer, border, high)
            settled = (*tested, test)
            otherwise: Stmt = EMPTY
            if not is_all:
                copy = self._copies.of(body)
                if is_symbolic:
                    copy = short_fill(pruned(copy, cold))
                inside = self._open_guards(copy, var, cold)
                otherwise = self._branch(var, kind, copy, cold, inside, settled, is_symbolic)
            inside = self._open_guards(body, var, hot)
            then = self._branch(var, kind, body, hot, inside, settled, is_edge)
            return either(condition, then, otherwise)
        return self._body(var, body, context, tested, sunk=sunk, left=left)

    def _body(
        self,
        var: str,
        body: Stmt,
        context: Simplifier,
        tested: tuple[Linear, ...],
        *,
        sunk: bool,
        left: bool,
    ) -> Stmt:
        """Return the body of the loop over `var`, after all guards that are decided around it.
        `sunk` is true if the loop leaves guards on symbolic sizes to the allocation of tiles,
        `left` if it leaves guards on constants."""
        before = self._settled
        self._settled = (*before, *tested)
        self._loops.append(var)
        self._sunk += [var] * sunk
        self._left += [var] * left
        stmt = self.stmt(body, context)
        del self._left[len(self._left) - left :]
        del self._sunk[len(self._sunk) - sunk :]
        self._loops.pop()
        self._settled = before
        return stmt

    def _narrowed(
        self,
        var: str,
        kind: LoopKind,
        body: Stmt,
        context: Simplifier,
        guard: Guard,
        tested: tuple[Linear, ...],
    ) -> Stmt | None:
        """Return the body of the loop over `var` for a tail. It is a chain of Ifs that selects the
        narrowest tile with room for all used elements. Return None if no tile in the tail can be
        narrower."""
        test = Linear(guard.outer, guard.high)
        if not self._symbolic or test in tested:
            return None
        widths = list(self._tiles.narrower(body, guard))
        if not widths:
            return None
        tested = (*tested, test)
        low, high = context.bounds_of(Linear(guard.outer, 0))
        low, high, ends = parts_of_tail(guard, widths, low, high)
        branches: list[tuple[Extent, Stmt]] = []
        if ends and ends[0] == -1 - guard.high:
            branches.append((ends.pop(0), EMPTY))
            low = branches[0][0] + 1
        within = context.knowing(guard.outer, low, high)
        whole = rolled(narrow(body, within, self._guards))
        stmt = self._tail(var, kind, whole, within, guard, tested)
        for end in ends:
            within = context.knowing(guard.outer, low, end)
            tile = rolled(narrow(body, within, self._guards))
            if tile == whole:
                continue
            if not self._copies.may_narrow(tile):
                break
            part = shortened(stmt, whole, tile, self._copies.origins)
            if part is not None:
                branches.append((end, self._copies.of(part)))
            else:
                part = self._copies.of(tile)
                branches.append((end, self._tail(var, kind, part, within, guard, tested)))
            low = end + 1
        for end, part in reversed(branches):
            condition = context.simplify(e.less(to_expr(Linear(guard.outer, 0)), end + 1))
            stmt = either(condition, part, stmt)
        return stmt

    def _tail(
        self,
        var: str,
        kind: LoopKind,
        body: Stmt,
        context: Simplifier,
        guard: Guard,
        tested: tuple[Linear, ...],
    ) -> Stmt:
        """Return the body of the loop over `var` for the iterations in which `guard` fails for a
        part of a tile. Other guards with the same outer terms are not decided around this body."""
        guards = self._open_guards(body, var, context)
        same = (Linear(g.outer, g.low) for g in guards if g.outer == guard.outer)
        return self._branch(var, kind, body, context, guards, (*tested, *same))


def _is_cut(cut: Extent, extent: Extent) -> bool:
    """Check whether cutting a loop of this extent at `cut` divides it. If symbols leave that open,
    it is enough that `cut` is not outside the range; one of the two parts may then be empty."""
    if isinstance(cut, int) and isinstance(extent, int):
        return 0 < cut < extent
    return cut not in (0, extent) and is_less(-1, cut) and is_less(cut, extent + 1)
