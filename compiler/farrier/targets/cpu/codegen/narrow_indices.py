"""The pass `narrow-indices`: compute 64-bit indices in 32 bits, on machines with 32-bit registers.

Indices are computed from loop counters and constants. If all values of an index fit in 32 bits, the
index and its operands are narrowed; it then takes one register instead of two.

before:  %i.y1 = phi i64 [ 0, … ], [ %v5, … ]
         %v2 = mul i64 %i.y1, 12
after:   %i.y1 = phi i32 [ 0, … ], [ %v5, … ]
         %v2 = mul i32 %i.y1, 12

An instruction that needs 64 bits, such as a store of an i64 element, uses the sign-extended index.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from farrier.ir import instr
from farrier.ir.instr import (
    I32,
    I64,
    Branch,
    Carried,
    Constant,
    Function,
    Instruction,
    Joined,
    Loop,
    Operand,
    Operation,
    Return,
    Statement,
    While,
)
from farrier.targets.cpu.codegen.pair_vectors import largest_number

_Bounds: TypeAlias = tuple[int, int]
_Make: TypeAlias = Callable[[_Bounds, _Bounds], _Bounds | None]
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1
# These accept operands of either width.
_MEETS = frozenset((instr.ICMP, instr.OFFSET, instr.SITOFP, instr.TRUNC))


def narrow_indices(function: Function) -> Function:
    """Return the function with its indices computed in 32 bits. Its instructions are modified in
    place."""
    narrowing = _Narrowing(itertools.count(largest_number(function.body) + 1))
    body = narrowing.body(function.body)
    result = function.result
    if result is not None:
        result = narrowing.as_before(result, body)
    return dataclasses.replace(function, body=body, result=result)


class _Narrowing:
    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        # The bounds of values that were narrowed to 32 bits.
        self._bounds: dict[Operand, _Bounds] = {}

    def body(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return narrowed statements, with sign extensions where an operand must have 64 bits."""
        written: list[Statement] = []
        for x in statements:
            match x:
                case list():
                    written.append(self.body(x))
                case Instruction():
                    self._instruction(x, written)
                case Loop():
                    written.append(self._loop(x, written))
                case While():
                    written.append(self._while(x, written))
                case Branch():
                    written.append(self._branch(x))
                case Return():
                    result = self.as_before(x.result, written)
                    written.append(dataclasses.replace(x, result=result))
        return written

    def as_before(self, x: Operand, written: list[Statement]) -> Operand:
        """Return an operand in its original width. For a narrowed one, append the sign extension to
        `written`."""
        if x not in self._bounds:
            return x
        wide = Instruction(instr.SEXT, I64, (x,), None, next(self._numbers))
        written.append(wide)
        return wide

    def _instruction(self, x: Instruction, written: list[Statement]) -> None:
        bounds = self._bounds_of(x) if _is_wide(x) else None
        if bounds is not None and _LEAST <= bounds[0] <= bounds[1] <= _MOST:
            x.type, x.operands = I32, tuple(map(self._narrow, x.operands))
            self._bounds[x] = bounds
        elif x.operation in _MEETS and all(map(self._is_narrow_if_wide, x.operands)):
            x.operands = tuple(map(self._narrow, x.operands))
            if x.operation is instr.TRUNC and x.type == x.operands[0].type:
                x.operation = instr.BITCAST
        else:
            x.operands = tuple(self.as_before(operand, written) for operand in x.operands)
        written.append(x)

    def _bounds_of(self, x: Instruction) -> _Bounds | None:
        """Return the range of the values that the 64-bit instruction `x` may compute, or None if no
        range can be derived."""
        operands = x.operands[1:] if x.operation is instr.SELECT else x.operands
        if x.operation in (instr.SEXT, instr.ZEXT):
            return _BY_NARROW.get((x.operation, operands[0].type.element))
        is_math = x.operation is instr.MATH
        make = _MATH.get(x.attribute) if is_math else _ARITHMETIC.get(x.operation)
        if make is None or len(operands) != 2:
            return None
        left, right = map(self._known, operands)
        return None if left is None or right is None else make(left, right)

    def _known(self, x: Operand) -> _Bounds | None:
        if isinstance(x, Constant) and _is_wide(x):
            number = int(x.number)
            return (number, number) if _LEAST <= number <= _MOST else None
        return self._bounds.get(x)

    def _is_narrow(self, x: Operand) -> bool:
        return self._known(x) is not None

    def _is_narrow_if_wide(self, x: Operand) -> bool:
        return not _is_wide(x) or self._is_narrow(x)

    def _narrow(self, x: Operand) -> Operand:
        """Return an operand converted to 32 bits. Its range, which is known, fits in these."""
        if isinstance(x, Constant) and _is_wide(x):
            return instr.number_of(I32, int(x.number))
        return x

    # -- loops and branches

    def _loop(self, x: Loop, written: list[Statement]) -> Loop:
        most = self._most_iterations(x)
        if most is not None:
            for carried in x.carried:
                self._count(carried, most)
        entered = [self._first(carried, written) for carried in x.carried]
        body = self.body(x.body)
        handed = [
            Carried(each.variable, first, self._next(each, body))
            for each, first in zip(x.carried, entered, strict=True)
        ]
        return Loop(handed, body, x.again, x.number)

    def _most_iterations(self, x: Loop) -> int | None:
        """Return an upper bound of the number of iterations of the loop `x`. The loop must count up
        to a known number, or from a known number down to zero; otherwise return None."""
        if not isinstance(x.again, Instruction) or x.again.operation is not instr.ICMP:
            return None
        left, right = x.again.operands
        for carried in x.carried:
            step, first = _step(carried), self._known(carried.first)
            if step is None or first is None or carried.next is not left:
                continue
            if x.again.attribute == "ne" and step == -1 and self._known(right) == (0, 0):
                return first[1] if first[0] > 0 else None
            end = self._known(right)
            if x.again.attribute == "slt" and step == 1 and end is not None:
                return max(end[1] - first[0], 1)
        return None

    def _count(self, carried: Carried, most: int) -> None:
        """Narrow a loop-carried variable that changes by a constant in each iteration, if 32 bits
        hold all its values, including the one after the last iteration."""
        step, first = _step(carried), self._known(carried.first)
        if step is None or first is None:
            return
        last = step * (most - 1)
        low, high = first[0] + min(last, 0), first[1] + max(last, 0)
        if low + min(step, 0) >= _LEAST and high + max(step, 0) <= _MOST:
            carried.variable.type = I32
            self._bounds[carried.variable] = low, high

    def _first(self, carried: Carried, written: list[Statement]) -> Operand:
        if carried.variable in self._bounds:
            return self._narrow(carried.first)
        return self.as_before(carried.first, written)

    def _next(self, carried: Carried, body: list[Statement]) -> Operand:
        if carried.variable in self._bounds:
            return self._narrow(carried.next)
        return self.as_before(carried.next, body)

    def _while(self, x: While, written: list[Statement]) -> While:
        entered = [self.as_before(carried.first, written) for carried in x.carried]
        test = self.body(x.test)
        body = self.body(x.body)
        carried = [
            Carried(each.variable, first, self.as_before(each.next, body))
            for each, first in zip(x.carried, entered, strict=True)
        ]
        return While(carried, test, x.condition, body, x.number)

    def _branch(self, x: Branch) -> Branch:
        then, otherwise = self.body(x.then), self.body(x.otherwise)
        joined = [
            Joined(
                each.variable,
                self.as_before(each.then, then),
                self.as_before(each.otherwise, otherwise),
            )
            for each in x.joined
        ]
        return Branch(x.condition, then, otherwise, joined, x.number)


def _is_wide(x: Operand) -> bool:
    return x.type.element == I64.element and x.type.lanes == 1


def _step(carried: Carried) -> int | None:
    """Return the constant that each iteration adds to a 64-bit loop-carried variable; None for a
    variable that is updated in another way."""
    following, variable = carried.next, carried.variable
    if not isinstance(following, Instruction) or following.operation is not instr.ADD:
        return None
    if not _is_wide(variable) or following.operands[0] is not variable:
        return None
    step = following.operands[1]
    return int(step.number) if isinstance(step, Constant) else None


def _product(a: _Bounds, b: _Bounds) -> _Bounds:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _quotient(a: _Bounds, b: _Bounds) -> _Bounds | None:
    return (a[0] // b[1], a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else None


def _remainder(a: _Bounds, b: _Bounds) -> _Bounds | None:
    return (0, min(a[1], b[1] - 1)) if a[0] >= 0 and b[0] > 0 else None


_ARITHMETIC: Mapping[Operation, _Make] = {
    instr.ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    instr.SUB: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    instr.MUL: _product,
    instr.UDIV: _quotient,
    instr.UREM: _remainder,
    instr.SELECT: lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
}
_MATH: Mapping[str, _Make] = {
    "smin": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "smax": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}
# The bounds of a sign or zero extension, which now extends to 32 bits instead of 64.
_BY_NARROW = {
    (instr.SEXT, "i8"): (-(1 << 7), (1 << 7) - 1),
    (instr.SEXT, "i16"): (-(1 << 15), (1 << 15) - 1),
    (instr.ZEXT, "i1"): (0, 1),
    (instr.ZEXT, "i8"): (0, (1 << 8) - 1),
    (instr.ZEXT, "i16"): (0, (1 << 16) - 1),
}
