"""Find the guards in a loop nest: conditions that bound linear forms of loop variables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent
from farrier.ir.expr import Binary, BinaryOp, Expr, Select, Var
from farrier.ir.linear import Linear
from farrier.ir.loop import For, If, Stmt, Store
from farrier.ir.operands import OPERANDS
from farrier.ir.statements import below
from farrier.ir.substitute import loads, variables

_NO_LOOPS: dict[str, Extent] = {}


class Guard(NamedTuple):
    """A condition `outer + inner >= 0` as seen from the body of a loop; `inner`, including the
    constant, lies in [low, high] within one iteration.

    `outer` are the terms whose variables are bound outside the loop's body, `inner` the terms whose
    variables are bound within. A `soft` guard is the condition of a Select: it may stay where it is
    if moving it out of a loop would need too many copies of code.
    """

    outer: dict[Expr, Extent]
    inner: dict[Expr, Extent]
    low: Extent
    high: Extent
    soft: bool

    @property
    def is_uniform(self) -> bool:
        """Check whether the guard has the same value for all inner iterations."""
        return self.low == self.high


class _Condition(NamedTuple):
    """A conjunct of a condition, and the loops between it and the statement that was searched."""

    expr: Expr
    names: set[str]  # The names of its variables.
    inner: dict[str, Extent]
    soft: bool  # Set for the condition of a Select.


class Guards:
    """A finder of guards. The conditions of each statement are cached, because a nest is searched
    once for each of its loops."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Stmt, list[_Condition]]] = {}

    def of(self, body: Stmt, var: str, context: Simplifier) -> Iterator[Guard]:
        """Yield the linear guards within `body` that mention `var`, as seen from the body of the
        loop over `var`; `context` holds the facts known there."""
        around: dict[str, Extent] | None = None
        simplifier = context
        for condition, mentioned, inner, soft in self._conditions(body):
            if var not in mentioned:
                continue
            if inner is not around:
                around = inner
                simplifier = context.over(inner)
            form = simplifier.slack(condition)
            if form is None:
                continue
            outer: dict[Expr, Extent] = {}
            inside: dict[Expr, Extent] = {}
            linear = True
            for atom, factor in form.terms.items():
                if type(atom) is Var:
                    (inside if atom.name in inner else outer)[atom] = factor
                    continue
                names = variables(atom)
                inwards = not names.isdisjoint(inner)
                (inside if inwards else outer)[atom] = factor
                linear = linear and (not inwards or names <= inner.keys()) and not any(loads(atom))
            if outer and linear:
                yield Guard(outer, inside, *simplifier.bounds_of(Linear(inside, form.const)), soft)

    def _conditions(self, stmt: Stmt) -> list[_Condition]:
        entry = self._known.get(id(stmt))
        if entry is None:
            entry = self._known[id(stmt)] = (stmt, self._collect(stmt))
        return entry[1]

    def _collect(self, stmt: Stmt) -> list[_Condition]:
        """Return every conjunct of the conditions in a statement, in order."""
        if isinstance(stmt, Store):
            conditions = (select.condition for select in _selects(stmt.value))
            return [each for condition in conditions for each in _conjuncts(condition, True)]
        if isinstance(stmt, For):
            return _within(stmt, self._conditions(stmt.body))
        conjuncts = list(_conjuncts(stmt.condition, False)) if isinstance(stmt, If) else []
        for child in below(stmt):
            conjuncts += self._conditions(child)
        return conjuncts


def _within(loop: For, conditions: list[_Condition]) -> list[_Condition]:
    """Return the conditions of a loop's body as seen from outside the loop, with the loop added to
    their inner loops. Conditions that shared one mapping of inner loops share the new one."""
    before: dict[str, Extent] | None = None
    outside = []
    for expr, names, inner, soft in conditions:
        if inner is not before:
            before, ranges = inner, {loop.var: loop.extent, **inner}
        outside.append(_Condition(expr, names, ranges, soft))
    return outside


def _selects(expr: Expr) -> Iterator[Select]:
    """Yield every Select in an expression once, in order, without those in conditions."""
    stack = [expr]
    seen: set[int] = set()
    while stack:
        expr = stack.pop()
        if id(expr) in seen:
            continue
        seen.add(id(expr))
        if isinstance(expr, Select):
            yield expr
            stack += (expr.otherwise, expr.then)
        else:
            stack += OPERANDS[type(expr)](expr)[::-1]


def _conjuncts(condition: Expr, soft: bool) -> Iterator[_Condition]:
    if isinstance(condition, Binary) and condition.op is BinaryOp.AND:
        yield from _conjuncts(condition.left, soft)
        yield from _conjuncts(condition.right, soft)
    else:
        yield _Condition(condition, variables(condition), _NO_LOOPS, soft)
