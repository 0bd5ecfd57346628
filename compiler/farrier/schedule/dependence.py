"""Find the loop variables that two accesses to the same element must agree on.

Two iterations conflict where both access one element and one of them writes it. If access to the
same element implies that a loop's variable is the same, no two iterations of that loop conflict.
The analysis compares the indices of the two accesses: from

    32*o1 + i1 == 32*o2 + i2    with 0 <= i1, i2 < 32

follows o1 == o2 and i1 == i2; from `f1 // 7 == f2 // 7` and `f1 % 7 == f2 % 7` follows f1 == f2. A
scalar that an iteration computes once is replaced by its value. Loads are opaque, except that two
loads of one element that no iteration writes are equal. If the analysis proves nothing about a pair
of accesses, the pair counts as a conflict.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TypeAlias

from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, bounds, is_less, maximum, minimum
from farrier.ir.expr import Binary, BinaryOp, Expr, Var, extent_of
from farrier.ir.linear import Linear, combine, to_expr
from farrier.ir.loop import For, Stmt
from farrier.ir.substitute import loads, variables
from farrier.schedule.accesses import Access, accesses, private_buffers, writes
from farrier.schedule.forwarding import forwarded_values, substitution

Element: TypeAlias = tuple[Linear, ...]  # The indices of one access.


def conflicts(
    body: Stmt, shared: frozenset[str], simplifier: Simplifier, chain: Sequence[str]
) -> list[tuple[Access, Access, frozenset[str]]]:
    """Return the conflicts between iterations of the perfectly nested loops `chain`: pairs of
    accesses within `body`, at least one of which writes, that may access the same element in
    different iterations. Each pair comes with the variables of `chain` that may differ between the
    two iterations.

    `shared` contains the variables that have one value in both iterations: those of the loops
    around the chain.
    """
    changed = writes(body)
    written = changed - private_buffers(body)
    by_buffer: dict[str, list[Access]] = {}
    for access in accesses(body) if written else ():
        if access.buffer.name in written:
            by_buffer.setdefault(access.buffer.name, []).append(access)
    pairs = []
    wanted = frozenset(var for var in chain if bounds(simplifier.ranges[var])[1] > 1)
    values = substitution(forwarded_values(body) if by_buffer else {})
    for group in by_buffer.values():
        elements = [
            tuple(simplifier.linear(values.expr(index)) for index in access.indices)
            for access in group
        ]
        # The index of the first equal element.
        kinds = [elements.index(element) for element in elements]
        free_of: dict[tuple[int, int], frozenset[str]] = {}
        for place, left in enumerate(group):
            for other, right in enumerate(group[place:], start=place):
                if left.writes or right.writes:
                    pair = kinds[place], kinds[other]
                    if pair not in free_of:
                        free_of[pair] = wanted - agreed(
                            simplifier, elements[place], elements[other], shared, changed
                        )
                    if free_of[pair]:
                        pairs.append((left, right, free_of[pair]))
    return pairs


def loops_around(path: Sequence[Stmt]) -> frozenset[str]:
    """Return the variables of the loops in a path, without that of its last statement."""
    return frozenset(s.var for s in path[:-1] if isinstance(s, For))


def agreed(
    simplifier: Simplifier,
    left: Element,
    right: Element,
    shared: frozenset[str],
    changed: Set[str] = frozenset(),
) -> frozenset[str]:
    """Return the variables that must have equal values in two iterations, if the first iteration
    accesses the element at indices `left` and the second accesses the same element at indices
    `right`. Iterations may write the buffers in `changed`, so two loads from these may return
    different values."""
    return _Agreement(simplifier, shared, changed).of(left, right)


class _Agreement:
    __slots__ = ("_changed", "_known", "_pairs", "_resolved", "_shared", "_simplifier", "_work")

    def __init__(self, simplifier: Simplifier, shared: frozenset[str], changed: Set[str]) -> None:
        self._simplifier = simplifier
        self._shared = shared
        self._changed = changed
        self._known: set[str] = set()
        self._work: list[tuple[Linear, Linear]] = []
        self._pairs: dict[tuple[Expr, Expr], None] = {}  # Atoms of the two sides that are equal.
        self._resolved: set[tuple[Expr, Expr]] = set()

    def of(self, left: Element, right: Element) -> frozenset[str]:
        self._work = list(zip(left, right, strict=True))
        while self._work:
            while self._work:
                self._peel(*self._work.pop())
            self._join_digits()
        return frozenset(self._known)

    def _peel(self, left: Linear, right: Linear) -> None:
        """Derive equal atoms from the equality of two linear forms, largest coefficient first: the
        terms with the largest coefficient are equal if the range of all other terms is smaller than
        that coefficient."""
        common_left, own_left = self._separate(left)
        common_right, own_right = self._separate(right)
        if common_left != common_right:
            return
        while own_left and own_right:
            (a, k), (b, m) = own_left.pop(), own_right.pop()
            if k != m:
                return
            low1, high1 = self._simplifier.bounds_of(Linear(dict(own_left), left.const))
            low2, high2 = self._simplifier.bounds_of(Linear(dict(own_right), right.const))
            if not is_less(maximum(high1, high2) - minimum(low1, low2), maximum(k, -k)):
                return
            self._equal(a, b)

    def _separate(self, form: Linear) -> tuple[dict[Expr, Extent], list[tuple[Expr, Extent]]]:
        """Split a linear form into terms whose value is the same in both iterations, and all other
        terms. The latter are sorted by the size of their coefficients, largest last."""
        common: dict[Expr, Extent] = {}
        own: list[tuple[Expr, Extent]] = []
        for atom, factor in form.terms.items():
            if self._is_common(atom):
                common[atom] = factor
            else:
                own.append((atom, factor))
        own.sort(key=lambda term: max(map(abs, bounds(term[1]))))
        return common, own

    def _is_common(self, atom: Expr) -> bool:
        """Check whether an atom has one value in both iterations."""
        if not variables(atom) <= self._shared:
            return False
        return not any(load.buffer.name in self._changed for load in loads(atom))

    def _equal(self, left: Expr, right: Expr) -> None:
        """Record that two atoms are equal: as an equal loop variable, or as a pair of equal
        expressions."""
        if isinstance(left, Var) and isinstance(right, Var):
            if left.name == right.name:
                self._known.add(left.name)
            return
        self._pairs[left, right] = None

    def _join_digits(self) -> None:
        """Derive that two numbers are equal because all their digits are. A digit of `e` is a term
        of the form `(e // place) % base`. The digits that are known to be equal must distinguish
        all values in the range of the numbers."""
        for pair in list(self._pairs):
            for left, right in self._wholes(*pair):
                if (left, right) in self._resolved:
                    continue
                low1, high1 = self._simplifier.bounds(left)
                low2, high2 = self._simplifier.bounds(right)
                width = maximum(high1, high2) - minimum(low1, low2) + 1
                if _determine(self._digits_of(left, right), width):
                    self._resolved.add((left, right))
                    linear = self._simplifier.linear
                    self._work.append((linear(left), linear(right)))

    def _wholes(self, left: Expr, right: Expr) -> list[tuple[Expr, Expr]]:
        """Given two expressions that are known to be equal, return the pairs (e1, e2) such that
        `left` is a digit of `e1` and `right` is the same digit of `e2`. Return an empty list if
        they are not digits.

        A digit `l // 4` in `16*c + l // 4` also makes that sum a digit of `64*c + l`.
        """
        first, second = _digit(left), _digit(right)
        if first is None or second is None or first[1:] != second[1:]:
            return []
        wholes = [(first[0], second[0])]
        lifted = self._lift(first[0]), self._lift(second[0])
        if lifted[0] is not None and lifted[1] is not None:
            wholes.append((lifted[0], lifted[1]))
        return wholes

    def _lift(self, expr: Expr) -> Expr | None:
        """Return a number of which `expr` is the floor division: `64*c + l` for `16*c + l // 4`.
        Return None if no term of `expr` is a floor division with factor 1."""
        form = self._simplifier.linear(expr)
        for atom, factor in form.terms.items():
            digit = _digit(atom)
            if factor == 1 and digit is not None and digit[2] == 0:
                inner, place, _ = digit
                others = Linear({a: k for a, k in form.terms.items() if a != atom}, form.const)
                return to_expr(combine(self._simplifier.linear(inner), others, place))
        return None

    def _digits_of(self, left: Expr, right: Expr) -> list[tuple[Extent, Extent]]:
        """Return the digits in which the numbers `left` and `right` are known to agree. A digit of
        e is (place, base), for the term `(e // place) % base`."""
        digits = []
        for left_atom, right_atom in self._pairs:
            digit = self._place_in(left, left_atom)
            if digit is not None and digit == self._place_in(right, right_atom):
                digits.append(digit)
        return digits

    def _place_in(self, whole: Expr, atom: Expr) -> tuple[Extent, Extent] | None:
        """Return (place, base) if `atom` is `(whole // place) % base`, else None."""
        digit = _digit(atom)
        if digit is None:
            return None
        inner, place, base = digit
        form, small = self._simplifier.linear(whole), self._simplifier.linear(inner)
        factors = [(form.terms[a], k) for a, k in small.terms.items() if a in form.terms]
        step = max(
            [1, *(of // k for of, k in factors if isinstance(of, int) and isinstance(k, int))]
        )
        coarse = self._simplifier.divide(form, step)
        period = place * base
        same = coarse == small or (
            base != 0
            and self._simplifier.remainder(coarse, period)
            == self._simplifier.remainder(small, period)
        )
        return (place * step, base) if same else None


def _digit(atom: Expr) -> tuple[Expr, Extent, Extent] | None:
    """Return (e, place, base) if the atom is `(e // place) % base`; base 0 stands for `e // place`
    alone."""
    if not isinstance(atom, Binary):
        return None
    size = extent_of(atom.right)
    if size is None or not is_less(0, size):
        return None
    inner = _digit(atom.left)
    if atom.op is BinaryOp.DIV:
        if inner is not None and inner[2] != 0 and inner[2] % size == 0:
            return inner[0], inner[1] * size, inner[2] // size
        return atom.left, size, 0
    if atom.op is not BinaryOp.MOD:
        return None
    if inner is not None and inner[2] == 0:
        return inner[0], inner[1], size
    return atom.left, 1, size


def _determine(digits: list[tuple[Extent, Extent]], width: Extent) -> bool:
    """Check whether the values of some digits determine a number, if it is one of `width`
    consecutive numbers. The digit (place, base) of a number e is `(e // place) % base`, or `e //
    place` if base is 0."""
    covered: Extent = 1  # The digits so far determine the number modulo this.
    for place, base in sorted(digits, key=lambda digit: bounds(digit[0])[1]):
        if covered % place != 0:
            return False
        if base == 0:
            return True
        if (place * base) % covered == 0:
            covered = place * base
    return is_less(width - 1, covered)
