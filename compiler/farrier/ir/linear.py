"""Linear forms of index expressions: sums of multiples of atoms, and a constant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from farrier.ir.dim import Extent, is_less
from farrier.ir.dim import bounds as extent_bounds
from farrier.ir.expr import Binary, BinaryOp, Expr, Var, index

Terms: TypeAlias = frozenset[tuple[Expr, Extent]]


class Linear(NamedTuple):
    """A linear form `sum(terms[atom] * atom) + const`; no coefficient is zero. Treat `terms` as
    read-only.

    An atom is an expression that is not a sum or a multiple, such as a variable or a remainder.
    """

    terms: dict[Expr, Extent]
    const: Extent


def to_expr(form: Linear) -> Expr:
    """Return a linear form as an expression: positive terms first, then the constant, then negative
    terms."""
    total: Expr | None = None
    for atom, factor in form.terms.items():
        if not _is_negative(factor):
            term = atom if factor == 1 else Binary(BinaryOp.MUL, atom, index(factor))
            total = term if total is None else Binary(BinaryOp.ADD, total, term)
    if total is None:
        total = index(form.const)
    elif form.const != 0:
        subtracted = _is_negative(form.const)
        op = BinaryOp.SUB if subtracted else BinaryOp.ADD
        total = Binary(op, total, index(-form.const if subtracted else form.const))
    for atom, factor in form.terms.items():
        if _is_negative(factor):
            term = atom if factor == -1 else Binary(BinaryOp.MUL, atom, index(-factor))
            total = Binary(BinaryOp.SUB, total, term)
    return total


def _is_negative(factor: Extent) -> bool:
    """Check whether a coefficient is zero or negative for all values of its symbols. Its term is
    then written with a minus sign."""
    return factor < 0 if isinstance(factor, int) else is_less(factor, 1)


def sorted_expr(terms: dict[Expr, Extent], const: Extent) -> Expr:
    """Return the expression of a sum with its terms in a fixed order, so that equal sums are equal
    expressions."""
    if len(terms) > 1:
        order = sorted(terms.items(), key=lambda term: (-_size(term[1]), _sort_key(term[0])))
        terms = dict(order)
    return to_expr(Linear(terms, const))


def _size(factor: Extent) -> int:
    return max(map(abs, extent_bounds(factor)))


def _sort_key(atom: Expr) -> str:
    if isinstance(atom, Var):
        return atom.name
    if isinstance(atom, Binary):
        return f"({_sort_key(atom.left)} {atom.op} {_sort_key(atom.right)})"
    return repr(atom)


def combine(left: Linear, right: Linear, factor: Extent) -> Linear:
    """Return `left + factor * right`."""
    if not right.terms:
        return Linear(left.terms, left.const + factor * right.const)
    terms = dict(left.terms)
    add_terms(terms, right.terms, factor)
    return Linear(terms, left.const + factor * right.const)


def add_terms(terms: dict[Expr, Extent], others: Mapping[Expr, Extent], factor: Extent) -> None:
    """Add `factor * others` to `terms`."""
    for atom, k in others.items():
        total = terms.get(atom, 0) + factor * k
        if total != 0:
            terms[atom] = total
        else:
            terms.pop(atom, None)


def multiple_of(terms: Mapping[Expr, Extent], total: Terms) -> int:
    """Return the integer k for which `k * total` is part of `terms`; 0 if there is none."""
    factor = 0
    for atom, k in total:
        coefficient = terms.get(atom, 0)
        if k == coefficient or k == -coefficient:
            ratio = 1 if k == coefficient else -1
        elif (
            not isinstance(coefficient, int)
            or not isinstance(k, int)
            or coefficient == 0
            or coefficient % k
        ):
            return 0
        else:
            ratio = coefficient // k
        if factor not in (0, ratio):
            return 0
        factor = ratio
    return factor


def without(terms: Mapping[Expr, Extent], total: Terms) -> dict[Expr, Extent]:
    """Return `terms` without the atoms of the sum `total`."""
    within = {atom for atom, _ in total}
    return {atom: k for atom, k in terms.items() if atom not in within}


def scale(form: Linear, factor: Extent) -> Linear:
    """Return `factor * form`."""
    if factor == 1:
        return form
    if factor == 0:
        return Linear({}, 0)
    return Linear({a: k * factor for a, k in form.terms.items()}, form.const * factor)


def whole_and_rest(
    form: Linear, divisor: Extent
) -> tuple[dict[Expr, Extent], dict[Expr, Extent], Extent, Extent]:
    """Split a linear form by a divisor; return (whole, rest, quotient, const).

    `form == divisor * (whole + quotient) + rest + const`, where `whole` and `rest` map atoms to
    coefficients, and 0 <= const < divisor if both are numbers.
    """
    whole: dict[Expr, Extent] = {}
    rest: dict[Expr, Extent] = {}
    for atom, k in form.terms.items():
        quotient, left = divmod_extent(k, divisor)
        if left != 0:
            rest[atom] = k
        else:
            whole[atom] = quotient
    return whole, rest, *divmod_extent(form.const, divisor)


def divmod_extent(extent: Extent, divisor: Extent) -> tuple[Extent, Extent]:
    """Return the quotient and the remainder of `extent` by `divisor`, or (0, extent) if the
    quotient would need a new symbolic division."""
    if isinstance(extent, int) and isinstance(divisor, int):
        return divmod(extent, divisor)
    quotient, rest = extent // divisor, extent % divisor
    return (quotient, rest) if isinstance(rest, int) else (0, extent)


def sides(form: Linear) -> tuple[Expr, Expr]:
    """Return (left, right) such that `left < right` is equivalent to `form < 0`. Terms with
    negative coefficients are moved to the right side, so that all coefficients are positive."""
    left = Linear({a: k for a, k in form.terms.items() if not _is_negative(k)}, 0)
    right = Linear({a: -k for a, k in form.terms.items() if _is_negative(k)}, 0)
    if _is_negative(form.const):
        right = Linear(right.terms, -form.const)
    else:
        left = Linear(left.terms, form.const)
    return to_expr(left), to_expr(right)
