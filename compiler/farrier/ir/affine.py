"""Index arithmetic: canonical linear forms over loop variables of known extent.

    (16*co + ci) // 16          ->  co                     for ci in [0, 16)
    (16*co + ci) % 16           ->  ci
    (f // 7) * 7 + f % 7        ->  f
    32*o + 16*v + l < 48        ->  2*o + v < 3            for l in [0, 16)

A linear form is `sum(coefficient * atom) + constant`; coefficients and constant are extents, so
that strides and bounds may be symbolic. An atom is a variable or whatever is not linear: a floor
division or remainder that its bounds do not resolve, min, max, Select, Load.
Sums, products by constants, floor division and remainder act on forms directly; a remainder and the
quotient it belongs to join again as soon as they meet. There is no search: each node is visited
once.
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
from farrier.ir.operands import MAP_OPERANDS
from farrier.ir.substitute import variables
from farrier.ir.types import DType

Bounds: TypeAlias = tuple[Extent, Extent]  # both inclusive
Terms: TypeAlias = frozenset[tuple[Expr, Extent]]
UNBOUNDED = 1 << 512  # stands for infinity in bounds; products of symbols with wide ranges are less
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
Known: TypeAlias = dict[int, tuple[Expr, T]]  # by the identity of an expression, kept alive


class Linear(NamedTuple):
    """`sum(terms[atom] * atom) + const`; no coefficient is zero. Treat `terms` as read-only."""

    terms: dict[Expr, Extent]
    const: Extent


class Affine(NamedTuple):
    """A linear form over variables alone: coefficient by variable name."""

    terms: dict[str, Extent]
    const: Extent


def simplify(expr: Expr, ranges: Mapping[str, Extent]) -> Expr:
    """`expr` in canonical form, where variable `v` runs over `[0, ranges[v])`."""
    return Simplifier(ranges).simplify(expr)


def bounds(expr: Expr, ranges: Mapping[str, Extent]) -> Bounds:
    """Least and greatest value that an index can take, both inclusive; ±UNBOUNDED where unknown."""
    return Simplifier(ranges).bounds(expr)


def affine(expr: Expr, ranges: Mapping[str, Extent]) -> Affine | None:
    """Coefficients of an index over the variables, or None where it is not affine."""
    terms, const = Simplifier(ranges).linear(expr)
    named = {atom.name: factor for atom, factor in terms.items() if isinstance(atom, Var)}
    return Affine(named, const) if len(named) == len(terms) else None


class Simplifier:
    """Simplifies under one set of ranges; results are remembered, so keep one per loop nest.

    For a branch that knows more than the ranges say, `facts` bounds atoms, and `sums` bounds sums
    of several terms and all their multiples, given as the set of (atom, coefficient), longer ones
    first: a sum may be part of another. Of what mentions nothing that a branch knows more of, it
    knows what was known before.
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
        self._parent: Simplifier | None = None  # which knows as much of all but `_changed`
        self._changed: frozenset[str] = frozenset()

    def linear(self, expr: Expr) -> Linear:
        """The canonical linear form of an index expression."""
        if type(expr) is Const:
            return Linear({}, int(expr.value))
        if type(expr) is Size:
            return Linear({}, expr.extent)
        if type(expr) is Var and not self.facts and not self.sums:
            return Linear({}, 0) if self.ranges.get(expr.name) == 1 else Linear({expr: 1}, 0)
        known = self._forms.get(id(expr))
        if known is None:
            known = None if self._parent is None else self._inherited(expr, _FORMS)
            if known is None:
                known = expr, self._settle(self.join(self._form(expr)))
            self._forms[id(expr)] = known
        return known[1]

    def _inherited(
        self, expr: Expr, what: Callable[[Simplifier], Known[T]]
    ) -> tuple[Expr, T] | None:
        """What was known of `expr` before the branch, if it was and nothing here changes it."""
        changed, before = self._changed, self._parent
        while before is not None:
            known = what(before).get(id(expr))
            if known is not None:
                return known if changed.isdisjoint(self._names_in(expr)) else None
            changed, before = changed | before._changed, before._parent
        return None

    def _names_in(self, expr: Expr) -> set[str]:
        known = self._names.get(id(expr))
        if known is None:
            known = self._names[id(expr)] = (expr, variables(expr))
        return known[1]

    def _settle(self, form: Linear) -> Linear:
        """The form with the value of each sum that can have but one."""
        for known, (low, high) in self.sums.items() if self.sums else ():
            factor = _multiple(form.terms, known) if low == high else 0
            if factor:
                form = Linear(_without(form.terms, known), form.const + factor * low)
        return form

    def bounds(self, expr: Expr) -> Bounds:
        """Least and greatest value of an index expression, both inclusive."""
        return self.bounds_of(self.linear(expr))

    def bounds_of(self, form: Linear) -> Bounds:
        """Least and greatest value of a linear form, both inclusive."""
        try:
            return self._bounds_of(form)
        except Undecided:
            return _UNKNOWN

    def _bounds_of(self, form: Linear) -> Bounds:
        low: Extent = form.const
        high: Extent = form.const
        terms = form.terms
        if self.sums:
            for known, (least, most) in self.sums.items():
                multiple = _multiple(terms, known)
                if multiple:
                    low += multiple * (least if multiple > 0 else most)
                    high += multiple * (most if multiple > 0 else least)
                    terms = _without(terms, known)
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
        """For a branch in which the sum of `terms` lies in [low, high]. A sum of no terms is 0, and
        teaches nothing."""
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
            known: span
            for known, span in self.sums.items()
            if len(known) != len(terms) or not _multiple(primitive, known)
        }
        sums[frozenset(primitive.items())] = (low, high)
        longest_first = dict(sorted(sums.items(), key=lambda item: -len(item[0])))
        return self._branch(terms, self.facts, longest_first)

    def _where(self, atom: Expr, value: Extent) -> Simplifier:
        """For a branch in which an atom has a value: a sum with it tells of the sum without it."""
        sums = [(dict(known), span) for known, span in self.sums.items()]
        others = {frozenset(known.items()): span for known, span in sums if atom not in known}
        branch = self._branch((atom,), {**self.facts, atom: (value, value)}, others)
        for known, (low, high) in reversed(sums):
            if atom in known:
                part = known.pop(atom) * value
                ends = _both((low - part, high - part), branch.bounds_of(Linear(known, 0)))
                branch = branch.knowing(known, *ends)
        return branch

    def over(self, ranges: Mapping[str, Extent]) -> Simplifier:
        """For what stands within loops over those ranges. Variables are told apart by name: one
        that is new here has its range in all that this one was made of, too."""
        facts: dict[Expr, Bounds] = {}
        for name, extent in ranges.items():
            known = self.ranges.setdefault(name, extent)
            if self.facts and (fact := self.facts.get(Var(name))) is not None:
                if fact != (0, extent - 1):
                    facts[Var(name)] = (0, extent - 1)
            elif known != extent:
                facts[Var(name)] = (0, extent - 1)
        return self._branch(facts, {**self.facts, **facts}, self.sums) if facts else self

    def _branch(
        self,
        changed: Iterable[Expr],
        facts: Mapping[Expr, Bounds],
        sums: Mapping[Terms, Bounds],
    ) -> Simplifier:
        """One that knows more of the atoms `changed`."""
        branch = Simplifier({}, facts, sums)
        branch.ranges, branch._names, branch._parent = self.ranges, self._names, self
        branch._changed = frozenset(name for atom in changed for name in variables(atom))
        return branch

    def simplify(self, expr: Expr) -> Expr:
        """`expr` with every index and condition below it in canonical form; what it has twice the
        result has so."""
        if type(expr) is Const or type(expr) is Size:
            return expr
        known = self._simple.get(id(expr))
        if known is None:
            known = self._simple[id(expr)] = (expr, self._simplified(expr))
        return known[1]

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
        """The form of which a condition says that it is not negative; None where it says anything
        else than which of two indices is larger."""
        known = self._slacks.get(id(condition))
        if known is None:
            known = None if self._parent is None else self._inherited(condition, _SLACKS)
            if known is None:
                known = condition, self._slack(condition)
            self._slacks[id(condition)] = known
        return known[1]

    def _slack(self, condition: Expr) -> Linear | None:
        if not isinstance(condition, Binary) or condition.op not in (BinaryOp.LT, BinaryOp.LE):
            return None
        if dtype_of(condition.left) is not DType.I64:
            return None
        form = combine(self.linear(condition.right), self.linear(condition.left), -1)
        return Linear(form.terms, form.const - (condition.op is BinaryOp.LT))

    def truth(self, condition: Expr) -> bool | None:
        """Whether a condition always or never holds; None where that depends."""
        result = self.simplify(condition)
        return bool(result.value) if isinstance(result, Const) else None

    def _descend(self, expr: Expr) -> Expr:
        """`expr` rebuilt from simplified children; the same object where none changed."""
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
                    return _scale(left, right.const)
                if not left.terms:
                    return _scale(right, left.const)
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
        """Add `factor * expr` to `terms`; return what it adds to the constant."""
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
        _add_terms(terms, form.terms, factor)
        return factor * form.const

    def _atom(self, atom: Expr) -> Linear:
        if self.facts:
            fact = self.facts.get(atom)
            if fact is not None and fact[0] == fact[1]:
                return Linear({}, fact[0])
        return Linear({atom: 1}, 0)

    def divide(self, form: Linear, divisor: Extent) -> Linear:
        """`form // divisor` for a positive divisor."""
        whole, rest, quotient, const = _part(form, divisor)
        if not rest and not isinstance(const, Dim):
            return Linear(whole, quotient)
        low, high = self.bounds_of(Linear(rest, const))
        if _is_within(low, high, divisor):
            return Linear(whole, quotient)
        if isinstance(divisor, int) and low // divisor == high // divisor:
            return Linear(whole, quotient + low // divisor)
        if _is_unbounded(low, high):  # may wrap around: do not take it apart
            return self._atom(Binary(BinaryOp.DIV, to_expr(form), index(divisor)))
        factored = self._factor(rest, const, divisor)
        if factored is not None:
            factor, inner, _ = factored
            inside = self.divide(inner, divisor // factor)
        elif (nested := self._unnest(rest, const)) is not None:
            inside = self.divide(nested[0], nested[1] * divisor)
        else:
            inside = self._atom(Binary(BinaryOp.DIV, _sorted_expr(rest, const), index(divisor)))
        return combine(Linear(whole, quotient), inside, 1)

    def remainder(self, form: Linear, divisor: Extent) -> Linear:
        """`form % divisor` for a positive divisor."""
        _, rest, _, const = _part(form, divisor)
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
        return self._atom(Binary(BinaryOp.MOD, _sorted_expr(rest, const), index(divisor)))

    def _factor(
        self, rest: dict[Expr, Extent], const: Extent, divisor: Extent
    ) -> tuple[int, Linear, Linear] | None:
        """`rest + const` as `factor * inner + small` with 0 <= small < factor, factor | divisor."""
        factors = [k for k in rest.values() if isinstance(k, int)]
        if len(factors) < len(rest):
            return None
        number = common_factor((divisor,))
        for factor in sorted({gcd(k, number) for k in factors}, reverse=True):
            if factor == 1:
                return None
            whole, left = _divmod(const, factor)
            if isinstance(left, Dim):
                continue
            small = Linear({a: k for a, k in rest.items() if k % factor}, left)
            low, high = self.bounds_of(small)
            if _is_within(low, high, factor):
                inner = {a: k // factor for a, k in rest.items() if k % factor == 0}
                return factor, Linear(inner, whole), small
        return None

    def _unnest(self, rest: dict[Expr, Extent], const: Extent) -> tuple[Linear, Extent] | None:
        """(f, d) with `(rest + const) // c == f // (d * c)`, where one term is itself `e // d`."""
        for atom, factor in rest.items():
            if factor == 1 and isinstance(atom, Binary) and atom.op is BinaryOp.DIV:
                divisor = extent_of(atom.right)
                if divisor is None or not is_less(0, divisor):
                    continue
                others = Linear({a: k for a, k in rest.items() if a is not atom}, const)
                return combine(self.linear(atom.left), others, divisor), divisor
        return None

    def _unwind(self, rest: dict[Expr, Extent], const: Extent, divisor: Extent) -> Linear | None:
        """`rest + const` with e in the place of `e % m` where that is the same modulo `divisor`."""
        form, changed = Linear({}, const), False
        for atom, factor in rest.items():
            term = Linear({atom: factor}, 0)
            if isinstance(atom, Binary) and atom.op is BinaryOp.MOD:
                modulus = extent_of(atom.right)
                if modulus is not None and factor * modulus % divisor == 0:
                    term, changed = _scale(self.linear(atom.left), factor), True
            form = combine(form, term, 1)
        return form if changed and not _is_unbounded(*self.bounds_of(form)) else None

    def join(self, form: Linear) -> Linear:
        """Join `k*c*(e // c) + k*(e % c)` to `k*e` wherever both stand in `form`; `e % c` may be
        written as the remainder of something else."""
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
        """(`e // divisor`, e) where the quotient stands in `form`, `divisor * factor` times, and
        `atom` is the remainder."""
        if factor * divisor not in form.terms.values():
            return None
        inner = self.linear(atom.left)
        quotient = self.divide(inner, divisor)
        if len(quotient.terms) == 1 and quotient.const == 0:
            (partner, one), *_ = quotient.terms.items()
            if one == 1 and form.terms.get(partner) == factor * divisor:
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
            known = _UNKNOWN if extent is None else (0, extent - 1)
            return self.facts.get(atom, known) if self.facts else known
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
            return Binary(expr.op, *_sides(difference))
        if is_less(high, 0):
            return TRUE
        if is_less(-1, low):
            return FALSE
        return Binary(BinaryOp.LT, *_sides(self._coarsen(difference)))

    def _coarsen(self, form: Linear) -> Linear:
        """`form < 0` holds exactly where `form // g < 0`: the largest g that leaves no division."""
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
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Const):
                return other if bool(one.value) is neutral else one
        if left is expr.left and right is expr.right:
            return expr
        return Binary(expr.op, left, right)


_FORMS: Callable[[Simplifier], Known[Linear]] = attrgetter("_forms")
_SLACKS: Callable[[Simplifier], Known[Linear | None]] = attrgetter("_slacks")


def to_expr(form: Linear) -> Expr:
    """The expression of a linear form: positive terms, the constant, negative terms."""
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
    """Whether a coefficient is written with a minus: it is less than zero wherever it is not."""
    return factor < 0 if isinstance(factor, int) else is_less(factor, 1)


def _sorted_expr(terms: dict[Expr, Extent], const: Extent) -> Expr:
    """The expression with its terms in an order of their own, so that equal atoms look equal."""
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
    """`left + factor * right`."""
    if not right.terms:
        return Linear(left.terms, left.const + factor * right.const)
    terms = dict(left.terms)
    _add_terms(terms, right.terms, factor)
    return Linear(terms, left.const + factor * right.const)


def _add_terms(terms: dict[Expr, Extent], others: Mapping[Expr, Extent], factor: Extent) -> None:
    """Add `factor * others` to `terms`."""
    for atom, k in others.items():
        total = terms.get(atom, 0) + factor * k
        if total != 0:
            terms[atom] = total
        else:
            terms.pop(atom, None)


def _multiple(terms: Mapping[Expr, Extent], known: Terms) -> int:
    """The factor by which the sum `known` stands in `terms`; 0 where it does not, or where that
    factor is no number."""
    factor = 0
    for atom, k in known:
        found = terms.get(atom, 0)
        if k == found or k == -found:
            ratio = 1 if k == found else -1
        elif not isinstance(found, int) or not isinstance(k, int) or found == 0 or found % k:
            return 0
        else:
            ratio = found // k
        if factor not in (0, ratio):
            return 0
        factor = ratio
    return factor


def _is_within(low: Extent, high: Extent, divisor: Extent) -> bool:
    """Whether what lies in [low, high] certainly lies in [0, divisor)."""
    return is_less(-1, low) and is_less(high, divisor)


def _is_unbounded(low: Extent, high: Extent) -> bool:
    return not (is_less(-UNBOUNDED, low) and is_less(high, UNBOUNDED))


def _both(one: Bounds, other: Bounds) -> Bounds:
    """What lies in both; of ends that cannot be compared the second's."""
    low = one[0] if is_less(other[0], one[0]) else other[0]
    high = one[1] if is_less(one[1], other[1]) else other[1]
    return low, high


def _without(terms: Mapping[Expr, Extent], known: Terms) -> dict[Expr, Extent]:
    """`terms` less those of the sum `known`."""
    within = {atom for atom, _ in known}
    return {atom: k for atom, k in terms.items() if atom not in within}


def _scale(form: Linear, factor: Extent) -> Linear:
    if factor == 1:
        return form
    if factor == 0:
        return Linear({}, 0)
    return Linear({a: k * factor for a, k in form.terms.items()}, form.const * factor)


def _part(
    form: Linear, divisor: Extent
) -> tuple[dict[Expr, Extent], dict[Expr, Extent], Extent, Extent]:
    """`form` as divisor * (whole + quotient) + rest + const; 0 <= const < divisor for numbers."""
    whole: dict[Expr, Extent] = {}
    rest: dict[Expr, Extent] = {}
    for atom, k in form.terms.items():
        quotient, left = _divmod(k, divisor)
        if left != 0:
            rest[atom] = k
        else:
            whole[atom] = quotient
    return whole, rest, *_divmod(form.const, divisor)


def _divmod(extent: Extent, divisor: Extent) -> tuple[Extent, Extent]:
    """Quotient and remainder; (0, extent) for what does not divide without a symbolic quotient."""
    if isinstance(extent, int) and isinstance(divisor, int):
        return divmod(extent, divisor)
    quotient, rest = extent // divisor, extent % divisor
    return (quotient, rest) if isinstance(rest, int) else (0, extent)


def _sides(form: Linear) -> tuple[Expr, Expr]:
    """`form` compared with zero, as left and right side without negative factors."""
    left = Linear({a: k for a, k in form.terms.items() if not _is_negative(k)}, 0)
    right = Linear({a: -k for a, k in form.terms.items() if _is_negative(k)}, 0)
    if _is_negative(form.const):
        right = Linear(right.terms, -form.const)
    else:
        left = Linear(left.terms, form.const)
    return to_expr(left), to_expr(right)


def _negate(condition: Expr) -> Expr:
    match condition:
        case Const(value, _):
            return FALSE if value else TRUE
        case Binary(BinaryOp.LT, left, right) if dtype_of(left) is DType.I64:
            return Binary(BinaryOp.LE, right, left)
    return Unary(UnaryOp.NOT, condition)
