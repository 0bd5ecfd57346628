"""The emission of index expressions as addresses that need no further optimization.

An index is converted to linear form once for each function. Variables of unrolled loops are
constants in each iteration and are added to the constant offset. Every other term is computed in
the head of the loop that defines its variable; in loops that sum in registers, it is a pointer that
advances with the loop. Hence all accesses of an unrolled tile share a pointer, and differ only by
constant displacements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from farrier.ir import instr
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, is_less
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Expr,
    Var,
)
from farrier.ir.instr import I64, Operand
from farrier.ir.linear import Linear
from farrier.ir.substitute import loads, variables
from farrier.ir.types import DType
from farrier.targets.llvm.builder import HERE, Builder
from farrier.targets.llvm.extents import emit_extent
from farrier.targets.llvm.values import Value


class Term(NamedTuple):
    """The term `coefficient * factor` of an address. `factor` is an i64 value defined in the scope
    at `depth`, or at the current position if `depth` is HERE."""

    depth: int
    factor: Operand
    coefficient: Extent


class Offset(NamedTuple):
    """The part of an address that is equal in all iterations of an unrolled loop: `sum(terms) +
    lane * stride`, to which a constant is then added. `irregular` is true if the offset is not
    linear in the lane; the stride is then meaningless.

    `pointers` caches the sum of the terms and each base pointer to which they were added.
    """

    terms: tuple[Term, ...]
    stride: int
    irregular: bool
    pointers: dict[Operand, Operand]


_Constants: TypeAlias = list[tuple[str, Extent]]  # Pairs of variable and coefficient.


class AddressExpr:
    """A linear form that can be resolved at the current position to an offset and a constant.

    The offset is cached for as long as the lane variable and the values of loop variables stay the
    same (an era of `Bindings`). Only the constant differs between iterations of an unrolled loop.
    """

    __slots__ = (
        "_bindings",
        "_const",
        "_constants",
        "_era",
        "_form",
        "_indices",
        "_lane",
        "_offset",
    )

    def __init__(self, form: Linear, indices: Indices) -> None:
        self._form = form
        self._indices = indices
        self._bindings = indices.bindings
        # The era and the lane for which the following values are valid.
        self._era: int | None = None
        self._lane: str | None
        self._offset: Offset
        self._const: Extent  # The part without the variables of unrolled loops.
        self._constants: _Constants

    def resolve(self) -> tuple[Offset, Extent]:
        """Return the offset, and the constant, which includes the variables of unrolled loops."""
        bindings = self._bindings
        if self._era != bindings.era or self._lane != bindings.lane:
            self._offset, self._const, self._constants, fixed = self._indices.parts(self._form)
            self._era, self._lane = bindings.era if fixed else None, bindings.lane
        const = self._const
        for name, coefficient in self._constants:
            const += coefficient * bindings.constants[name]
        return self._offset, const


class Bindings:
    """The values of the loop variables at the current position of the function under
    construction."""

    def __init__(self) -> None:
        self.constants: dict[str, int] = {}
        self.dynamic: dict[str, tuple[int, Operand]] = {}  # The depth of its scope, and its value.
        self.lane: str | None = None
        self.lanes = 1  # The physical lanes of the vectorized loop, a power of two.
        self.active = 1  # The extent of that loop.
        self.era = 0  # Counts the changes of `dynamic`.


class Indices:
    """The emitter of index expressions under the current bindings."""

    def __init__(
        self,
        builder: Builder,
        bindings: Bindings,
        simplifier: Simplifier,
        evaluate: Callable[[Expr], Value],
    ) -> None:
        self.b = builder
        self.bindings = bindings
        self.simplifier = simplifier
        self._evaluate = evaluate
        self._variables: dict[int, tuple[Expr, tuple[str, ...], bool]] = {}
        self._sizes: dict[Extent, Operand] = {}  # The operands of extents that were computed.

    def place(self, form: Linear) -> AddressExpr:
        """Return the address of a linear form, which is resolved again at each use."""
        return AddressExpr(form, self)

    def parts(self, form: Linear) -> tuple[Offset, Extent, _Constants, bool]:
        """Return four values for a linear form: its offset; its constant; the coefficients of those
        of its variables that belong to unrolled loops; and a flag. If the flag is true, the other
        three stay valid until a loop variable changes its value (for the whole era)."""
        bindings = self.bindings
        const, stride, irregular, fixed = form.const, 0, False, True
        constants: _Constants = []
        terms: list[Term] = []
        for atom, coefficient in form.terms.items():
            if type(atom) is Var:
                name = atom.name
                if name in bindings.constants:
                    constants.append((name, coefficient))
                elif name == bindings.lane and isinstance(coefficient, int):
                    stride += coefficient
                elif name == bindings.lane:
                    irregular = True
                else:
                    terms.append(Term(*bindings.dynamic[name], coefficient))
                continue
            depth, value = self._atom(atom)
            names = self._facts(atom)[0]
            fixed = fixed and depth != HERE and not any(n in bindings.constants for n in names)
            if value is None or value.lanes > 1:
                irregular = True
            elif value.const is not None:
                const += coefficient * int(value.const)
            else:
                terms.append(Term(depth, value.operand, coefficient))
        if len(terms) > 1:
            # Any order works if it is the same for all accesses, since they then share partial
            # sums.
            terms.sort(key=lambda term: (term.depth, str(term.factor), str(term.coefficient)))
        return Offset(tuple(terms), stride, irregular, {}), const, constants, fixed

    def pointer(self, base: Operand, offset: Offset) -> Operand:
        """Return `base` plus the terms of an offset, in bytes. Accesses whose first terms are equal
        share the partial sums."""
        at = offset.pointers.get(base)
        if at is None:
            at, outer = base, -1
            for depth, factor, coefficient in offset.terms:
                if outer < depth != HERE and factor is self.b.scopes[depth].variable:
                    at = self._stepped(depth, at, coefficient)
                else:
                    scaled = self._scaled(depth, factor, coefficient)
                    at = self.b.hoisted(depth, instr.OFFSET, at.type, (at, scaled))
                outer = depth
            if not offset.terms or offset.terms[-1].depth != HERE:
                offset.pointers[base] = at
        return at

    def _stepped(self, depth: int, start: Operand, coefficient: Extent) -> Operand:
        """Return a pointer that equals `start` in the first iteration of the loop at `depth` and
        advances by `coefficient` bytes in each further iteration. The addition replaces a
        multiplication in each address."""
        pointers = self.b.scopes[depth].stepped
        if (start, coefficient) not in pointers:
            pointers[start, coefficient] = self.b.variable(start.type, "at")
        return pointers[start, coefficient]

    def value(self, expr: Expr) -> Value | None:
        """Emit an index expression as an i64 value, or as a vector if it depends on the lane.
        Return None if it is not linear in the lane."""
        return self.value_at(self.place(self.simplifier.linear(expr)))

    def value_at(self, place: AddressExpr) -> Value | None:
        """Emit the index at a resolved address as an i64 value, as `value` does for an
        expression."""
        offset, const = place.resolve()
        return None if offset.irregular else self._sum(offset, const)

    def _sum(self, offset: Offset, const: Extent) -> Value:
        total: Operand | None = None
        for depth, factor, coefficient in offset.terms:
            scaled = self._scaled(depth, factor, coefficient)
            if total is None:
                total = scaled
            else:
                total = self.b.hoisted(depth, instr.ADD, I64, (total, scaled))
        if total is None:
            scalar = Value(
                self.size(const), DType.I64, 1, const if isinstance(const, int) else None
            )
        elif const != 0:
            depth = offset.terms[-1].depth
            total = self.b.hoisted(depth, instr.ADD, I64, (total, self.size(const)))
            scalar = Value(total, DType.I64)
        else:
            scalar = Value(total, DType.I64)
        if not offset.stride:
            return scalar
        lanes = self.bindings.lanes
        wide = self.b.widen(scalar, lanes).operand
        steps = instr.lanes_of(wide.type, *(lane * offset.stride for lane in range(lanes)))
        return Value(self.b.op(instr.ADD, wide, steps), DType.I64, lanes)

    def _scaled(self, depth: int, factor: Operand, coefficient: Extent) -> Operand:
        if coefficient == 1:
            return factor
        return self.b.hoisted(depth, instr.MUL, I64, (factor, self.size(coefficient)))

    def size(self, extent: Extent) -> Operand:
        """Return an extent as an operand: a literal, or a value computed at the start of the
        function."""
        if isinstance(extent, int):
            return instr.index(extent)
        operand = self._sizes.get(extent)
        if operand is None:
            operand = self._sizes[extent] = emit_extent(
                extent,
                lambda symbol: self.bindings.dynamic[symbol.name][1],
                functools.partial(self.b.hoisted, 0),
            )
        return operand

    def _atom(self, atom: Expr) -> tuple[int, Value | None]:
        """Return the depth of the scope in which the value of a nonlinear term is computed, and the
        value; the value is None if it depends on the lane."""
        names, loads = self._facts(atom)
        bindings = self.bindings
        if bindings.lane in names:
            return 0, None
        if loads:
            value = self._evaluate(atom)
            return HERE, value
        depth, key = 0, [id(atom)]
        for name in names:
            constant = bindings.constants.get(name)
            if constant is None:
                depth = max(depth, bindings.dynamic[name][0])
            else:
                key.append(constant)
        atoms, at = self.b.scopes[depth].atoms, tuple(key)
        if at not in atoms:
            with self.b.at_head(depth):
                atoms[at] = self._unsigned(atom) or self._evaluate(atom)
        return depth, atoms[at]

    def _unsigned(self, atom: Expr) -> Value | None:
        """Emit a quotient or remainder by a single unsigned instruction, if `atom` is one and the
        dividend is not negative. (Floor division of signed numbers takes nine instructions.)
        Otherwise return None."""
        if not isinstance(atom, Binary) or atom.op not in (BinaryOp.DIV, BinaryOp.MOD):
            return None
        divisor = self.simplifier.linear(atom.right)
        if divisor.terms or not is_less(0, divisor.const):
            return None
        if not is_less(-1, self.simplifier.bounds(atom.left)[0]):
            return None
        left = self.value(atom.left)
        if left is None or left.const is not None:
            return None
        operation = instr.UDIV if atom.op is BinaryOp.DIV else instr.UREM
        return Value(self.b.op(operation, left.operand, self.size(divisor.const)), DType.I64)

    def _facts(self, atom: Expr) -> tuple[tuple[str, ...], bool]:
        """Return the names of the variables in a nonlinear term, and a flag that the term loads
        from memory."""
        entry = self._variables.get(id(atom))
        if entry is None:
            reads = any(True for _ in loads(atom))
            entry = self._variables[id(atom)] = (atom, tuple(sorted(variables(atom))), reads)
        return entry[1], entry[2]
