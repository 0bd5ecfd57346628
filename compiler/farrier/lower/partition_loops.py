"""Copies of loop nests in which guards are decided: where one always holds, and tails."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import assert_never

from farrier.ir import expr as e
from farrier.ir.affine import Linear, Simplifier, to_expr
from farrier.ir.dim import Dim, Extent, is_less
from farrier.ir.expr import (
    Const,
    Expr,
    MemoryScope,
    Var,
)
from farrier.ir.loop import (
    Alloc,
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
from farrier.ir.statements import block, walk_stmts
from farrier.ir.substitute import Substitution, variables
from farrier.lower.code_size import WORK, unrolled_size
from farrier.lower.eliminate_dead_stores import EMPTY, either, loop_over
from farrier.lower.guards import Guard, Guards
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

_NOTHING: Mapping[str, Expr] = {}
_SOFT_COPIES = 256  # stores, unrolled, that may be copied to free others from a Select
_MUCH = 64  # stores, unrolled, that are not copied for a guard which a loop further in decides
_TAIL_COPIES = 2048  # stores, unrolled, that tails of unknown length may have in narrower tiles


def partition_loops(function: Function) -> Function:
    """Bring indices into canonical form, drop loops of one iteration, and take guards out of hot
    loops: a loop is cut where a guard begins or ceases to hold, and its tail is a copy.

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

    A guard is a lower bound on a linear form, of an If or of a Select. Seen from the loop of a
    variable `v`, its terms are outer (bound here) or inner (of loops below). If a bound on `v`
    alone makes it hold for all inner iterations, the loop is cut in two; if that takes another
    outer form (a digit of a fused loop), or the loop is parallel, the body gets an If. Cutting at
    every level from the outside in leaves tails whose guards have shortened the inner loops to
    constants. A loop of work further in that decides a guard by itself keeps it: a symbolic one,
    which shortens nothing, and any that would cost a copy of much code. `partial_tiles` decides
    about a tile in such a loop.
    """
    body = _Specializer(function).stmt(function.body, Simplifier({}))
    return dataclasses.replace(function, body=body)


class _Specializer:
    def __init__(self, function: Function) -> None:
        self._symbolic = bool(function.dims)
        self._taken = {s.var for s in walk_stmts(function.body) if isinstance(s, For)}
        self._guards = Guards()
        self._tiles = Tiles()
        self._copies: dict[str, int] = {}  # of each loop, so far
        self._origins: dict[str, str] = {}  # what a copied loop was before any copy, by name
        self._spent = 0  # stores copied for the sake of Selects
        self._tails = 0  # stores in tails of narrower tiles
        self._loops: list[str] = []  # around what is looked at
        self._sunk: list[str] = []  # loops around whose guards are decided where a tile is made
        self._left: list[str] = []  # loops around of known extent, of which the same holds
        self._settled: tuple[Linear, ...] = ()  # what was tested around
        self._around: dict[str, frozenset[str]] = {}  # loops around the last Alloc of each name

    def stmt(self, stmt: Stmt, context: Simplifier) -> Stmt:
        simplify = context.simplify
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
                return While(simplify(condition), self.stmt(body, context))
            case Store(buffer, indices, value):
                return Store(buffer, tuple(map(simplify, indices)), simplify(value))
            case Prefetch(buffer, indices, level):
                return Prefetch(buffer, tuple(map(simplify, indices)), level)
            case Intrinsic(name, operands):
                tiles = (
                    dataclasses.replace(t, origin=tuple(map(simplify, t.origin))) for t in operands
                )
                return Intrinsic(name, tuple(tiles))
        assert_never(stmt)

    def _tile(self, stmt: Alloc, context: Simplifier) -> Stmt | None:
        """A register tile under what was left to it: whole, or as far as the one iteration uses it
        that uses a part; None where nothing was left to it."""
        if stmt.buffer.scope is not MemoryScope.REGISTER:
            return None
        for var in self._left:
            for guard in self._guards.of(stmt, var, context):
                test = Linear(guard.outer, guard.low)
                part = None if test in self._settled else part_of_tile(guard, context)
                if part is None:
                    continue
                outer = to_expr(Linear(guard.outer, 0))
                copy = self._copy(stmt, {name: e.index(value) for name, value in part.at.items()})
                rest = self.stmt(copy, context)
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
            return then  # asked twice
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
            found = self._found(loop.body, loop.var, inside)
            cut = self._cut(loop, found, inside)
            if cut is not None:
                first = For(loop.var, cut, loop.kind, loop.body)
                return block(
                    [self._loop(first, context), self.stmt(self._rest(loop, cut), context)]
                )
            return loop_over(loop, self._branch(loop.var, loop.kind, loop.body, inside, found))
        # Nothing is gained by one condition for statements that have nothing in common.
        parts = loop.body.statements if isinstance(loop.body, Block) else (loop.body,)
        branches = [
            self._branch(loop.var, loop.kind, p, inside, self._found(p, loop.var, inside))
            for p in parts
        ]
        return loop_over(loop, block(branches))

    def _found(self, body: Stmt, var: str, context: Simplifier) -> list[Guard]:
        """The guards to decide in the body of `var`'s loop: those that mention it, and those of
        loops around that make a tile in it narrower."""
        found = list(self._guards.of(body, var, context))
        for outer in self._sunk:
            if outer != var:
                for guard in self._guards.of(body, outer, context):
                    is_settled = any(guard.outer == test.terms for test in self._settled)
                    if not is_settled and any(self._tiles.narrower(body, guard)):
                        found.append(guard)
        return found

    def _cut(self, loop: For, found: list[Guard], context: Simplifier) -> Extent | None:
        """Where to cut the loop so that a guard holds throughout one of the parts."""
        at = Var(loop.var)
        for guard in found:
            if len(guard.outer) != 1:
                continue
            factor = guard.outer.get(at)
            if not isinstance(factor, int):
                continue
            # Holds for all inner iterations from here on, or up to here; or else for none of them.
            for slack in (guard.low, guard.high):
                cut = slack // -factor + 1 if factor < 0 else -(slack // factor)
                if guard.soft and not isinstance(loop.extent, int):
                    continue
                if isinstance(cut, Dim) and loop.kind is not LoopKind.SERIAL:
                    continue
                if not _is_cut(cut, loop.extent):
                    continue
                if isinstance(cut, int) and (
                    _is_decided_within(guard, loop.body, False)
                    or self._is_left_to_tile(guard, loop.var, loop.body, context)
                ):
                    continue
                if self._may_copy(guard, loop.body):
                    return cut
        return None

    def _is_left_to_tile(self, guard: Guard, var: str, body: Stmt, context: Simplifier) -> bool:
        """Whether a guard of known numbers is decided where a tile is made, not in `var`'s loop."""
        is_left = any(Var(outer) in guard.outer for outer in self._left)  # by a loop further out
        beside = 0 if is_left else _MUCH
        return is_left_to_tile(guard, var, body, context, self._guards, beside)

    def _may_copy(self, guard: Guard, body: Stmt) -> bool:
        """Whether to make another copy of `body` for a guard's sake."""
        if not guard.soft:
            return True
        size = unrolled_size(body)
        if self._spent + size > _SOFT_COPIES:
            return False
        self._spent += size
        return True

    def _rest(self, loop: For, cut: Extent) -> Stmt:
        """The loop from `cut` on, counted from zero, its names and those below made new."""
        extent = loop.extent - cut
        if extent == 1:
            return self._copy(loop.body, {loop.var: e.index(cut)})
        (name,) = self._new_names([loop.var])
        return For(
            name, extent, loop.kind, self._copy(loop.body, {loop.var: e.add(Var(name), cut)})
        )

    def _branch(
        self,
        var: str,
        kind: LoopKind,
        body: Stmt,
        context: Simplifier,
        found: list[Guard],
        tested: tuple[Linear, ...] = (),
        is_edge: bool = False,
    ) -> Stmt:
        """The body of `var`'s loop, an If around it for each guard that outer terms decide, and
        that is none of those already `tested` around it. Where `is_edge`, a symbolic guard does not
        hold, and there is no further copy but for narrower tiles."""
        sunk = left = False
        for guard in found:
            test = Linear(guard.outer, guard.low)
            low, high = context.bounds_of(Linear(guard.outer, 0))
            if is_less(high, low):
                return EMPTY  # no size brings anyone here
            is_symbolic = any(isinstance(end, Dim) for end in (low, high, guard.low, guard.high))
            if is_symbolic and self._tiles.is_beside_work(body, guard):
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
            border = -guard.low  # where outer terms reach this, it holds for all inner iterations
            if is_less(border - 1, low) or is_less(high, border):
                continue
            if guard.soft and (not guard.is_uniform or is_symbolic):
                continue
            if kind in (LoopKind.VECTORIZED, LoopKind.UNROLLED) and is_symbolic:
                continue  # lanes are masked, and registers written in one branch alone are not set
            if _is_decided_within(guard, body, is_symbolic):
                continue
            cold = context.knowing(guard.outer, low, border - 1)
            is_all = is_symbolic and is_idle(body, cold)
            is_last = is_edge and is_symbolic and not is_all
            if is_last and not any(self._tiles.narrower(body, guard)):
                continue
            if not self._may_copy(guard, body):
                continue
            condition = context.simplify(e.less(border - 1, to_expr(Linear(guard.outer, 0))))
            hot = context.knowing(guard.outer, border, high)
            known = (*tested, test)
            otherwise: Stmt = EMPTY
            if not is_all:
                copy = self._copy(body)
                if is_symbolic:
                    copy = short_fill(pruned(copy, cold))
                inside = self._found(copy, var, cold)
                otherwise = self._branch(var, kind, copy, cold, inside, known, is_symbolic)
            inside = self._found(body, var, hot)
            then = self._branch(var, kind, body, hot, inside, known, is_edge)
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
        """The body of `var`'s loop, around which nothing more is decided: guards of that loop have
        `sunk`, or are `left`, to where tiles are made in it."""
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
        """A tail as narrower tiles for the sizes at which those do; None where it has none."""
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
        known = context.knowing(guard.outer, low, high)
        whole = rolled(narrow(body, known, self._guards))
        stmt = self._tail(var, kind, whole, known, guard, tested)
        for end in ends:
            known = context.knowing(guard.outer, low, end)
            tile = rolled(narrow(body, known, self._guards))
            if tile == whole:
                continue
            size = unrolled_size(tile)
            if self._tails + size > _TAIL_COPIES:
                break
            self._tails += size
            part = shortened(stmt, whole, tile, self._origins)
            if part is not None:
                branches.append((end, self._copy(part)))
            else:
                part = self._copy(tile)
                branches.append((end, self._tail(var, kind, part, known, guard, tested)))
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
        """The body of `var`'s loop where a guard does not hold for all of a tile: no other of the
        same outer terms is decided around it."""
        found = self._found(body, var, context)
        same = (Linear(g.outer, g.low) for g in found if g.outer == guard.outer)
        return self._branch(var, kind, body, context, found, (*tested, *same))

    def _copy(self, stmt: Stmt, variables: Mapping[str, Expr] = _NOTHING) -> Stmt:
        """The statement with some variables replaced and new names for its loops."""
        old = [s.var for s in walk_stmts(stmt) if isinstance(s, For)]
        loops = dict(zip(old, self._new_names(old), strict=True))
        renamed = {name: Var(new) for name, new in loops.items()}
        return Substitution({**variables, **renamed}, loops=loops).stmt(stmt)

    def _new_names(self, names: list[str]) -> list[str]:
        """A name for the copy of each loop: `<loop>_tail`, numbered from the second on."""
        new = []
        for name in names:
            base, made = name.partition("_tail")[0], name
            count = self._copies.get(base, 0)
            while made in self._taken:
                count += 1
                made = f"{base}_tail{count if count > 1 else ''}"
            self._copies[base] = count
            self._taken.add(made)
            self._origins[made] = self._origins.get(name, name)
            new.append(made)
        return new


def _is_cut(cut: Extent, extent: Extent) -> bool:
    """Whether to cut a loop at `cut`: within it, or, where symbols leave that open, not outside of
    it; one of the two parts may then be empty."""
    if isinstance(cut, int) and isinstance(extent, int):
        return 0 < cut < extent
    return cut not in (0, extent) and is_less(-1, cut) and is_less(cut, extent + 1)


def _is_decided_within(guard: Guard, body: Stmt, is_symbolic: bool) -> bool:
    """Whether a serial loop in `body` is to decide a guard: once for a loop or a tile of work the
    test costs nothing, and here it costs a copy of all that stands beside that loop. A symbolic
    one may be decided for all of a tile there; another is left to the loop that it speaks of."""
    names = {name for atom in guard.inner for name in variables(atom)}
    loops = [loop for loop in _serial_loops(body) if loop.var in names]
    if not loops or (len(loops) > 1 and not is_symbolic):
        return False
    loop = loops[0]  # the outermost; what it leaves open goes on to the others
    copied = unrolled_size(body)
    if not is_symbolic and (guard.soft or names != {loop.var} or copied < _MUCH):
        return False
    size = unrolled_size(loop.body)
    is_least = 2 * size < copied
    return is_least or size >= WORK or any(_serial_loops(loop.body))


def _serial_loops(stmt: Stmt) -> Iterator[For]:
    """Those of more than one iteration."""
    for loop in walk_stmts(stmt):
        if isinstance(loop, For) and loop.kind is LoopKind.SERIAL and loop.extent != 1:
            yield loop
