"""Symbolic dimensions: integer arithmetic on sizes that are known only when the model runs.

    extent = int | dim
    dim    = sum of coefficient * product of atoms          never a plain number
    atom   = Symbol(name, low, high, typical)
           | Combined(op, extent, extent)                   not a polynomial
    op     = floordiv | mod | min | max

A `Dim` takes the operators of Python's integers, so shape rules, strides and loop bounds are
written once for numbers and dims alike. Forms are canonical: equal sums are equal objects, and a
result that is a number is an `int`. The ranges of the symbols decide comparisons of order; if they
leave one open, it raises `Undecided`: nothing is guessed. `==` compares forms: a dim never equals a
number.

    (2*h + 6) // 2   ->  h + 3              -(-h // 2)  ->  (h + 1) // 2
    n*h*w*64 // (h*w)  ->  64*n             (h // 2)*2 + h % 2  ->  h
    3*h*w % (6*w)  ->  3*w*(h % 2)          h - min(h, 2)  ->  max(h, 2) - 2

The common part of the operands is taken out of minima and maxima, and max(a, b) == a + b - min(a,
b) is used to get the fewest terms, so that neighbouring slices of an axis have one length.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from farrier.ir.interned import Interned

# Results that each function caches: a kernel has few extents, which recur.
_REMEMBERED = 1 << 14


class Relation(enum.StrEnum):
    POSITIVE = "positive"
    ZERO = "zero"


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """An open comparison of an extent with 0: is it greater than 0, or is it equal to 0?

    `text` is the comparison that raised the question. `wants_number` is set if the caller cannot
    use a dim, so that using the typical size is an arbitrary choice. `expected` is the answer that
    holds for most models, whatever their typical sizes. With `is_required` the opposite answer
    would make the model invalid, so assuming the expected one excludes no valid size.
    """

    extent: Dim
    relation: Relation
    text: str
    wants_number: bool = False
    expected: bool | None = None
    is_required: bool = False

    def answer(self, extent: Extent) -> bool:
        """Return the answer after the dim is replaced by `extent`; raises Undecided if it is still
        open."""
        return extent > 0 if self.relation is Relation.POSITIVE else not bool(extent)


class Undecided(ValueError):
    """An error: a result depends on the value of a symbol; the result is a comparison, or a size
    that must be a number. `question` is the open comparison."""

    def __init__(self, question: Question) -> None:
        depends = _described(question.extent)
        super().__init__(f"whether {question.text} depends on {depends}")
        self.question = question


class DimOp(enum.StrEnum):
    FLOORDIV = "floordiv"
    MOD = "mod"
    MIN = "min"
    MAX = "max"


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Symbol(metaclass=Interned):
    """A size between `low` and `high`, both inclusive; kernels are tuned for the size `typical`.

    `high` is a dim if the data decides the size (a count of nonzero elements) within a bound.
    """

    name: str
    low: int
    high: Extent
    typical: int

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True, eq=False)
class Combined(metaclass=Interned):
    op: DimOp
    left: Extent
    right: Extent

    def __str__(self) -> str:
        return self._text

    @functools.cached_property
    def _text(self) -> str:
        if self.op in (DimOp.MIN, DimOp.MAX):
            return f"{self.op}({self.left}, {self.right})"
        sign = "//" if self.op is DimOp.FLOORDIV else "%"
        return f"{_grouped(self.left)} {sign} {_grouped(self.right)}"


Atom: TypeAlias = Symbol | Combined
Monomial: TypeAlias = tuple[Atom, ...]  # Sorted; an atom of power p stands p times; () is 1.
_Terms: TypeAlias = dict[Monomial, int]
_Rank: TypeAlias = tuple[Any, ...]  # A sort key of atoms, products and extents.


@dataclasses.dataclass(frozen=True, eq=False)
class Dim(metaclass=Interned):
    """A sum `sum(coefficient * product(monomial))` in sorted order. At least one monomial is not
    (), which stands for a constant; no monomial occurs twice and no coefficient is zero. Build dims
    by arithmetic on `dim(…)`, not by this constructor."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Extent) -> Extent:
        return _sum(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Extent) -> Extent:
        return _sum(self, other, -1)

    def __rsub__(self, other: Extent) -> Extent:
        return _sum(other, self, -1)

    def __neg__(self) -> Extent:
        return _sum(0, self, -1)

    def __mul__(self, other: Extent) -> Extent:
        return _product(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Extent) -> Extent:
        return _divmod(self, other)[0]

    def __rfloordiv__(self, other: Extent) -> Extent:
        return _divmod(other, self)[0]

    def __mod__(self, other: Extent) -> Extent:
        return _divmod(self, other)[1]

    def __rmod__(self, other: Extent) -> Extent:
        return _divmod(other, self)[1]

    def __lt__(self, other: Extent) -> bool:
        return not self >= other

    def __le__(self, other: Extent) -> bool:
        return not _is_positive(self, other)

    def __gt__(self, other: Extent) -> bool:
        return _is_positive(self, other)

    def __ge__(self, other: Extent) -> bool:
        return not _is_positive(other, self)

    def __bool__(self) -> bool:
        low, high = self.bounds
        if low > 0 or high < 0:
            return True
        raise Undecided(Question(self, Relation.ZERO, f"{self} is 0"))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        text = ""
        for monomial, factor in self.terms:
            size = str(abs(factor)) if abs(factor) != 1 or not monomial else ""
            alone = len(self.terms) == 1 and not size and factor > 0 and len(monomial) == 1
            atoms = [
                f"({atom})" if _is_division(atom) and not alone else str(atom) for atom in monomial
            ]
            term = "*".join([size, *atoms] if size else atoms)
            sign = "-" if factor < 0 else "+"
            text += f" {sign} {term}" if text else term if factor > 0 else f"-{term}"
        return text

    @functools.cached_property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value, both inclusive; the true range may be narrower."""
        return _bounds(self, _MOST_OPERANDS - 1)


Extent: TypeAlias = int | Dim


def dim(name: str, low: int, high: Extent, typical: int | None = None) -> Extent:
    """Return a new symbol as an extent, or a number if the range contains only one.

    Raises ValueError for an empty range. `typical` is clamped to the range; the default is `high`.
    """
    most = bounds(high)[1]
    if low > most:
        raise ValueError(f"the range {low}..{high} of {name} is empty")
    if low == high:
        return low
    chosen = most if typical is None else min(max(typical, low), most)
    return Dim((((Symbol(name, low, high, chosen),), 1),))


def bounds(extent: Extent) -> tuple[int, int]:
    """Return the least and greatest value of an extent, both inclusive."""
    return extent.bounds if isinstance(extent, Dim) else (extent, extent)


def number(extent: Extent) -> int:
    """Return an extent that must be a number; raises Undecided for a dim."""
    if isinstance(extent, Dim):
        usual = typical(extent)
        text = f"{extent}, which must be a number, is {usual}"
        question = Question(as_dim(extent - usual), Relation.ZERO, text, wants_number=True)
        raise Undecided(question)
    return extent


@functools.lru_cache(maxsize=_REMEMBERED)
def typical(extent: Extent) -> int:
    """Return the value of an extent at the typical values of all symbols."""
    return _evaluate(extent, lambda symbol: symbol.typical)


def evaluate(extent: Extent, values: Mapping[str, int]) -> int:
    """Return the value of the extent for these values of its symbols, by name; raises KeyError for
    a symbol without a value."""
    return _evaluate(extent, lambda symbol: values[symbol.name])


def symbols(extents: Iterable[Extent]) -> Iterator[Symbol]:
    """Yield every symbol of the extents, in the order of appearance, possibly more than once.
    Symbols that occur only in the bounds of other symbols are not included."""
    for extent in extents:
        if isinstance(extent, Dim):
            yield from _symbols_of(extent)


@functools.lru_cache(maxsize=_REMEMBERED)
def _symbols_of(extent: Dim) -> tuple[Symbol, ...]:
    ordered: dict[Symbol, None] = {}
    for atom in atoms((extent,)):
        inside = (atom,) if isinstance(atom, Symbol) else symbols((atom.left, atom.right))
        ordered |= dict.fromkeys(inside)
    return tuple(ordered)


def with_bounds(extents: Iterable[Extent]) -> Iterator[Symbol]:
    """Yield every symbol of the extents, each after the symbols in its own bound, possibly more
    than once."""
    for extent in extents:
        if isinstance(extent, Dim):
            yield from _with_bounds_of(extent)


@functools.lru_cache(maxsize=_REMEMBERED)
def _with_bounds_of(extent: Dim) -> tuple[Symbol, ...]:
    ordered: dict[Symbol, None] = {}
    for symbol in _symbols_of(extent):
        ordered |= dict.fromkeys((*with_bounds((symbol.high,)), symbol))
    return tuple(ordered)


def atoms(extents: Iterable[Extent]) -> Iterator[Atom]:
    """Yield the outermost atoms of the extents, in the order of appearance, possibly more than
    once."""
    for extent in extents:
        if isinstance(extent, Dim):
            for monomial, _ in extent.terms:
                yield from monomial


def as_extent(atom: Atom) -> Dim:
    return _atom(atom)


def as_dim(extent: Extent) -> Dim:
    """Return the extent as a Dim, for a caller that knows that it is not a number."""
    assert isinstance(extent, Dim)
    return extent


def substitute(extent: Extent, values: Mapping[Atom, Extent]) -> Extent:
    """Return the extent with atoms replaced according to `values`, including atoms nested in
    others."""
    return _replaced(extent, values.get)


def upper(extent: Extent, is_known: Callable[[Symbol], bool]) -> Extent:
    """Return an upper bound of an extent in terms of known symbols, for which `is_known` is
    true. Each other symbol stands for a size that depends on the data; it is replaced by its
    upper bound."""
    return _relaxed(extent, 1, is_known)


def is_less(left: Extent, right: Extent) -> bool:
    """Check whether `left < right` for all values of the symbols."""
    if isinstance(left, int) and isinstance(right, int):
        return left < right
    return _compared(right, left) is True


def ceildiv(left: Extent, right: Extent) -> Extent:
    """Return `left / right`, rounded up."""
    return -(-left // right)


def maximum(left: Extent, right: Extent) -> Extent:
    return _extreme(DimOp.MAX, left, right)


def minimum(left: Extent, right: Extent) -> Extent:
    return _extreme(DimOp.MIN, left, right)


def reduced(left: Extent, right: Extent) -> tuple[Extent, Extent]:
    """Reduce a fraction of two extents by their common nonnegative factors: 3*h*w / (6*w) becomes h
    / 2, also if w is 0."""
    if left == 0 or right == 0:
        return left, right
    shared = _shared((left, right))
    return _exact(left, shared)[0], _exact(right, shared)[0]


def common_factor(extents: Iterable[Extent]) -> int:
    """Return the largest integer that divides all extents for all values of the symbols; 1 for an
    empty sequence."""
    factors = (
        factor
        for extent in extents
        for factor in ([k for _, k in extent.terms] if isinstance(extent, Dim) else [extent])
    )
    return math.gcd(*factors) or 1


def product(extents: Iterable[Extent]) -> Extent:
    """Return the product of the extents; 1 for an empty sequence."""
    result: Extent = 1
    for extent in extents:
        result = result * extent
    return result


# Canonical forms ---------------------------------------------------------------------------------


def _terms(extent: Extent) -> _Terms:
    if isinstance(extent, Dim):
        return dict(extent.terms)
    number = operator.index(extent)
    return {(): number} if number else {}


def _make(terms: _Terms) -> Extent:
    """Return the extent of a sum, after each remainder is combined with its quotient; consumes
    `terms`."""
    kinds = 0
    for monomial in terms:
        kinds |= _kinds(monomial)
    if kinds & _HAS_EXTREME:
        terms = _turned(terms)
    if kinds & _HAS_REMAINDER and (joined := _joined(terms)) is not None:
        return joined
    if not terms or (len(terms) == 1 and () in terms):
        return terms.get((), 0)
    if len(terms) == 1:
        return Dim(tuple(terms.items()))
    return Dim(tuple([(m, terms[m]) for m in sorted(terms, key=_order, reverse=True)]))


def _joined(terms: _Terms) -> Extent | None:
    """Return the extent after the first pair of a quotient and its remainder, `x // d * d + x % d`,
    is replaced by x; None if the sum has no such pair."""
    for monomial in [each for each in terms if _kinds(each) & _HAS_REMAINDER]:
        for place, atom in enumerate(monomial):
            match atom:
                case Combined(DimOp.MOD, left, right) if monomial in terms:
                    others = _make({(*monomial[:place], *monomial[place + 1 :]): terms[monomial]})
                    quotient = _atom(Combined(DimOp.FLOORDIV, left, right))
                    whole = _terms(_product(others, _product(quotient, right)))
                    if all(terms.get(m) == k for m, k in whole.items()):
                        for m in (monomial, *whole):
                            del terms[m]
                        return _sum(_make(terms), _product(left, others), 1)
    return None


_HAS_REMAINDER, _HAS_EXTREME = 1, 2  # Bits of the result of `_kinds`.


@functools.lru_cache(maxsize=_REMEMBERED)
def _kinds(monomial: Monomial) -> int:
    """Return as bits whether a product contains a remainder (_HAS_REMAINDER) or a minimum or
    maximum (_HAS_EXTREME)."""
    operators = {atom.op for atom in monomial if isinstance(atom, Combined)}
    has_extreme = DimOp.MIN in operators or DimOp.MAX in operators
    return _HAS_REMAINDER * (DimOp.MOD in operators) + _HAS_EXTREME * has_extreme


def _turned(terms: _Terms) -> _Terms:
    """Normalize the minima and maxima of a sum by `max(a, b) == a + b - min(a, b)`.

    Each is rewritten to its opposite where that takes fewer terms or, for an equal number of terms,
    makes its coefficient positive. If a sum contains both the minimum and the maximum of a pair,
    only the maximum remains.
    """
    for monomial in [each for each in terms if _kinds(each) & _HAS_EXTREME]:
        split = _only_extreme(monomial)
        factor = terms.get(monomial)
        if split is None or factor is None:
            continue
        extreme, others = split
        if any(_is_extreme(atom) for atom in atoms((extreme.left, extreme.right))):
            continue
        opposite = Combined(_OPPOSITE[extreme.op], extreme.left, extreme.right)
        twin = tuple(sorted((*others, opposite), key=_rank))
        other = dict(terms)
        del other[monomial]
        _add(other, {twin: 1}, -factor)
        both = _product(_make({others: 1}), _sum(extreme.left, extreme.right, 1))
        _add(other, _terms(both), factor)
        joins = twin in terms and extreme.op is DimOp.MIN
        # A constant does not count: sums that differ by a number have one form.
        shorter = len(other.keys() - {()}), factor > 0
        if joins or (twin not in terms and shorter < (len(terms.keys() - {()}), factor < 0)):
            terms = other
    return terms


_OPPOSITE = {DimOp.MIN: DimOp.MAX, DimOp.MAX: DimOp.MIN}


def _is_extreme(atom: Atom) -> bool:
    return isinstance(atom, Combined) and atom.op in _OPPOSITE


def _only_extreme(monomial: Monomial) -> tuple[Combined, Monomial] | None:
    """Return the only minimum or maximum of a product, and its other atoms; None if the product has
    no minimum or maximum, or several."""
    extremes = [atom for atom in monomial if isinstance(atom, Combined) and atom.op in _OPPOSITE]
    if len(extremes) != 1:
        return None
    return extremes[0], tuple(atom for atom in monomial if atom is not extremes[0])


def _add(terms: _Terms, others: Mapping[Monomial, int], factor: int) -> None:
    """Add `factor * others` to `terms` in place."""
    for monomial, k in others.items():
        total = terms.pop(monomial, 0) + factor * k
        if total:
            terms[monomial] = total


@functools.lru_cache(maxsize=_REMEMBERED)
def _order(monomial: Monomial) -> _Rank:
    return len(monomial), *map(_rank, reversed(monomial))


@functools.lru_cache(maxsize=_REMEMBERED)
def _rank(atom: Atom) -> _Rank:
    """Return a sort key: symbols go first, by name; other atoms by depth, then by operator and
    operands. Keys share the keys of common parts, so a comparison stops at the first difference."""
    if isinstance(atom, Symbol):
        return 0, atom.name
    return _atom_depth(atom), atom.op.value, _extent_rank(atom.left), _extent_rank(atom.right)


def _extent_rank(extent: Extent) -> _Rank:
    if isinstance(extent, int):
        return 0, extent
    return 1, *((_order(monomial), factor) for monomial, factor in extent.terms)


def _atom(atom: Atom) -> Dim:
    return Dim((((atom,), 1),))


@functools.lru_cache(maxsize=_REMEMBERED)
def _sum(left: Extent, right: Extent, factor: int) -> Extent:
    """Return `left + factor * right`."""
    terms = _terms(left)
    _add(terms, _terms(right), factor)
    return _make(terms)


@functools.lru_cache(maxsize=_REMEMBERED)
def _product(left: Extent, right: Extent) -> Extent:
    terms: _Terms = {}
    for first, j in _terms(left).items():
        for second, k in _terms(right).items():
            monomial = tuple(sorted((*first, *second), key=_rank))
            total = terms.pop(monomial, 0) + j * k
            if total:
                terms[monomial] = total
    return _make(terms)


@functools.lru_cache(maxsize=_REMEMBERED)
def _divmod(left: Extent, right: Extent) -> tuple[Extent, Extent]:
    """Return the quotient, rounded down, and the remainder.

    Raises ZeroDivisionError for the divisor 0, and Undecided for a divisor that may be zero or
    negative. An exception is a divisor that is a factor of the sum: the exact quotient is then
    returned for all sizes, although it only holds where the divisor is not 0.
    """
    if isinstance(left, int) and isinstance(right, int):
        return divmod(left, right)
    if right == 0:
        raise ZeroDivisionError(f"{left} divided by 0")
    if isinstance(right, int) and right < 0:
        quotient, rest = _divmod(-left, -right)
        return quotient, -rest
    whole, rest = _exact(left, right)
    if rest == 0:
        return whole, 0
    if _least(right) < 1:
        raise Undecided(Question(as_dim(right), Relation.POSITIVE, f"{right} is positive"))
    plain = _without_remainders(rest)
    if plain != rest:  # x - x % d is a multiple of d.
        more, left_over = _exact(plain, right)
        if left_over == 0:
            return whole + more, 0
    for step in (0, 1):  # The exact division may leave a negative remainder.
        if _is_within(rest + step * right, right):
            return whole - step, rest + step * right
    if _is_within(rest + right, right):
        return whole - 1, rest + right
    low, high = bounds(rest)
    if isinstance(right, int) and low // right == high // right:
        return whole + low // right, rest - low // right * right
    quotient, remainder = _reduced(rest, right)
    simpler = _congruent(rest, right)
    return whole + quotient, remainder if simpler == rest else simpler % right


def _exact(left: Extent, right: Extent) -> tuple[Extent, Extent]:
    """Return (q, r) with `left == q * right + r`, where q collects all terms that divide
    exactly."""
    divisor = _terms(right)
    lead, size = max(divisor.items(), key=lambda term: _order(term[0]))
    whole: _Terms = {}
    rest: Extent = left
    for monomial, factor in sorted(_terms(left).items(), key=lambda t: _order(t[0]), reverse=True):
        factor = _terms(rest).get(monomial, 0)
        missing = _quotient(monomial, lead)
        # A number may leave a remainder; of other terms all or nothing is taken.
        take = factor // size if not monomial or factor % size == 0 else 0
        if missing is None or not take:
            continue
        partial = _make({missing: take})
        remaining = _sum(rest, _product(partial, right), -1)
        if len(_terms(remaining)) < len(_terms(rest)) or len(divisor) == 1:
            whole[missing] = whole.get(missing, 0) + take
            rest = remaining
    return _make({m: k for m, k in whole.items() if k}), rest


def _without_remainders(extent: Extent) -> Extent:
    """Return the extent with each atom `x % d` written as `x - x // d * d`."""
    return _rebuild(extent, _by_quotient)


def _by_quotient(atom: Atom) -> Extent:
    match atom:
        case Combined(DimOp.MOD, left, right):
            return left - _atom(Combined(DimOp.FLOORDIV, left, right)) * right
    return _atom(atom)


def _congruent(extent: Extent, divisor: Extent) -> Extent:
    """Return an extent with the same remainder modulo `divisor`: each term `x % d` becomes x if
    `divisor` divides d. Terms that are products stay as they are, because they would be multiplied
    out."""
    total = extent
    for monomial, factor in _terms(extent).items():
        match monomial:
            case (Combined(DimOp.MOD, left, right) as atom,) if _exact(right, divisor)[1] == 0:
                total = total + factor * (left - _atom(atom))
    return total


def _quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """Return the atoms of `monomial` without those of `divisor`; None if one of the latter is
    missing in `monomial`."""
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _is_within(rest: Extent, divisor: Extent) -> bool:
    """Check whether `0 <= rest < divisor` for all values of the symbols."""
    return _least(rest) >= 0 and _least(_sum(divisor, rest, -1)) > 0


def _reduced(rest: Extent, divisor: Extent) -> tuple[Extent, Extent]:
    """Return the quotient and the remainder of `rest` by `divisor`, as atoms in normal form. No
    term of `rest` is exactly divisible."""
    if isinstance(rest, Dim) and isinstance(divisor, int):
        if _is_turned(rest, divisor):  # -x // d == -((x + d - 1) // d)
            quotient = -((divisor - 1 - rest) // divisor)
            return quotient, rest - quotient * divisor
        match rest.terms:
            case (((Combined(DimOp.FLOORDIV, inner, int(step)),), 1), *constant):
                number = constant[0][1] if constant and constant[0][0] == () else 0
                if len(constant) == bool(number):  # (x // s + c) // d == (x + s*c) // (s*d)
                    quotient = (inner + step * number) // (step * divisor)
                    return quotient, rest - quotient * divisor
        number = sum(factor for monomial, factor in rest.terms if monomial == ())
        if (common := math.gcd(divisor, *(f for m, f in rest.terms if m != ()))) > 1:
            # (g*x + c) // (g*d) == (x + c // g) // d
            whole = (rest - number) // common + number // common
            quotient, left = whole // (divisor // common), whole % (divisor // common)
            return quotient, left * common + number % common
    if isinstance(divisor, Dim) and rest != 0 and (shared := _shared((rest, divisor))) != 1:
        part, left_of_divisor = (_exact(extent, shared)[0] for extent in (rest, divisor))
        if _least(left_of_divisor) > 0:  # As g is positive, g*x // (g*d) == x // d.
            times, remainder = _divmod(part, left_of_divisor)
            return times, remainder * shared
    quotient = _atom(Combined(DimOp.FLOORDIV, rest, divisor))
    return quotient, _atom(Combined(DimOp.MOD, rest, divisor))


def _is_turned(rest: Dim, divisor: int) -> bool:
    """Check whether `rest // divisor` is represented by the quotient of the negated sum, with a
    minus sign.

    Of a sum and its negation exactly one is written in this way: the one with a negative first
    coefficient or, if a minimum or maximum leaves this open, the later one in sorted order.
    """
    is_negative = rest.terms[0][1] < 0
    if not any(_kinds(monomial) & _HAS_EXTREME for monomial, _ in rest.terms):
        return is_negative
    negated = as_dim(divisor - 1 - rest)
    if is_negative is not (negated.terms[0][1] < 0):
        return is_negative
    mine, other = ([term for term in extent.terms if term[0]] for extent in (rest, negated))
    return _extent_rank(_make(dict(other))) < _extent_rank(_make(dict(mine)))


def _shared(extents: Iterable[Extent]) -> Extent:
    """Return the largest product of an integer and nonnegative atoms that divides every term of all
    nonzero extents."""
    terms = [term for extent in extents for term in _terms(extent).items()]
    shared: list[Atom] = []
    for atom in dict.fromkeys(terms[0][0]):
        if _atom_bounds(atom)[0] >= 0:
            shared += [atom] * min(monomial.count(atom) for monomial, _ in terms)
    return _make({tuple(shared): math.gcd(*(factor for _, factor in terms))})


_MOST_OPERANDS = 6  # More nested minima or maxima than these are not compared pair by pair.


@functools.lru_cache(maxsize=_REMEMBERED)
def _extreme(op: DimOp, left: Extent, right: Extent) -> Extent:
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right) if op is DimOp.MAX else min(left, right)
    if _is_settled(op, left, right):
        return left
    if _is_settled(op, right, left):
        return right
    operands = [*_operands(op, left), *_operands(op, right)]
    return _extreme_of(op, operands if len(operands) <= _MOST_OPERANDS else [left, right])


def _extreme_of(op: DimOp, operands: Sequence[Extent]) -> Extent:
    """Return the minimum or maximum of the extents, with their common terms and common factor moved
    outside."""
    needed = list(dict.fromkeys(operands))
    for candidate in list(needed) if len(needed) > 2 else ():
        if any(other != candidate and _is_settled(op, other, candidate) for other in needed):
            needed.remove(candidate)
    if len(needed) == 1:
        return needed[0]
    sums = [_terms(extent) for extent in needed]
    common: _Terms = {}
    for monomial in dict.fromkeys(m for terms in sums for m in terms):
        least = min(terms.get(monomial, 0) for terms in sums)
        if least:
            common[monomial] = least
    for terms in sums:
        _add(terms, common, -1)
    parts = list(map(_make, sums))
    inner = [operand for part in parts for operand in _operands(op, part)]
    # Without the common terms, the remaining operands may themselves be minima or maxima.
    if len(parts) < len(inner) <= _MOST_OPERANDS:
        return _sum(_make(common), _extreme_of(op, inner), 1)
    if len(parts) == 2:
        for index, other in ((0, 1), (1, 0)):
            capped = _capped(parts[index], parts[other])
            if op is DimOp.MAX:  # max(a, b) - a == b - min(a, b)
                _add(common, _terms(_sum(parts[index], capped, -1)), 1)
            parts[index] = capped
    factor = _shared(part for part in parts if part != 0)
    parts = sorted((_exact(part, factor)[0] for part in parts), key=_extent_rank)
    extreme = parts.pop()
    while parts:
        extreme = _atom(Combined(op, parts.pop(), extreme))
    return _sum(_make(common), _product(factor, extreme), 1)


def _capped(extent: Extent, limit: Extent) -> Extent:
    """Return an extent that has the same minimum with `limit`, with its coefficients limited:
    min(4, 4*n) for min(4, 1000*n). A size that is doubled and cut repeatedly so keeps one form."""
    if not (isinstance(limit, int) and isinstance(extent, Dim)):
        return extent
    if all(factor <= limit for _, factor in extent.terms):
        return extent
    if any(factor < 0 or _product_bounds(m)[0] < 0 for m, factor in extent.terms):
        return extent
    return _make({monomial: min(factor, limit) for monomial, factor in extent.terms})


def _is_settled(op: DimOp, chosen: Extent, other: Extent) -> bool:
    """Check whether the minimum or maximum of two extents is `chosen` for all values of the
    symbols."""
    more, less = (chosen, other) if op is DimOp.MAX else (other, chosen)
    return _least(_sum(more, less, -1)) >= 0


def _operands(op: DimOp, extent: Extent) -> list[Extent]:
    """Return the extents of which this extent is the minimum or maximum: 2*a + c and 2*b + c for
    2*max(a, b) + c."""
    case = _by_case(extent) if isinstance(extent, Dim) else None
    if case is None or case[0] is not op:
        return [extent]
    return [operand for end in case[1:] for operand in _operands(op, end)]


# Bounds and order --------------------------------------------------------------------------------


# A product with more factors is not multiplied out in distances from its atoms' bounds.
_MOST_FACTORS = 6


@functools.lru_cache(maxsize=_REMEMBERED)
def _bounds(extent: Extent, depth: int) -> tuple[int, int]:
    """Return the least and the greatest value of an extent.

    Minima and maxima nested up to `depth` levels are split into cases; deeper ones are not, because
    the number of cases doubles with each.
    """
    if isinstance(extent, int):
        return extent, extent
    terms = extent.terms
    low = high = 0
    for monomial, factor in terms:
        least, most = _product_bounds(monomial)
        low += factor * (least if factor > 0 else most)
        high += factor * (most if factor > 0 else least)
    if len(terms) > 1 and 1 < max(len(m) for m, _ in terms) <= _MOST_FACTORS:
        for end in (0, 1):
            least, most = _bounds_from(terms, end)
            low, high = max(low, least), min(high, most)
    if len(terms) > 1 and depth and (case := _by_case(extent)) is not None:
        choose, (first, second) = _CHOICE[case[0]], (_bounds(end, depth - 1) for end in case[1:])
        low, high = max(low, choose(first[0], second[0])), min(high, choose(first[1], second[1]))
    return low, high


def _bounds_from(terms: Iterable[tuple[Monomial, int]], end: int) -> tuple[int, int]:
    """Return bounds of a sum of products, in terms of the distances of its atoms from their least
    values (`end` 0) or from their greatest values (`end` 1).

    Terms that contain the same distances are added up first, so that they may cancel out: x*y - 2*x
    - 2*y + 4 is (x - 2)*(y - 2), which is at least 0 if x and y are at least 2.
    """
    sums: _Terms = {}  # By product of distances.
    for monomial, factor in terms:
        for distances, k in _multiplied_out(monomial, end):
            sums[distances] = sums.get(distances, 0) + factor * k
    low = high = 0
    for distances, k in sums.items():
        reach = k * _span(distances, end)
        if reach < 0 or not distances:
            low += reach
        if reach > 0 or not distances:
            high += reach
    return low, high


@functools.lru_cache(maxsize=_REMEMBERED)
def _multiplied_out(monomial: Monomial, end: int) -> tuple[tuple[Monomial, int], ...]:
    """Multiply a product of atoms out: each atom is written as its bound plus or minus a distance.
    Return the resulting sum of products of distances. The bound is the least value if `end` is 0,
    the greatest if it is 1."""
    products: _Terms = {(): 1}
    for atom in monomial:
        start = _atom_bounds(atom)[end]
        expanded = {others: k * start for others, k in products.items()}
        for others, k in products.items():
            wider = tuple(sorted((*others, atom), key=_rank))
            expanded[wider] = expanded.get(wider, 0) + k
        products = expanded
    return tuple(products.items())


@functools.lru_cache(maxsize=_REMEMBERED)
def _span(distances: Monomial, end: int) -> int:
    """Return the value of largest magnitude that a product of distances from bounds can have; 1 for
    the empty product."""
    span = 1
    for atom in distances:
        least, most = _atom_bounds(atom)
        span *= least - most if end else most - least
    return span


@functools.lru_cache(maxsize=_REMEMBERED)
def _product_bounds(monomial: Monomial) -> tuple[int, int]:
    low = high = 1
    for atom in monomial:
        corners = [factor * end for factor in (low, high) for end in _atom_bounds(atom)]
        low, high = min(corners), max(corners)
    return low, high


@functools.lru_cache(maxsize=4096)
def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Symbol):
        return atom.low, bounds(atom.high)[1]
    left, right = bounds(atom.left), bounds(atom.right)
    match atom.op:
        case DimOp.FLOORDIV:
            corners = [a // b for a in left for b in right]
            return min(corners), max(corners)
        case DimOp.MOD:
            return 0, min(right[1] - 1, left[1]) if left[0] >= 0 else right[1] - 1
        case DimOp.MIN:
            return min(left[0], right[0]), min(left[1], right[1])
        case DimOp.MAX:
            return max(left[0], right[0]), max(left[1], right[1])


def _is_positive(left: Extent, right: Extent) -> bool:
    """Check whether `left > right`; raises Undecided if that depends on the symbols."""
    answer = _compared(left, right)
    if answer is None:
        difference = as_dim(_sum(left, right, -1))
        raise Undecided(Question(difference, Relation.POSITIVE, f"{left} > {right}"))
    return answer


def _compared(left: Extent, right: Extent) -> bool | None:
    """Return whether `left > right`, or None if that depends on the symbols. The bounds decide most
    comparisons with a number, so they are tried first."""
    if isinstance(right, int):
        low, high = bounds(left)
        if low > right:
            return True
        if high <= right:
            return False
    elif isinstance(left, int):
        low, high = right.bounds
        if left > high:
            return True
        if left <= low:
            return False
    return _exceeds(left, right)


@functools.lru_cache(maxsize=_REMEMBERED)
def _exceeds(left: Extent, right: Extent) -> bool | None:
    """Return whether `left > right`, or None if that depends on the symbols."""
    difference = _sum(left, right, -1)
    low, high = bounds(difference)
    if low > 0:
        return True
    if high <= 0:
        return False
    if _least(difference) > 0:
        return True
    return False if _least(-difference) >= 0 else None


_CHOICE = {DimOp.MIN: min, DimOp.MAX: max}
# A sum with three minima or maxima is split into 2**3 sums, one for each choice of operands.
_MOST_CASES = 3


def _by_case(extent: Dim) -> tuple[DimOp, Extent, Extent] | None:
    """Write a sum that contains a minimum or maximum as the minimum or maximum of two sums, one for
    each operand.

    Return (op, first, second), or None if the sum contains neither, or too many of them, or only
    such in products of unknown sign. The bounds of a minimum of two sums follow from theirs
    exactly; the bound of a maximum may be too low, so a minimum is split first, as in max(4, n) -
    max(3, n).
    """
    candidates: list[tuple[DimOp, Combined, Monomial]] = []
    count = 0
    for monomial, factor in extent.terms:
        if _kinds(monomial) & _HAS_EXTREME:
            count += 1
            split = _only_extreme(monomial)
            if split is not None and _product_bounds(split[1])[0] >= 0:
                op = split[0].op
                candidates.append((op if factor > 0 else _OPPOSITE[op], *split))
    if not candidates or count > _MOST_CASES:
        return None
    op, extreme, others = min(candidates, key=lambda candidate: candidate[0] is DimOp.MAX)
    monomial = tuple(sorted((*others, extreme), key=_rank))
    first, second = (
        _exchanged(extent, monomial, _product(_make({others: 1}), end))
        for end in (extreme.left, extreme.right)
    )
    return op, first, second


def _least(extent: Extent, cases: int = _MOST_CASES) -> int:
    """Return a lower bound of an extent. It is closer than the sum of the bounds of all terms,
    because it takes into account how quotients, remainders, minima, maxima and bounded symbols
    depend on the other terms. The computation uses no division, because division itself calls
    it."""
    low = bounds(extent)[0]
    if low > 0 or not isinstance(extent, Dim):
        return low
    shared = _shared_atoms(extent)
    if shared:
        return max(low, _least_product(extent, shared))
    sums = _product_of_sums(extent)
    if sums is not None:
        least = [_least(factor) for factor in sums]
        return max(low, math.prod(least)) if min(least) >= 0 else low
    case = _by_case(extent) if cases else None
    if case is not None:
        first, second = (_least(end, cases - 1) for end in case[1:])
        return max(low, _CHOICE[case[0]](first, second))
    whole = 1  # The factor that the extent was multiplied with so far.
    for _ in range(_MOST_RELAXATIONS):
        if low > 0 or not isinstance(extent, Dim):
            break
        scale, extent = _linearized(extent)
        if scale == 0:
            break
        whole *= scale
        low = max(low, -(-bounds(extent)[0] // whole))
    return low


def _shared_atoms(extent: Dim) -> Monomial:
    """Return the product of the atoms that all terms of a sum have in common, each to the highest
    common power."""
    (first, _), *others = extent.terms
    return tuple(
        atom
        for atom in dict.fromkeys(first)
        for _ in range(min(monomial.count(atom) for monomial, _ in extent.terms))
        if others
    )


def _product_of_sums(extent: Dim) -> tuple[Extent, Extent] | None:
    """Return the two factors of a sum that is a product `(atom + term) * sum` multiplied out, or
    None."""
    if max(len(monomial) for monomial, _ in extent.terms) < 2:
        return None
    for atom in dict.fromkeys(atom for monomial, _ in extent.terms for atom in monomial):
        times: _Terms = {}
        rest: _Terms = {}
        for monomial, factor in extent.terms:
            without = _quotient(monomial, (atom,))
            if without is None:
                rest[monomial] = factor
            else:
                times[without] = factor
        term = _single_quotient(rest, times)
        if term is not None:
            return _sum(as_extent(atom), term, 1), _make(times)
    return None


def _single_quotient(dividend: _Terms, divisor: _Terms) -> Extent | None:
    """Return the single term whose product with `divisor`, a sum of several terms, is `dividend`,
    or None."""
    if not 1 < len(divisor) == len(dividend):
        return None
    first, factor = next(iter(divisor.items()))
    for monomial, product in dividend.items():
        atoms = _quotient(monomial, first)
        if atoms is None or product % factor:
            continue
        scale = product // factor
        multiplied = {tuple(sorted((*m, *atoms), key=_rank)): k * scale for m, k in divisor.items()}
        if multiplied == dividend:
            return _make({atoms: scale})
    return None


def _least_product(extent: Dim, shared: Monomial) -> int:
    """Return a lower bound of a sum whose terms all contain the atoms `shared`. It is the lower
    bound of the product of these atoms and of the sum without them, as in n*m - n*min(1, m) = n*(m
    - min(1, m))."""
    rest = _make({_quotient(monomial, shared) or (): factor for monomial, factor in extent.terms})
    (low, high), least = _product_bounds(shared), _least(rest)
    return min(low * least, high * least) if low >= 0 else bounds(extent)[0]


_MOST_RELAXATIONS = 4


def _linearized(extent: Dim) -> tuple[int, Extent]:
    """Return (s, e) with `s * extent >= e`, where e contains one compound atom less than the
    extent, or a quotient instead of a remainder; s is 0 without a compound atom. Atoms that
    contain other atoms are eliminated first, since their parts may cancel out."""
    alone = [term for term in extent.terms if len(term[0]) == 1]
    for monomial, factor in sorted(alone, key=_depth_of, reverse=True):
        match monomial[0]:
            case Combined(DimOp.FLOORDIV, left, int(step)):
                # x // d is at most x / d, and at least (x - d + 1) / d.
                left, step = _nested(left, step, alone)
                end = left if factor < 0 else left - (step - 1)
                return step, _exchanged(extent, monomial, end, step)
            case Combined(DimOp.MOD) as atom if factor < 0:
                return 1, _exchanged(extent, monomial, _by_quotient(atom))
            case Symbol(high=Dim() as high) if factor < 0:
                return 1, _exchanged(extent, monomial, high)
            case Combined(DimOp.MIN | DimOp.MAX as op, left, right) if (
                factor < 0 if op is DimOp.MIN else factor > 0
            ):
                ends = [_exchanged(extent, monomial, end) for end in (left, right)]
                return 1, max(ends, key=lambda end: bounds(end)[0])
    return 0, extent


def _nested(left: Extent, step: int, terms: Iterable[tuple[Monomial, int]]) -> tuple[Extent, int]:
    """Return a dividend and a divisor whose quotient is left // step, computed from a quotient of
    the same dividend if the terms contain one: (n // 2, 9) for n // 18 if n // 2 is a term. The
    remainder that n // 2 drops then cancels out of a difference of the two."""
    for (atom, *_), _ in terms:
        match atom:
            case Combined(DimOp.FLOORDIV, other, int(divisor)) if (
                divisor < step and step % divisor == 0
            ):
                offset = _sum(left, other, -1)
                if isinstance(offset, int) and offset % divisor == 0:
                    return as_extent(atom) + offset // divisor, step // divisor
    return left, step


def _exchanged(extent: Dim, monomial: Monomial, instead: Extent, scale: int = 1) -> Extent:
    """Return `scale * extent`, in which the term `scale * monomial` is replaced by `instead`."""
    terms = {m: scale * k for m, k in extent.terms}
    factor = terms.pop(monomial) // scale
    for m, k in _terms(instead).items():
        total = terms.pop(m, 0) + factor * k
        if total:
            terms[m] = total
    return _make(terms)


def _depth_of(term: tuple[Monomial, int]) -> int:
    return _depth(term[0])


@functools.lru_cache(maxsize=_REMEMBERED)
def _depth(atoms: Monomial) -> int:
    """Return the depth of the most deeply nested atom in a product."""
    return max((_atom_depth(atom) for atom in atoms), default=0)


@functools.lru_cache(maxsize=4096)
def _atom_depth(atom: Atom) -> int:
    inside = (atom.high,) if isinstance(atom, Symbol) else (atom.left, atom.right)
    depths = (_depth(monomial) for e in inside if isinstance(e, Dim) for monomial, _ in e.terms)
    return 1 + max(depths, default=0)


def _relaxed(extent: Extent, sign: int, is_known: Callable[[Symbol], bool]) -> Extent:
    """Return a bound of the extent in terms of known symbols: an upper bound if `sign` is 1, a
    lower bound if it is -1."""

    def relaxed(extent: Extent, sign: int) -> Extent:
        if isinstance(extent, int):
            return extent
        total: Extent = 0
        for monomial, factor in extent.terms:
            part: Extent = factor
            for part_atom in monomial:  # Sizes are not negative, so products are monotonic.
                part = part * atom(part_atom, sign if factor > 0 else -sign)
            total = total + part
        return total

    @functools.cache  # An atom that stands in several places is relaxed once.
    def atom(factor: Atom, sign: int) -> Extent:
        if isinstance(factor, Symbol):
            if is_known(factor):
                return _atom(factor)
            return relaxed(factor.high, 1) if sign > 0 else factor.low
        if all(map(is_known, symbols((factor.left, factor.right)))):
            return _atom(factor)
        left = relaxed(factor.left, sign)
        match factor.op:
            case DimOp.MOD:
                return relaxed(factor.right, 1) - 1 if sign > 0 else 0
            case DimOp.FLOORDIV:
                return left // relaxed(factor.right, -sign)
            case _:
                return _extreme(factor.op, left, relaxed(factor.right, sign))

    return relaxed(extent, sign)


# Walking -----------------------------------------------------------------------------------------


def _evaluate(extent: Extent, value: Callable[[Symbol], int]) -> int:
    values: dict[Atom, int] = {}

    def total(extent: Extent) -> int:
        if isinstance(extent, int):
            return extent
        return sum(factor * math.prod(map(of, monomial)) for monomial, factor in extent.terms)

    def of(atom: Atom) -> int:
        result = values.get(atom)
        if result is None:
            if isinstance(atom, Symbol):
                result = value(atom)
            else:
                result = cast(int, _apply(atom.op, total(atom.left), total(atom.right)))
            values[atom] = result
        return result

    return total(extent)


def _replaced(extent: Extent, replacement: Callable[[Atom], Extent | None]) -> Extent:
    """Return the extent with each atom replaced by `replacement(atom)`. If that is None, the atom
    stays, but the atoms within it are replaced; this is done once for all its occurrences."""
    if isinstance(extent, int):
        return extent
    match extent.terms:
        case (((Symbol() as symbol,), 1),):
            whole = replacement(symbol)
            return extent if whole is None else whole
    results: dict[Atom, Extent] = {}

    def visit(atom: Atom) -> Extent:
        result = results.get(atom)
        if result is None:
            result = results[atom] = changed(atom)
        return result

    def changed(atom: Atom) -> Extent:
        direct = replacement(atom)
        if direct is not None:
            return direct
        if isinstance(atom, Symbol):
            return _atom(atom)
        return _apply(atom.op, _rebuild(atom.left, visit), _rebuild(atom.right, visit))

    return _rebuild(extent, visit)


def _rebuild(extent: Extent, visit: Callable[[Atom], Extent]) -> Extent:
    if isinstance(extent, int):
        return extent
    total: Extent = 0
    for monomial, factor in extent.terms:
        part: Extent = factor
        for atom in monomial:
            part = visit(atom) if part == 1 else _product(part, visit(atom))
        total = _sum(total, part, 1) if total != 0 else part
    return total


def _apply(op: DimOp, left: Extent, right: Extent) -> Extent:
    match op:
        case DimOp.FLOORDIV:
            return left // right
        case DimOp.MOD:
            return left % right
        case DimOp.MIN | DimOp.MAX:
            return _extreme(op, left, right)


def _is_division(atom: Atom) -> bool:
    return isinstance(atom, Combined) and atom.op in (DimOp.FLOORDIV, DimOp.MOD)


def _grouped(extent: Extent) -> str:
    text = str(extent)
    return text if text.isidentifier() or text.isdecimal() else f"({text})"


def _described(extent: Extent) -> str:
    """Return the ranges of the symbols as text: `h in 1..512, w in 1..512`."""
    named = {symbol.name: symbol for symbol in symbols((extent,))}
    return ", ".join(f"{name} in {s.low}..{s.high}" for name, s in sorted(named.items()))
