"""Sizes known when the model runs, as instructions on i64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from farrier.ir import instr
from farrier.ir.dim import Atom, DimOp, Extent, Symbol, bounds
from farrier.ir.instr import I1, I64, Operand, Operation, Type


class Make(Protocol):
    """Appends a pure instruction, or returns an equal one."""

    def __call__(
        self,
        operation: Operation,
        type_: Type,
        operands: tuple[Operand, ...],
        attribute: Any = None,
    ) -> Operand: ...


def emit_extent(extent: Extent, value_of: Callable[[Symbol], Operand], make: Make) -> Operand:
    """The operand that holds an extent: a literal, or what instructions compute. `value_of` gives
    the operand of a symbol."""

    def op(operation: Operation, left: Operand, right: Operand) -> Operand:
        return make(operation, I64, (left, right))

    def total(extent: Extent) -> Operand:
        if isinstance(extent, int):
            return instr.index(extent)
        summed: Operand | None = None
        for monomial, factor in extent.terms:
            part: Operand | None = None
            for one in monomial:
                part = atom(one) if part is None else op(instr.MUL, part, atom(one))
            if part is None:
                part = instr.index(factor)
            elif factor != 1:
                part = op(instr.MUL, part, instr.index(factor))
            summed = part if summed is None else op(instr.ADD, summed, part)
        assert summed is not None
        return summed

    @functools.cache  # what stands in several places is computed once
    def atom(one: Atom) -> Operand:
        if isinstance(one, Symbol):
            return value_of(one)
        left, right = total(one.left), total(one.right)
        match one.op:
            case DimOp.MIN | DimOp.MAX:
                order = "slt" if one.op is DimOp.MIN else "sgt"
                first = make(instr.ICMP, I1, (left, right), order)
                return make(instr.SELECT, I64, (first, left, right))
            case DimOp.FLOORDIV:
                return quotient(one.left, left, right)
            case DimOp.MOD:
                whole = op(instr.MUL, quotient(one.left, left, right), right)
                return op(instr.SUB, left, whole)

    def quotient(extent: Extent, left: Operand, right: Operand) -> Operand:
        """`left // right` for a positive divisor."""
        if bounds(extent)[0] >= 0:
            return op(instr.UDIV, left, right)
        # Of a negative number: -1 - (-1 - x) // d.
        sign = op(instr.ASHR, left, instr.index(63))
        size = op(instr.XOR, left, sign)
        return op(instr.XOR, op(instr.UDIV, size, right), sign)

    return total(extent)


def emit_largest(
    extents: Sequence[Extent], value_of: Callable[[Symbol], Operand], make: Make
) -> Operand:
    """The operand that holds the largest of some extents, as `emit_extent` has one."""
    largest, *others = (emit_extent(extent, value_of, make) for extent in extents)
    for other in others:
        is_larger = make(instr.ICMP, I1, (other, largest), "sgt")
        largest = make(instr.SELECT, I64, (is_larger, other, largest))
    return largest
