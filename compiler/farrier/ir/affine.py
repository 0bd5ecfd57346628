"""Index arithmetic: canonical linear forms over loop variables of known extent.

    (16*co + ci) // 16          ->  co                     for ci in [0, 16)
    (16*co + ci) % 16           ->  ci
    (f // 7) * 7 + f % 7        ->  f
    32*o + 16*v + l < 48        ->  2*o + v < 3            for l in [0, 16)

Sums, products by constants, floor division and remainder act on linear forms directly. The sum of a
quotient and the remainder that belongs to it is replaced by the dividend as soon as the two meet in
one form. Each node is visited once, without a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd
from operator import attrgetter
from typing import NamedTuple, TypeAlias, TypeVar

from farrier.ir.dim import (
    Dim,
    Extent,
    Undecided,
    ceildiv,
    common_factor,
    is_less,
    maximum,
    minimum,
)
from farrier.ir.dim import bounds as extent_bounds
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    Reduce,
    Select,
    Size,
    Unary,
    UnaryOp,
    Var,
    dtype_of,
    extent_of,
    index,
)
from farrier.ir.linear import (
    Linear,
    Terms,
    add_terms,
    combine,
    divmod_extent,
    multiple_of,
    scale,
    sides,
    sorted_expr,
    to_expr,
    whole_and_rest,
    without,
)
from farrier.ir.operands import MAP_OPERANDS
from farrier.ir.substitute import variables
from farrier.ir.types import DType

Bounds: TypeAlias = tuple[Extent, Extent]  # both inclusive
# Stands for infinity in bounds: more than any product of symbols with wide ranges.
UNBOUNDED = 1 << 512
_NO_FACTS: Mapping[Expr, Bounds] = {}
_NO_SUMS: Mapping[Terms, Bounds] = {}
_UNKNOWN: Bounds = (-UNBOUNDED, UNBOUNDED)
_ARITHMETIC = frozenset(
    (
        BinaryOp.ADD,
        BinaryOp.SUB,
        BinaryOp.MUL,
        BinaryOp.DIV,
        BinaryOp.MOD,
        BinaryOp.MIN,
        BinaryOp.MAX,
    )
)
TRUE = Const(True, DType.BOOL)
FALSE = Const(False, DType.BOOL)


T = TypeVar("T")
# By the identity of an expression, which the entry keeps alive.
Known: TypeAlias = dict[int, tuple[Expr, T]]


class Affine(NamedTuple):
    """A linear form whose only atoms are variables: a constant, and coefficients by variable
    name."""

    terms: dict[str, Extent]
    const: Extent


def simplify(expr: Expr, ranges: Mapping[str, Extent]) -> Expr:
    """Return `expr` in canonical form, where variable `v` runs over `[0, ranges[v])`."""
    return Simplifier(ranges).simplify(expr)


def bounds(expr: Expr, ranges: Mapping[str, Extent]) -> Bounds:
    """Return the least and the greatest value of an index, both inclusive. If no bound is known, it
    is -UNBOUNDED or UNBOUNDED."""
    return Simplifier(ranges).bounds(expr)


def affine(expr: Expr, ranges: Mapping[str, Extent]) -> Affine | None:
    """Return an index as a linear form over variables, or None if it is not affine."""
    terms, const = Simplifier(ranges).linear(expr)
    named = {atom.name: factor for atom, factor in terms.items() if isinstance(atom, Var)}
    return Affine(named, const) if len(named) == len(terms) else None


class Simplifier:
    """A simplifier of expressions under one set of variable ranges. Results are cached, so keep one
    instance per loop nest.

    `facts` bounds single atoms, and `sums` bounds sums of several terms and their multiples; a
    branch of the code adds facts to both. A sum is represented by the set of its (atom,
    coefficient) pairs. Longer sums are tried first, because one sum may be part of another. The
    simplifier of a branch uses its parent's cached result for an expression if the branch adds no
    fact about an atom of it.
    """

    __slots__ = (
        "_bounds",
        "_changed",
        "_forms",
        "_names",
        "_parent",
        "_simple",
        "_slacks",
        "facts",
        "ranges",
        "sums",
    )

    def __init__(
        self,
        ranges: Mapping[str, Extent],
        facts: Mapping[Expr, Bounds] = _NO_FACTS,
        sums: Mapping[Terms, Bounds] = _NO_SUMS,
    ) -> None:
        self.ranges = dict(ranges)
        self.facts = facts
        self.sums = sums
        # Keyed by identity: hashing a tree costs more than reading it.
        self._forms: Known[Linear] = {}
        self._simple: Known[Expr] = {}
        self._slacks: Known[Linear | None] = {}
        self._bounds: dict[Expr, Bounds] = {}
        self._names: Known[set[str]] = {}
        # Its results hold for expressions without the names `_changed`.
        self._parent: Simplifier | None = None
        self._changed: frozenset[str] = frozenset()

    def linear(self, expr: Expr) -> Linear:
        """Return the canonical linear form of an index expression."""
        if type(expr) is Const:
            return Linear({}, int(expr.value))
        if type(expr) is Size:
            return Linear({}, expr.extent)
        if type(expr) is Var and not self.facts and not self.sums:
            return Linear({}, 0) if self.ranges.get(expr.name) == 1 else Linear({expr: 1}, 0)
        entry = self._forms.get(id(expr))
        if entry is None:
            entry = None if self._parent is None else self._inherited(expr, _FORMS)
            if entry is None:
                entry = expr, self._settle(self.join(self._form(expr)))
            self._forms[id(expr)] = entry
        return entry[1]

    def _inherited(
        self, expr: Expr, what: Callable[[Simplifier], Known[T]]
    ) -> tuple[Expr, T] | None:
        """Look for a result for `expr` that an enclosing simplifier has cached. `what` selects the
        kind of result, and thus the cache. Return None if there is none, or if a fact that an inner
        branch has added may change the result."""
        changed, before = self._changed, self._parent
        while before is not None:
            entry = what(before).get(id(expr))
            if entry is not None:
                return entry if changed.isdisjoint(self._names_in(expr)) else None
            changed, before = changed | before._changed, before._parent
        return None

    def _names_in(self, expr: Expr) -> set[str]:
        entry = self._names.get(id(expr))
        if entry is None:
            entry = self._names[id(expr)] = (expr, variables(expr))
        return entry[1]

    def _settle(self, form: Linear) -> Linear:
        """Return the linear form with constants in place of sums of terms: each sum whose facts
        allow only a single value is replaced by that value."""
        for total, (low, high) in self.sums.items() if self.sums else ():
            factor = multiple_of(form.terms, total) if low == high else 0
            if factor:
                form = Linear(without(form.terms, total), form.const + factor * low)
        return form

    def bounds(self, expr: Expr) -> Bounds:
        """Return the least and greatest value of an index expression, both inclusive."""
        return self.bounds_of(self.linear(expr))

    def bounds_of(self, form: Linear) -> Bounds:
        """Return the least and greatest value of a linear form, both inclusive."""
        try:
            return self._bounds_of(form)
        except Undecided:
            return _UNKNOWN

    def _bounds_of(self, form: Linear) -> Bounds:
        low: Extent = form.const
        high: Extent = form.const
        terms = form.terms
        if self.sums:
            for total, (least, most) in self.sums.items():
                multiple = multiple_of(terms, total)
                if multiple:
                    low += multiple * (least if multiple > 0 else most)
                    high += multiple * (most if multiple > 0 else least)
                    terms = without(terms, total)
        for atom, factor in terms.items():
            least, most = self._atom_bounds(atom)
            if factor > 0:
                low += factor * least
                high += factor * most
            else:
                low += factor * most
                high += factor * least
        if extent_bounds(low)[0] < -UNBOUNDED:
            low = max(low, -UNBOUNDED)
        if extent_bounds(high)[1] > UNBOUNDED:
            high = min(high, UNBOUNDED)
        return low, high

    def knowing(self, terms: Mapping[Expr, Extent], low: Extent, high: Extent) -> Simplifier:
        """Return the simplifier for a branch of the code in which the sum of `terms` is known to
        lie in [low, high]. If `terms` is empty, the result has no additional fact."""
        if not terms:
            return self
        factors = [factor for factor in terms.values() if isinstance(factor, int)]
        divisor = gcd(*factors) if len(factors) == len(terms) else 1
        low, high = ceildiv(low, divisor), high // divisor
        if len(terms) == len(factors) == 1:
            ((atom, factor),) = terms.items()
            ends = (low, high) if factor > 0 else (-high, -low)
            if ends[0] == ends[1]:
                return self._where(atom, ends[0])
            return self._branch(terms, {**self.facts, atom: ends}, self.sums)
        primitive = {atom: k if divisor == 1 else k // divisor for atom, k in terms.items()}
        sums = {
            total: span
            for total, span in self.sums.items()
            if len(total) != len(terms) or not multiple_of(primitive, total)
        }
        sums[frozenset(primitive.items())] = (low, high)
        longest_first = dict(sorted(sums.items(), key=lambda item: -len(item[0])))
        return self._branch(terms, self.facts, longest_first)

    def _where(self, atom: Expr, value: Extent) -> Simplifier:
        """Return the simplifier for a branch in which `atom` equals `value`. A known bound of a sum
        that contains the atom becomes a bound of the sum of its other terms."""
        sums = [(dict(total), span) for total, span in self.sums.items()]
        others = {frozenset(total.items()): span for total, span in sums if atom not in total}
        branch = self._branch((atom,), {**self.facts, atom: (value, value)}, others)
        for sum_terms, (low, high) in reversed(sums):
            if atom in sum_terms:
                part = sum_terms.pop(atom) * value
                ends = _both((low - part, high - part), branch.bounds_of(Linear(sum_terms, 0)))
                branch = branch.knowing(sum_terms, *ends)
        return branch

    def over(self, ranges: Mapping[str, Extent]) -> Simplifier:
        """Return the simplifier for the body of loops whose variables have the extents `ranges`.
        All simplifiers that derive from one another share a single table of extents, so the new
        variables become known to all of them."""
        facts: dict[Expr, Bounds] = {}
        for name, extent in ranges.items():
            outer = self.ranges.setdefault(name, extent)
            if self.facts and (fact := self.facts.get(Var(name))) is not None:
                if fact != (0, extent - 1):
                    facts[Var(name)] = (0, extent - 1)
            elif outer != extent:
                facts[Var(name)] = (0, extent - 1)
        return self._branch(facts, {**self.facts, **facts}, self.sums) if facts else self

    def _branch(
        self,
        changed: Iterable[Expr],
        facts: Mapping[Expr, Bounds],
        sums: Mapping[Terms, Bounds],
    ) -> Simplifier:
        """Return a simplifier with the given facts and sums. It uses the caches of this simplifier,
        except for expressions that contain an atom in `changed`."""
        branch = Simplifier({}, facts, sums)
        branch.ranges, branch._names, branch._parent = self.ranges, self._names, self
        branch._changed = frozenset(name for atom in changed for name in variables(atom))
        return branch

    def simplify(self, expr: Expr) -> Expr:
        """Return `expr` with every index and condition in canonical form. A node that occurs twice
        in `expr` is one shared node of the result, too."""
        if type(expr) is Const or type(expr) is Size:
            return expr
        entry = self._simple.get(id(expr))
        if entry is None:
            entry = self._simple[id(expr)] = (expr, self._simplified(expr))
        return entry[1]

    def _simplified(self, expr: Expr) -> Expr:
        if type(expr) is Var:
            return to_expr(self.linear(expr))
        if isinstance(expr, Binary):
            if expr.op in _ARITHMETIC:
                if dtype_of(expr) is DType.I64:
                    return to_expr(self.linear(expr))
            elif expr.op.is_comparison:
                return self._comparison(expr)
            elif expr.op is BinaryOp.AND or expr.op is BinaryOp.OR:
                return self._connective(expr)
        elif isinstance(expr, Select):
            condition = self.simplify(expr.condition)
            if isinstance(condition, Const):
                return self.simplify(expr.then if condition.value else expr.otherwise)
        return self._descend(expr)

    def slack(self, condition: Expr) -> Linear | None:
        """Return the linear form that is at least 0 exactly if `condition` holds, or None if the
        condition is not a comparison of two indices."""
        entry = self._slacks.get(id(condition))
        if entry is None:
            entry = None if self._parent is None else self._inherited(condition, _SLACKS)
            if entry is None:
                entry = condition, self._slack(condition)
            self._slacks[id(condition)] = entry
        return entry[1]

    def _slack(self, condition: Expr) -> Linear | None:
        if not isinstance(condition, Binary) or condition.op not in (BinaryOp.LT, BinaryOp.LE):
            return None
        if dtype_of(condition.left) is not DType.I64:
            return None
        form = combine(self.linear(condition.right), self.linear(condition.left), -1)
        return Linear(form.terms, form.const - (condition.op is BinaryOp.LT))

    def truth(self, condition: Expr) -> bool | None:
        """Return the constant value of a condition, or None if it depends on variables."""
        result = self.simplify(condition)
        return bool(result.value) if isinstance(result, Const) else None

    def _descend(self, expr: Expr) -> Expr:
        """Return `expr` rebuilt from simplified children; the same object if none changed."""
        if isinstance(expr, Reduce):
            inner = self.over({axis.name: axis.extent for axis in expr.axes})
            return Reduce(expr.op, expr.axes, inner.simplify(expr.body))
        new: Expr = MAP_OPERANDS[type(expr)](expr, self.simplify)
        if isinstance(new, Unary) and new.op is UnaryOp.NOT:
            return _negate(new.operand)
        return new

    def _form(self, expr: Expr) -> Linear:
        if type(expr) is Var:
            return Linear({}, 0) if self.ranges.get(expr.name) == 1 else self._atom(expr)
        if isinstance(expr, Binary) and expr.op in _ARITHMETIC:
            if expr.op is BinaryOp.ADD or expr.op is BinaryOp.SUB:
                terms: dict[Expr, Extent] = {}
                return Linear(terms, self._add(terms, expr, 1))
            left, right = self.linear(expr.left), self.linear(expr.right)
            if expr.op is BinaryOp.MUL:
                if not right.terms:
                    return scale(left, right.const)
                if not left.terms:
                    return scale(right, left.const)
            elif expr.op is BinaryOp.DIV or expr.op is BinaryOp.MOD:
                if not right.terms and is_less(0, right.const):
                    divide = self.divide if expr.op is BinaryOp.DIV else self.remainder
                    return divide(left, right.const)
            else:
                low, high = self.bounds_of(combine(left, right, -1))
                if is_less(high, 1):
                    return left if expr.op is BinaryOp.MIN else right
                if is_less(-1, low):
                    return right if expr.op is BinaryOp.MIN else left
            return self._atom(Binary(expr.op, to_expr(left), to_expr(right)))
        if isinstance(expr, Select):
            truth = self.truth(expr.condition)
            if truth is not None:
                return self.linear(expr.then if truth else expr.otherwise)
            return self._atom(
                Select(
                    self.simplify(expr.condition),
                    to_expr(self.linear(expr.then)),
                    to_expr(self.linear(expr.otherwise)),
                )
            )
        return self._atom(self._descend(expr))

    def _add(self, terms: dict[Expr, Extent], expr: Expr, factor: Extent) -> Extent:
        """Add `factor * expr` to `terms`; return the constant part of the product."""
        if isinstance(expr, Const):
            return factor * int(expr.value)
        if isinstance(expr, Binary):
            if expr.op is BinaryOp.ADD:
                const = self._add(terms, expr.left, factor)
                return const + self._add(terms, expr.right, factor)
            if expr.op is BinaryOp.SUB:
                const = self._add(terms, expr.left, factor)
                return const + self._add(terms, expr.right, -factor)
            if expr.op is BinaryOp.MUL and isinstance(expr.right, Const):
                return self._add(terms, expr.left, factor * int(expr.right.value))
        form = self.linear(expr)
        add_terms(terms, form.terms, factor)
        return factor * form.const

    def _atom(self, atom: Expr) -> Linear:
        if self.facts:
            fact = self.facts.get(atom)
            if fact is not None and fact[0] == fact[1]:
                return Linear({}, fact[0])
        return Linear({atom: 1}, 0)

    def divide(self, form: Linear, divisor: Extent) -> Linear:
        """Return `form // divisor` for a positive divisor."""
        whole, rest, quotient, const = whole_and_rest(form, divisor)
        if not rest and not isinstance(const, Dim):
            return Linear(whole, quotient)
        low, high = self.bounds_of(Linear(rest, const))
        if _is_within(low, high, divisor):
            return Linear(whole, quotient)
        if isinstance(divisor, int) and low // divisor == high // divisor:
            return Linear(whole, quotient + low // divisor)
        if _is_unbounded(low, high):  # The sum may wrap around: it must not be split.
            return self._atom(Binary(BinaryOp.DIV, to_expr(form), index(divisor)))
        factored = self._factor(rest, const, divisor)
        if factored is not None:
            factor, inner, _ = factored
            inside = self.divide(inner, divisor // factor)
        elif (nested := self._unnest(rest, const)) is not None:
            inside = self.divide(nested[0], nested[1] * divisor)
        else:
            inside = self._atom(Binary(BinaryOp.DIV, sorted_expr(rest, const), index(divisor)))
        return combine(Linear(whole, quotient), inside, 1)

    def remainder(self, form: Linear, divisor: Extent) -> Linear:
        """Return `form % divisor` for a positive divisor."""
        _, rest, _, const = whole_and_rest(form, divisor)
        if not rest and not isinstance(const, Dim):
            return Linear({}, const)
        low, high = self.bounds_of(Linear(rest, const))
        if _is_within(low, high, divisor):
            return Linear(rest, const)
        if isinstance(divisor, int) and low // divisor == high // divisor:
            return Linear(rest, const - low // divisor * divisor)
        if _is_unbounded(low, high):
            return self._atom(Binary(BinaryOp.MOD, to_expr(form), index(divisor)))
        factored = self._factor(rest, const, divisor)
        if factored is not None:
            factor, inner, small = factored
            return combine(small, self.remainder(inner, divisor // factor), factor)
        unwound = self._unwind(rest, const, divisor)
        if unwound is not None:
            return self.remainder(unwound, divisor)
        return self._atom(Binary(BinaryOp.MOD, sorted_expr(rest, const), index(divisor)))

    def _factor(
        self, rest: dict[Expr, Extent], const: Extent, divisor: Extent
    ) -> tuple[int, Linear, Linear] | None:
        """Return (factor, inner, small) with `rest + const == factor * inner + small` and 0 <=
        small < factor, where `factor` divides `divisor`; None if the largest such factor is 1.
        """
        factors = [k for k in rest.values() if isinstance(k, int)]
        if len(factors) < len(rest):
            return None
        number = common_factor((divisor,))
        for factor in sorted({gcd(k, number) for k in factors}, reverse=True):
            if factor == 1:
                return None
            whole, left = divmod_extent(const, factor)
            if isinstance(left, Dim):
                continue
            small = Linear({a: k for a, k in rest.items() if k % factor}, left)
            low, high = self.bounds_of(small)
            if _is_within(low, high, factor):
                inner = {a: k // factor for a, k in rest.items() if k % factor == 0}
                return factor, Linear(inner, whole), small
        return None

    def _unnest(self, rest: dict[Expr, Extent], const: Extent) -> tuple[Linear, Extent] | None:
        """Return (f, d) such that `(rest + const) // c == f // (d * c)` for every c, if one of the
        terms has the form `e // d`; else None. As an example, `(x // 4 + 1) // c` is equal to `(x +
        4) // (4 * c)`."""
        for atom, factor in rest.items():
            if factor == 1 and isinstance(atom, Binary) and atom.op is BinaryOp.DIV:
                divisor = extent_of(atom.right)
                if divisor is None or not is_less(0, divisor):
                    continue
                others = Linear({a: k for a, k in rest.items() if a is not atom}, const)
                return combine(self.linear(atom.left), others, divisor), divisor
        return None

    def _unwind(self, rest: dict[Expr, Extent], const: Extent, divisor: Extent) -> Linear | None:
        """Return `rest + const` with each term `e % m` replaced by `e` where that does not change
        the value modulo `divisor`; None if nothing is replaced."""
        form, changed = Linear({}, const), False
        for atom, factor in rest.items():
            term = Linear({atom: factor}, 0)
            if isinstance(atom, Binary) and atom.op is BinaryOp.MOD:
                modulus = extent_of(atom.right)
                if modulus is not None and factor * modulus % divisor == 0:
                    term, changed = scale(self.linear(atom.left), factor), True
            form = combine(form, term, 1)
        return form if changed and not _is_unbounded(*self.bounds_of(form)) else None

    def join(self, form: Linear) -> Linear:
        """Return `form` with `k*c*(e // c) + k*(e % c)` replaced by `k*e` wherever both terms
        occur; `e % c` may also be written as the remainder of another expression that is congruent
        to e."""
        for atom, factor in form.terms.items():
            if not (isinstance(atom, Binary) and atom.op is BinaryOp.MOD):
                continue
            divisor = extent_of(atom.right)
            if divisor is None or not is_less(0, divisor):
                continue
            whole = self._whole(atom, divisor, factor, form)
            if whole is not None:
                partner, inner = whole
                rest = {a: k for a, k in form.terms.items() if a != atom and a != partner}
                return self.join(combine(Linear(rest, form.const), inner, factor))
        return form

    def _whole(
        self, atom: Binary, divisor: Extent, factor: Extent, form: Linear
    ) -> tuple[Expr, Linear] | None:
        """Return the atom of the quotient and the dividend that belong to a remainder.

        `atom` is `e % divisor` and has coefficient `factor`. The result is (`e // divisor`, e) if
        that quotient occurs in `form` with coefficient `divisor * factor`, else None.
        """
        if factor * divisor not in form.terms.values():
            return None
        inner = self.linear(atom.left)
        quotient = self.divide(inner, divisor)
        if len(quotient.terms) == 1 and quotient.const == 0:
            (partner, scale), *_ = quotient.terms.items()
            if scale == 1 and form.terms.get(partner) == factor * divisor:
                return partner, inner
        for other, k in form.terms.items():
            if k != factor * divisor or not isinstance(other, Binary):
                continue
            if other.op is BinaryOp.DIV and other.right == index(divisor):
                inner = self.linear(other.left)
                if self.remainder(inner, divisor) == Linear({atom: 1}, 0):
                    return other, inner
        return None

    def _atom_bounds(self, atom: Expr) -> Bounds:
        if isinstance(atom, Var):
            extent = self.ranges.get(atom.name)
            declared = _UNKNOWN if extent is None else (0, extent - 1)
            return self.facts.get(atom, declared) if self.facts else declared
        known_atom = self._bounds.get(atom)
        if known_atom is None:
            known_atom = self._compute_bounds(atom)
            if self.facts and (fact := self.facts.get(atom)) is not None:
                known_atom = _both(known_atom, fact)
            self._bounds[atom] = known_atom
        return known_atom

    def _compute_bounds(self, atom: Expr) -> Bounds:
        if isinstance(atom, Select):
            then, otherwise = self.bounds(atom.then), self.bounds(atom.otherwise)
            return minimum(then[0], otherwise[0]), maximum(then[1], otherwise[1])
        if not isinstance(atom, Binary):
            return _UNKNOWN
        left, right = self.bounds(atom.left), self.bounds(atom.right)
        match atom.op:
            case BinaryOp.MIN:
                return minimum(left[0], right[0]), minimum(left[1], right[1])
            case BinaryOp.MAX:
                return maximum(left[0], right[0]), maximum(left[1], right[1])
            case BinaryOp.MOD if right[0] == right[1] and is_less(0, right[0]):
                return 0, right[0] - 1
            case BinaryOp.DIV if right[0] == right[1] and is_less(0, right[0]):
                # An infinite end stays infinite.
                low = left[0] if is_less(left[0], 1 - UNBOUNDED) else left[0] // right[0]
                high = left[1] if is_less(UNBOUNDED - 1, left[1]) else left[1] // right[0]
                return low, high
            case BinaryOp.BIT_XOR if not (is_less(left[0], 0) or is_less(right[0], 0)):
                # No bit is set beyond the highest of either side.
                most = max(extent_bounds(left[1])[1], extent_bounds(right[1])[1])
                return 0, min((1 << most.bit_length()) - 1, UNBOUNDED)
            case BinaryOp.MUL:
                ends = [extent_bounds(end) for end in (*left, *right)]
                corners = [a * b for pair in ends[:2] for a in pair for c in ends[2:] for b in c]
                return max(min(corners), -UNBOUNDED), min(max(corners), UNBOUNDED)
            case _:
                return _UNKNOWN

    def _comparison(self, expr: Binary) -> Expr:
        if dtype_of(expr.left) is not DType.I64:
            return self._descend(expr)
        slack = self.slack(expr)
        if slack is not None:
            low, high = self.bounds_of(slack)
            if is_less(-1, low):
                return TRUE
            if is_less(high, 0):
                return FALSE
        left, right = self.linear(expr.left), self.linear(expr.right)
        difference = self.join(combine(left, right, -1))
        if expr.op is BinaryOp.LE:
            difference = Linear(difference.terms, difference.const - 1)
        low, high = self.bounds_of(difference)
        if expr.op is BinaryOp.EQ or expr.op is BinaryOp.NE:
            holds = expr.op is BinaryOp.EQ
            if low == high == 0:
                return TRUE if holds else FALSE
            if is_less(0, low) or is_less(high, 0):
                return FALSE if holds else TRUE
            return Binary(expr.op, *sides(difference))
        if is_less(high, 0):
            return TRUE
        if is_less(-1, low):
            return FALSE
        return Binary(BinaryOp.LT, *sides(self._coarsen(difference)))

    def _coarsen(self, form: Linear) -> Linear:
        """Return the linear form divided by a common factor, for a comparison with 0. It is `form
        // g`, with the largest coefficient g for which `form // g < 0` is equivalent to `form < 0`
        and the quotient contains no new atoms. Return `form` itself if there is none."""
        factors = {abs(k) for k in form.terms.values() if isinstance(k, int)}
        for divisor in sorted(factors, reverse=True):
            if divisor == 1:
                break
            quotient = self.divide(form, divisor)
            if len(quotient.terms) <= len(form.terms) and all(
                a in form.terms for a in quotient.terms
            ):
                return quotient
        return form

    def _connective(self, expr: Binary) -> Expr:
        left, right = self.simplify(expr.left), self.simplify(expr.right)
        neutral = expr.op is BinaryOp.AND
        for side, other in ((left, right), (right, left)):
            if isinstance(side, Const):
                return other if bool(side.value) is neutral else side
        if left is expr.left and right is expr.right:
            return expr
        return Binary(expr.op, left, right)


_FORMS: Callable[[Simplifier], Known[Linear]] = attrgetter("_forms")
_SLACKS: Callable[[Simplifier], Known[Linear | None]] = attrgetter("_slacks")


def _is_within(low: Extent, high: Extent, divisor: Extent) -> bool:
    """Check whether every value in [low, high] is certain to lie in [0, divisor)."""
    return is_less(-1, low) and is_less(high, divisor)


def _is_unbounded(low: Extent, high: Extent) -> bool:
    return not (is_less(-UNBOUNDED, low) and is_less(high, UNBOUNDED))


def _both(first: Bounds, second: Bounds) -> Bounds:
    """Return the intersection of two ranges. Where two ends cannot be compared, the result has the
    end of `second`."""
    low = first[0] if is_less(second[0], first[0]) else second[0]
    high = first[1] if is_less(first[1], second[1]) else second[1]
    return low, high


def _negate(condition: Expr) -> Expr:
    match condition:
        case Const(value, _):
            return FALSE if value else TRUE
        case Binary(BinaryOp.LT, left, right) if dtype_of(left) is DType.I64:
            return Binary(BinaryOp.LE, right, left)
    return Unary(UnaryOp.NOT, condition)
