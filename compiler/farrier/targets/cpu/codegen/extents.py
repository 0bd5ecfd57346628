"""Sizes known when the model runs, as instructions on i64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from farrier.ir.dim import Atom, DimOp, Extent, Symbol, bounds


def emit_extent(
    extent: Extent, value_of: Callable[[Symbol], str], emit: Callable[[str], str]
) -> str:
    """The operand that holds an extent: a literal, or what instructions compute. `value_of` gives
    the operand of a symbol, `emit` appends an instruction and gives the name of its result."""

    def total(extent: Extent) -> str:
        if isinstance(extent, int):
            return str(extent)
        summed: str | None = None
        for monomial, factor in extent.terms:
            part: str | None = None
            for one in monomial:
                part = atom(one) if part is None else emit(f"mul i64 {part}, {atom(one)}")
            if part is None:
                part = str(factor)
            elif factor != 1:
                part = emit(f"mul i64 {part}, {factor}")
            summed = part if summed is None else emit(f"add i64 {summed}, {part}")
        assert summed is not None
        return summed

    @functools.cache  # what stands in several places is computed once
    def atom(one: Atom) -> str:
        if isinstance(one, Symbol):
            return value_of(one)
        left, right = total(one.left), total(one.right)
        match one.op:
            case DimOp.MIN | DimOp.MAX:
                order = "slt" if one.op is DimOp.MIN else "sgt"
                first = emit(f"icmp {order} i64 {left}, {right}")
                return emit(f"select i1 {first}, i64 {left}, i64 {right}")
            case DimOp.FLOORDIV:
                return quotient(one.left, left, right)
            case DimOp.MOD:
                whole = emit(f"mul i64 {quotient(one.left, left, right)}, {right}")
                return emit(f"sub i64 {left}, {whole}")

    def quotient(extent: Extent, left: str, right: str) -> str:
        """`left // right` for a positive divisor."""
        if bounds(extent)[0] >= 0:
            return emit(f"udiv i64 {left}, {right}")
        # Of a negative number: -1 - (-1 - x) // d.
        sign = emit(f"ashr i64 {left}, 63")
        size = emit(f"xor i64 {left}, {sign}")
        return emit(f"xor i64 {emit(f'udiv i64 {size}, {right}')}, {sign}")

    return total(extent)


def emit_largest(
    extents: Sequence[Extent], value_of: Callable[[Symbol], str], emit: Callable[[str], str]
) -> str:
    """The operand that holds the largest of some extents, as `emit_extent` has one."""
    largest, *others = (emit_extent(extent, value_of, emit) for extent in extents)
    for other in others:
        is_larger = emit(f"icmp sgt i64 {other}, {largest}")
        largest = emit(f"select i1 {is_larger}, i64 {other}, i64 {largest}")
    return largest
