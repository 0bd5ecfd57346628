"""The reduction of large angles modulo pi / 2, with the bits of 2 / pi that each angle needs (M.
Payne, R. Hanek, "Radian reduction for trigonometric functions", 1983).

The reduction is a separate function of the module, which processes one lane at a time
(`support/far_angle.ll`). It is called only for vectors that contain a large angle.
"""

from __future__ import annotations

import functools

from farrier.ir import instr
from farrier.ir.instr import F64, I64, PTR, Function, Operand, Symbol, Text, Type, Variable
from farrier.targets.llvm.builder import Builder

_FAR_ANGLE = Symbol(PTR, "farrier.far_angle", Text("far_angle.ll"))


@functools.cache
def far_angles(kind: Type, near: float) -> Symbol:
    """Return the function that reduces angles of magnitude `near` or more.

    Its arguments are vectors of angles x, of remainders r and of quadrants q. It returns r and q
    with the lanes for which |x| >= `near` replaced: |r| <= pi / 4, and NaN for an infinite angle.
    """
    b, lanes = Builder(), kind.lanes
    arguments = [
        Variable(type_, name) for type_, name in ((kind, "x"), (kind, "r"), (I64.of(lanes), "q"))
    ]
    x, *results = arguments
    parts: list[Operand] = list(results)
    for lane in range(lanes):
        angle = _lane(b, x, lane)
        is_far = b.fcmp("oge", b.math("fabs", angle), instr.number_of(F64, near))
        reduced = b.emit(instr.CALL, instr.struct_of(F64, I64), (_FAR_ANGLE, angle))
        for number, whole in enumerate(parts):
            part = b.choose(is_far, b.part(reduced, number), _lane(b, whole, lane))
            parts[number] = part if lanes == 1 else b.insert(whole, part, lane)
    both: Operand = instr.poison(instr.struct_of(*(part.type for part in parts)))
    for number, part in enumerate(parts):
        both = b.with_part(both, part, number)
    name = f"farrier.far_angles.{lanes}"
    return Symbol(PTR, name, Function(name, arguments, b.body, both))


def _lane(b: Builder, x: Operand, lane: int) -> Operand:
    return x if x.type.lanes == 1 else b.extract(x, lane)
