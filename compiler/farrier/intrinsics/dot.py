"""The declaration of a machine's dot product: its factors, and the code that performs it.

    total[l] = total[l] + sum(a[g] * b[l, g] for g in axes(group))        for each lane l

`a` and `b` are groups of `group` neighbours, together of the width of one element of the total. A
loop of the kind `dot` over such products becomes one; if the target declares no fitting one, the
products are computed one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

from farrier.intrinsics.declare import Writer
from farrier.ir.expr import Binary, BinaryOp, Cast, Expr, Load
from farrier.ir.instr import Operand
from farrier.ir.loop import Store
from farrier.ir.types import DType

# (writer, lanes, total, a, b) -> the new total. `a` and `b` hold one group a lane, as i32.
EmitDot: TypeAlias = Callable[[Writer, int, Operand, Operand, Operand], Operand]


@dataclasses.dataclass(frozen=True, slots=True)
class Dot:
    """One dot product, for vectors of any of `lanes` totals. Each group is first unpacked into
    `parts` registers, by one instruction each, and multiplied by one instruction for each; with 0,
    it is multiplied as it lies in memory."""

    name: str
    group: int
    left: DType
    right: DType
    total: DType
    lanes: tuple[int, ...]
    feature: str  # Required of the target, as in `Target.required_features`.
    emit: EmitDot
    parts: int = 0


def held_as(dtype: DType) -> tuple[DType, ...]:
    """Return the types of bytes that hold an element unchanged, the best first: an unsigned integer
    of less than a byte is a byte of either sign."""
    is_short = dtype.is_integer and dtype.bits < 8 and not dtype.is_signed
    return (DType.U8, DType.I8) if is_short else (dtype,)


def factors_of(store: Store) -> tuple[Load, Load] | None:
    """Return the factors of a store that adds a product of two loads to its own element, converted
    to its dtype if they have another; None for any other store."""
    total, term = _sides(store.value, BinaryOp.ADD)
    left, right = (
        side.operand if isinstance(side, Cast) else side for side in _sides(term, BinaryOp.MUL)
    )
    if total != Load(store.buffer, store.indices):
        return None
    return (left, right) if isinstance(left, Load) and isinstance(right, Load) else None


def _sides(expr: Expr | None, op: BinaryOp) -> tuple[Expr | None, Expr | None]:
    if isinstance(expr, Binary) and expr.op is op:
        return expr.left, expr.right
    return None, None
