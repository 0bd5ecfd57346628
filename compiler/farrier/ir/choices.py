"""Set the choices of a loop function: sizes on which its result does not depend."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from farrier.ir.dim import Atom, Extent, substitute
from farrier.ir.expr import Binary, BinaryOp, Buffer, Const, Size, index
from farrier.ir.loop import For, Function, If, NamedSize, Stmt
from farrier.ir.statements import block
from farrier.ir.walk import rewrite


def with_choices(function: Function, values: Mapping[str, int]) -> Function:
    """Return the function with the named choices replaced by numbers. An If whose condition becomes
    constant is replaced by the branch that is taken."""
    numbers: dict[Atom, Extent] = {
        symbol: values[symbol.name] for symbol in function.choices if symbol.name in values
    }

    def extent(old: Extent) -> Extent:
        return substitute(old, numbers)

    def visit(part: Any) -> Any:
        if isinstance(part, Buffer):
            return dataclasses.replace(part, shape=tuple(map(extent, part.shape)))
        if isinstance(part, For | NamedSize):
            return dataclasses.replace(part, extent=extent(part.extent))
        if isinstance(part, Size):
            return index(extent(part.extent))
        if isinstance(part, Function):
            rest = tuple(symbol for symbol in part.choices if symbol not in numbers)
            return dataclasses.replace(part, choices=rest)
        return _taken(part) if isinstance(part, If) else part

    return rewrite(function, visit) if numbers else function


def _taken(stmt: If) -> Stmt:
    """If `stmt` is an If whose condition is constant, return the branch that the condition selects.
    Otherwise return `stmt`."""
    test = stmt.condition
    if not isinstance(test, Binary) or test.op is not BinaryOp.LT:
        return stmt
    if not isinstance(test.left, Const) or not isinstance(test.right, Const):
        return stmt
    taken = stmt.then if test.left.value < test.right.value else stmt.otherwise
    return block([]) if taken is None else taken


def with_usual_choices(function: Function) -> Function:
    """Return the function with each choice replaced by its typical value."""
    return with_choices(function, {symbol.name: symbol.typical for symbol in function.choices})
