"""The emission of a thread's indices and addresses. They are computed in 32 bits if their values
fit, since a GPU needs several instructions for 64 bits. LLVM's passes hoist them out of loops."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

from farrier.ir import instr
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, bounds, maximum, minimum
from farrier.ir.dim import Symbol as Dim
from farrier.ir.expr import Binary, BinaryOp, Expr, Var
from farrier.ir.expr import index as number_of
from farrier.ir.instr import I32, I64, Operand, Type
from farrier.ir.linear import Linear
from farrier.ir.substitute import Substitution, variables
from farrier.ir.types import DType
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.extents import emit_extent
from farrier.targets.llvm.values import Value

_LIMIT = 1 << 31
_NSW = "nsw"  # LLVM may assume that the operation does not overflow.
_DIVISIONS = {BinaryOp.DIV: instr.UDIV, BinaryOp.MOD: instr.UREM}
_OPERATIONS = {**_DIVISIONS, BinaryOp.BIT_XOR: instr.XOR}
_EXTREMES = {BinaryOp.MIN: "smin", BinaryOp.MAX: "smax"}


class Indices:
    """The emitter of index expressions. `evaluate` is a function that emits all other expressions.

    `constants` are the variables of unrolled loops, `variables` those of other loops (i32 or i64),
    and `sizes` the values of symbols.
    """

    def __init__(
        self, builder: Builder, simplifier: Simplifier, evaluate: Callable[[Expr], Value]
    ) -> None:
        self._b = builder
        self.simplifier = simplifier
        self._evaluate = evaluate
        self.constants: dict[str, int] = {}
        self.variables: dict[str, Operand] = {}
        self.sizes: dict[str, Operand] = {}

    def value(self, expr: Expr) -> Value:
        """Emit an index, and return its value."""
        form = self.simplifier.linear(expr)
        kind = self._type_of(form)
        total, const = self._parts(form, kind)
        if total is None and isinstance(const, int):
            return Value(instr.index(const), DType.I64, 1, const)
        return Value(self._converted(self._sum(total, const, kind), I64), DType.I64)

    def address(self, base: Operand, form: Linear, nbytes: Extent) -> Operand:
        """Emit the address at a byte offset, given as a linear form, from the start of an array of
        `nbytes` bytes."""
        const = form.const if isinstance(form.const, int) else _LIMIT
        # The sum without the constant fits as well, as it is only used for addresses within the
        # array.
        kind = I32 if _most(nbytes) + abs(const) < _LIMIT else I64
        total, const_behind = self._parts(form, kind)
        if total is not None:
            base = self._b.offset(base, self._converted(total, I64))
        if isinstance(const_behind, int):
            return self._b.offset(base, const_behind) if const_behind else base
        return self._b.offset(base, self.size(const_behind))

    def divisor(self, form: Linear, most: int) -> int:
        """Return the largest divisor of `most`, a power of two, that is known to divide all values
        of a linear form."""
        const, divisor = form.const, most
        for atom, coefficient in form.terms.items():
            number = self._number(atom)
            if number is not None:
                const = const + coefficient * number
            else:
                divisor = math.gcd(divisor, coefficient if isinstance(coefficient, int) else 1)
        return math.gcd(divisor, const if isinstance(const, int) else 1)

    def size(self, extent: Extent) -> Operand:
        """Return an extent as an i64 operand, computed at the start of the function."""
        if isinstance(extent, int):
            return instr.index(extent)
        return emit_extent(extent, self._symbol, functools.partial(self._b.hoisted, 0))

    def counted(self, extent: Extent) -> tuple[Type, Operand]:
        """Return the type of a loop counter that can count to `extent`, which is i32 if possible
        and else i64, and the extent as an operand of that type."""
        kind = I32 if _most(extent) < _LIMIT else I64
        return kind, self._converted(self.size(extent), kind)

    def _symbol(self, symbol: Dim) -> Operand:
        return self.sizes[symbol.name]

    def _type_of(self, form: Linear) -> Type:
        """Return the narrower of i32 and i64 that can represent all values of a linear form, and
        all values of the form without its constant."""
        low, high = self.simplifier.bounds_of(form)
        least, most = (
            bounds(low - maximum(form.const, 0))[0],
            bounds(high - minimum(form.const, 0))[1],
        )
        return I32 if least >= -_LIMIT and most < _LIMIT else I64

    def _parts(self, form: Linear, kind: Type) -> tuple[Operand | None, Extent]:
        """Emit the sum of a linear form's terms. Return the sum (None for a form without terms) and
        the form's constant."""
        const: Extent = form.const
        # If all terms are non-negative, partial sums do not exceed the total.
        flags = _NSW if self._is_natural(form.terms) else None
        total: Operand | None = None
        for atom, coefficient in form.terms.items():
            number = self._number(atom)
            if number is not None:
                const = const + coefficient * number
                continue
            part = self._term(atom, kind)
            if coefficient != 1:
                factor = self._converted(self.size(coefficient), kind)
                part = self._b.pure(instr.MUL, kind, (part, factor), flags)
            total = part if total is None else self._added(total, part, flags)
        return total, const

    def _number(self, atom: Expr) -> int | None:
        """Return the value of an atom of which all variables are those of unrolled loops, else
        None."""
        if isinstance(atom, Var):
            return self.constants.get(atom.name)
        names = variables(atom)
        if not names or not names <= self.constants.keys():
            return None
        values = {name: number_of(self.constants[name]) for name in names}
        form = self.simplifier.linear(Substitution(values).expr(atom))
        return form.const if not form.terms and isinstance(form.const, int) else None

    def _is_natural(self, terms: Mapping[Expr, Extent]) -> bool:
        return all(
            bounds(coefficient)[0] >= 0 and bounds(self.simplifier.bounds(atom)[0])[0] >= 0
            for atom, coefficient in terms.items()
        )

    def _added(self, total: Operand, part: Operand, flags: str | None) -> Operand:
        return self._b.pure(instr.ADD, total.type, (total, part), flags)

    def _sum(self, total: Operand | None, const: Extent, kind: Type) -> Operand:
        if const == 0 and total is not None:
            return total
        last = self._converted(self.size(const), kind)
        return last if total is None else self._added(total, last, None)

    def _term(self, atom: Expr, kind: Type) -> Operand:
        if isinstance(atom, Var):
            return self._converted(self.variables[atom.name], kind)
        if isinstance(atom, Binary) and atom.op in (*_OPERATIONS, *_EXTREMES):
            narrow = self._narrow(atom)
            if narrow is not None:
                return self._converted(narrow, kind)
        return self._converted(self._evaluate(atom).operand, kind)

    def _narrow(self, atom: Binary) -> Operand | None:
        """Emit a quotient, remainder, exclusive or, minimum or maximum in 32 bits if both operands
        are non-negative and fit; else return None."""
        sides = [self.simplifier.linear(side) for side in (atom.left, atom.right)]
        least = 1 if atom.op in _DIVISIONS else 0
        for side, low in zip(sides, (0, least), strict=True):
            first, last = self.simplifier.bounds_of(side)
            if bounds(first)[0] < low or bounds(last)[1] >= _LIMIT:
                return None
        left, right = (self._sum(*self._parts(side, I32), I32) for side in sides)
        if atom.op in _OPERATIONS:
            return self._b.op(_OPERATIONS[atom.op], left, right)
        return self._b.math(_EXTREMES[atom.op], left, right)

    def _converted(self, x: Operand, kind: Type) -> Operand:
        if x.type.element == kind.element:
            return x
        if isinstance(x, instr.Constant):
            return instr.number_of(kind, x.number)
        return self._b.convert(instr.TRUNC if kind is I32 else instr.SEXT, x, kind)


def _most(extent: Extent) -> int:
    return bounds(extent)[1]
