"""Takes guards out of hot loops: copies of the nest where a guard always holds, and tails.

before:  for o in 3:
             for i in 4:
                 if o*4 + i < 10: b[o*4 + i] = a[o*4 + i]
after:   for o in 2:
             for i in 4: b[o*4 + i] = a[o*4 + i]
         for i_tail in 2: b[i_tail + 8] = a[i_tail + 8]

A guard is a lower bound on a linear form. Seen from the loop of a variable `v`, its terms are outer
(bound here) or inner (of loops below). Where a bound on `v` alone makes it hold for all inner
iterations, the loop is cut in two; where that takes another outer form (a digit of a fused loop),
or the loop is parallel, the body gets an If. Cutting at every level from the outside in leaves
tails whose guards have shortened the inner loops to constants.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TypeGuard, assert_never

from farrier.ir import expr as e
from farrier.ir.affine import Linear, Simplifier, combine
from farrier.ir.expr import Binary, BinaryOp, Expr, Var
from farrier.ir.loop import (
    Alloc,
    Block,
    For,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    Tile,
)
from farrier.ir.substitute import Substitution, variables
from farrier.ir.types import DType

_EMPTY = Block(())
_NOTHING: Mapping[str, Expr] = {}


def specialize(body: Stmt) -> Stmt:
    """The nest with simplified indices, no loop of one iteration, and guards outside hot loops."""
    return _Specializer(body).stmt(body, _Context({}, {}))


class _Context:
    """What is known at a place: ranges of the loops around, bounds of atoms."""

    __slots__ = ("facts", "ranges", "simplifier")

    def __init__(self, ranges: Mapping[str, int], facts: Mapping[Expr, tuple[int, int]]) -> None:
        self.ranges = ranges
        self.facts = facts
        self.simplifier = Simplifier(ranges, facts)

    def within(self, ranges: Mapping[str, int]) -> _Context:
        """The context below further loops."""
        return _Context({**self.ranges, **ranges}, self.facts)

    def knowing(self, atom: Expr, low: int, high: int) -> _Context:
        """The context in a branch where `low <= atom <= high`."""
        return _Context(self.ranges, {**self.facts, atom: (low, high)})


@dataclasses.dataclass(frozen=True, slots=True)
class _Guard:
    """`outer + inner >= 0`, where `inner` takes every value in [low, high] within one iteration."""

    outer: dict[Expr, int]
    low: int
    high: int


class _Specializer:
    def __init__(self, body: Stmt) -> None:
        self._taken = {s.var for s in _statements(body) if isinstance(s, For)}
        self._copies: dict[str, int] = {}  # of each loop, so far

    def stmt(self, stmt: Stmt, context: _Context) -> Stmt:
        simplify = context.simplifier.simplify
        match stmt:
            case For():
                return self._loop(stmt, context)
            case Block(statements):
                return _block([self.stmt(s, context) for s in statements])
            case Alloc(buffer, body):
                inside = self.stmt(body, context)
                return inside if inside == _EMPTY else Alloc(buffer, inside)
            case If():
                return self._if(stmt, context)
            case Store(buffer, indices, value):
                return Store(buffer, tuple(map(simplify, indices)), simplify(value))
            case Prefetch(buffer, indices, level):
                return Prefetch(buffer, tuple(map(simplify, indices)), level)
            case Intrinsic(name, operands):
                tiles = (Tile(t.buffer, tuple(map(simplify, t.origin))) for t in operands)
                return Intrinsic(name, tuple(tiles))
        assert_never(stmt)

    def _if(self, stmt: If, context: _Context) -> Stmt:
        condition = context.simplifier.simplify(stmt.condition)
        truth = context.simplifier.truth(condition)
        if truth is True:
            return self.stmt(stmt.then, context)
        if truth is False:
            return _EMPTY if stmt.otherwise is None else self.stmt(stmt.otherwise, context)
        then = self.stmt(stmt.then, context)
        otherwise = None if stmt.otherwise is None else self.stmt(stmt.otherwise, context)
        if then == _EMPTY and otherwise in (None, _EMPTY):
            return _EMPTY
        return If(condition, then, otherwise)

    def _loop(self, loop: For, context: _Context) -> Stmt:
        if loop.extent == 0:
            return _EMPTY
        if loop.extent == 1:
            return self.stmt(Substitution({loop.var: e.index(0)}).stmt(loop.body), context)
        inside = context.within({loop.var: loop.extent})
        if not any(isinstance(s, If) for s in _statements(loop.body)):
            return _for(loop, self.stmt(loop.body, inside))
        if loop.kind is not LoopKind.PARALLEL:
            cut = self._cut(loop, inside)
            if cut is not None:
                first = For(loop.var, cut, loop.kind, loop.body)
                return _block(
                    [self._loop(first, context), self.stmt(self._rest(loop, cut), context)]
                )
        return _for(loop, self._branch(loop.var, loop.body, inside))

    def _cut(self, loop: For, context: _Context) -> int | None:
        """Where to cut the loop so that a guard holds throughout one of the parts."""
        for guard in _guards(loop.body, loop.var, context):
            if list(guard.outer) != [Var(loop.var)]:
                continue
            factor = guard.outer[Var(loop.var)]
            cut = guard.low // -factor + 1 if factor < 0 else -(guard.low // factor)
            if 0 < cut < loop.extent:
                return cut
            # Holds nowhere for all inner iterations: leave out those where it never holds.
            cut = guard.high // -factor + 1 if factor < 0 else -(guard.high // factor)
            if 0 < cut < loop.extent:
                return cut
        return None

    def _rest(self, loop: For, cut: int) -> Stmt:
        """The loop from `cut` on, counted from zero, its names and those below made new."""
        extent = loop.extent - cut
        if extent == 1:
            return self._copy(loop.body, {loop.var: e.index(cut)})
        (name,) = self._new_names([loop.var])
        return For(
            name, extent, loop.kind, self._copy(loop.body, {loop.var: e.add(Var(name), cut)})
        )

    def _branch(self, var: str, body: Stmt, context: _Context) -> Stmt:
        """The body of `var`'s loop, an If around it for each guard that outer terms decide."""
        for guard in _guards(body, var, context):
            if len(guard.outer) > 1 or var not in variables(next(iter(guard.outer))):
                continue
            ((atom, factor),) = guard.outer.items()
            low, high = context.simplifier.bounds(atom)
            if factor < 0:
                most = guard.low // -factor  # the guard holds up to here
                if not low <= most < high:
                    continue
                hot = context.knowing(atom, low, most)
                cold = context.knowing(atom, most + 1, high)
                condition = e.less(atom, most + 1)
            else:
                least = -(guard.low // factor)
                if not low < least <= high:
                    continue
                hot = context.knowing(atom, least, high)
                cold = context.knowing(atom, low, least - 1)
                condition = e.less(least - 1, atom)
            then = self._branch(var, body, hot)
            otherwise = self._branch(var, self._copy(body), cold)
            return If(condition, then, None if otherwise == _EMPTY else otherwise)
        return self.stmt(body, context)

    def _copy(self, stmt: Stmt, variables: Mapping[str, Expr] = _NOTHING) -> Stmt:
        """The statement with some variables replaced and new names for its loops."""
        old = [s.var for s in _statements(stmt) if isinstance(s, For)]
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
            new.append(made)
        return new


def _guards(stmt: Stmt, var: str, context: _Context) -> Iterator[_Guard]:
    """The undecided linear guards within that mention `var`, as seen from the body of its loop."""
    around: dict[str, int] | None = None
    simplifier = context.simplifier
    for condition, inner in _conditions(stmt, {}):
        if not _is_bound(condition) or var not in variables(condition):
            continue
        if inner is not around:
            around = inner
            simplifier = Simplifier({**context.ranges, **inner}, context.facts)
        form = _slack(condition, simplifier)
        outer: dict[Expr, int] = {}
        inside: dict[Expr, int] = {}
        mixed = False
        for atom, factor in form.terms.items():
            names = variables(atom)
            if names.isdisjoint(inner):
                outer[atom] = factor
            else:
                inside[atom] = factor
                mixed = mixed or not names <= inner.keys()
        if outer and not mixed:
            yield _Guard(outer, *simplifier.bounds_of(Linear(inside, form.const)))


def _conditions(stmt: Stmt, inner: dict[str, int]) -> Iterator[tuple[Expr, dict[str, int]]]:
    """Every conjunct of an If's condition, with the loops between it and here."""
    if isinstance(stmt, If):
        for conjunct in _conjuncts(stmt.condition):
            yield conjunct, inner
        yield from _conditions(stmt.then, inner)
        if stmt.otherwise is not None:
            yield from _conditions(stmt.otherwise, inner)
    elif isinstance(stmt, For):
        yield from _conditions(stmt.body, {**inner, stmt.var: stmt.extent})
    elif isinstance(stmt, Alloc):
        yield from _conditions(stmt.body, inner)
    elif isinstance(stmt, Block):
        for child in stmt.statements:
            yield from _conditions(child, inner)


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, Binary) and condition.op is BinaryOp.AND:
        yield from _conjuncts(condition.left)
        yield from _conjuncts(condition.right)
    else:
        yield condition


def _is_bound(condition: Expr) -> TypeGuard[Binary]:
    """Whether the condition compares the order of two indices."""
    return (
        isinstance(condition, Binary)
        and condition.op in (BinaryOp.LT, BinaryOp.LE)
        and e.dtype_of(condition.left) is DType.I64
    )


def _slack(condition: Binary, simplifier: Simplifier) -> Linear:
    """The form that the condition says is not negative."""
    form = combine(simplifier.linear(condition.right), simplifier.linear(condition.left), -1)
    return Linear(form.terms, form.const - (condition.op is BinaryOp.LT))


def _statements(stmt: Stmt) -> Iterator[Stmt]:
    yield stmt
    if isinstance(stmt, For | Alloc):
        yield from _statements(stmt.body)
    elif isinstance(stmt, Block):
        for child in stmt.statements:
            yield from _statements(child)
    elif isinstance(stmt, If):
        yield from _statements(stmt.then)
        if stmt.otherwise is not None:
            yield from _statements(stmt.otherwise)


def _for(loop: For, body: Stmt) -> Stmt:
    return _EMPTY if body == _EMPTY else For(loop.var, loop.extent, loop.kind, body)


def _block(statements: list[Stmt]) -> Stmt:
    flat: list[Stmt] = []
    for stmt in statements:
        flat += stmt.statements if isinstance(stmt, Block) else (stmt,)
    return flat[0] if len(flat) == 1 else Block(tuple(flat))
