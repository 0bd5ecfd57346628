"""Finds the conditions in a loop nest that bound linear forms of loop variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from farrier.ir.affine import Linear, Simplifier
from farrier.ir.dim import Extent
from farrier.ir.expr import Binary, BinaryOp, Cast, Expr, Load, Select, Unary
from farrier.ir.loop import Alloc, Block, For, If, Stmt, Store, While
from farrier.ir.substitute import loads, variables


@dataclasses.dataclass(frozen=True, slots=True)
class Guard:
    """`outer + inner >= 0`, where `inner` lies in [low, high] within one iteration of a loop.

    `outer` are the terms bound outside that loop's body, `inner` those bound within; the ends of
    the latter's range include the constant. A `soft` guard is a Select's: code may be
    kept as it is where taking the guard out of a loop would cost too many copies.
    """

    outer: dict[Expr, Extent]
    inner: dict[Expr, Extent]
    low: Extent
    high: Extent
    soft: bool

    @property
    def is_uniform(self) -> bool:
        """Whether it holds for all inner iterations or for none."""
        return self.low == self.high


def guards(body: Stmt, var: str, known: Simplifier) -> Iterator[Guard]:
    """The linear guards within that mention `var`, as seen from the body of its loop; `known` is
    what is known there."""
    around: dict[str, Extent] | None = None
    simplifier = known
    for condition, inner, soft in _conditions(body, {}):
        if var not in variables(condition):
            continue
        if inner is not around:
            around = inner
            simplifier = Simplifier({**known.ranges, **inner}, known.facts, known.sums)
        form = simplifier.slack(condition)
        if form is None:
            continue
        outer: dict[Expr, Extent] = {}
        inside: dict[Expr, Extent] = {}
        linear = True
        for atom, factor in form.terms.items():
            names = variables(atom)
            inwards = not names.isdisjoint(inner)
            (inside if inwards else outer)[atom] = factor
            linear = linear and (not inwards or names <= inner.keys()) and not any(loads(atom))
        if outer and linear:
            yield Guard(outer, inside, *simplifier.bounds_of(Linear(inside, form.const)), soft)


def _conditions(
    stmt: Stmt, inner: dict[str, Extent]
) -> Iterator[tuple[Expr, dict[str, Extent], bool]]:
    """Each conjunct of a condition, the loops between it and here, whether it is a Select's."""
    if isinstance(stmt, If):
        for conjunct in _conjuncts(stmt.condition):
            yield conjunct, inner, False
        yield from _conditions(stmt.then, inner)
        if stmt.otherwise is not None:
            yield from _conditions(stmt.otherwise, inner)
    elif isinstance(stmt, Store):
        for select in _selects(stmt.value):
            for conjunct in _conjuncts(select.condition):
                yield conjunct, inner, True
    elif isinstance(stmt, For):
        yield from _conditions(stmt.body, {**inner, stmt.var: stmt.extent})
    elif isinstance(stmt, Alloc | While):
        yield from _conditions(stmt.body, inner)
    elif isinstance(stmt, Block):
        for child in stmt.statements:
            yield from _conditions(child, inner)


def _selects(expr: Expr) -> Iterator[Select]:
    if isinstance(expr, Select):
        yield expr
        yield from _selects(expr.then)
        yield from _selects(expr.otherwise)
    elif isinstance(expr, Binary):
        yield from _selects(expr.left)
        yield from _selects(expr.right)
    elif isinstance(expr, Unary | Cast):
        yield from _selects(expr.operand)
    elif isinstance(expr, Load):
        for index in expr.indices:
            yield from _selects(index)


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, Binary) and condition.op is BinaryOp.AND:
        yield from _conjuncts(condition.left)
        yield from _conjuncts(condition.right)
    else:
        yield condition
