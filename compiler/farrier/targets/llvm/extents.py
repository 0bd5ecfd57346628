"""The emission of sizes that are known only at run time, as i64 instructions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from farrier.ir import instr
from farrier.ir.dim import Atom, DimOp, Extent, Symbol, bounds
from farrier.ir.instr import I1, I64, Operand, Operation, Type


class Make(Protocol):
    """A function that appends a pure instruction, or returns an equal one."""

    def __call__(
        self,
        operation: Operation,
        type_: Type,
        operands: tuple[Operand, ...],
        attribute: Any = None,
    ) -> Operand: ...


def emit_extent(extent: Extent, value_of: Callable[[Symbol], Operand], make: Make) -> Operand:
    """Return the operand for an extent: a literal, or the result of instructions that `make`
    appends. `value_of` returns the operand for a symbol."""

    def op(operation: Operation, left: Operand, right: Operand) -> Operand:
        return make(operation, I64, (left, right))

    def total(extent: Extent) -> Operand:
        if isinstance(extent, int):
            return instr.index(extent)
        summed: Operand | None = None
        for monomial, factor in extent.terms:
            part: Operand | None = None
            for factor_atom in monomial:
                part = atom(factor_atom) if part is None else op(instr.MUL, part, atom(factor_atom))
            if part is None:
                part = instr.index(factor)
            elif factor != 1:
                part = op(instr.MUL, part, instr.index(factor))
            summed = part if summed is None else op(instr.ADD, summed, part)
        assert summed is not None
        return summed

    @functools.cache  # An atom in several places is computed once.
    def atom(factor_atom: Atom) -> Operand:
        if isinstance(factor_atom, Symbol):
            return value_of(factor_atom)
        left, right = total(factor_atom.left), total(factor_atom.right)
        match factor_atom.op:
            case DimOp.MIN | DimOp.MAX:
                order = "slt" if factor_atom.op is DimOp.MIN else "sgt"
                first = make(instr.ICMP, I1, (left, right), order)
                return make(instr.SELECT, I64, (first, left, right))
            case DimOp.FLOORDIV:
                return quotient(factor_atom.left, left, right)
            case DimOp.MOD:
                whole = op(instr.MUL, quotient(factor_atom.left, left, right), right)
                return op(instr.SUB, left, whole)

    def quotient(extent: Extent, left: Operand, right: Operand) -> Operand:
        """Return the floor of `left / right` for a positive divisor."""
        if bounds(extent)[0] >= 0:
            return op(instr.UDIV, left, right)
        # For a negative number it is -1 - (-1 - x) // d.
        sign = op(instr.ASHR, left, instr.index(63))
        size = op(instr.XOR, left, sign)
        return op(instr.XOR, op(instr.UDIV, size, right), sign)

    return total(extent)


def emit_largest(
    extents: Sequence[Extent], value_of: Callable[[Symbol], Operand], make: Make
) -> Operand:
    """Return the operand for the maximum of `extents`. `value_of` and `make` are as in
    `emit_extent`."""
    largest, *others = (emit_extent(extent, value_of, make) for extent in extents)
    for other in others:
        is_larger = make(instr.ICMP, I1, (other, largest), "sgt")
        largest = make(instr.SELECT, I64, (is_larger, other, largest))
    return largest
