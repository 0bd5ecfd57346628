"""The declaration of dot-product instructions: the dtypes of their factors, and the emitter of
their code.

    total[l] = total[l] + sum(a[g] * b[l, g] for g in axes(group))        for each lane l

`a` and `b` are groups of `group` adjacent elements, which together are as wide as one total. A loop
of the kind `dot` over such products is emitted as one such instruction; if the target declares none
that fits, the products are computed one by one.
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

# (writer, lanes, total, a, b) -> the new total. `a` and `b` have one group in each lane, as i32.
EmitDot: TypeAlias = Callable[[Writer, int, Operand, Operand, Operand], Operand]


@dataclasses.dataclass(frozen=True, slots=True)
class Dot:
    """A dot-product instruction for vectors of `lanes` totals (any of these numbers). If `parts` is
    not 0, each group is first unpacked into `parts` registers by one instruction each, and each
    register is then multiplied by one instruction. If it is 0, groups are multiplied as they lie in
    memory."""

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
    """Return the byte-sized dtypes in which elements of `dtype` can be stored with unchanged
    values, best first. An unsigned integer with fewer than 8 bits can be stored as u8 or i8."""
    is_short = dtype.is_integer and dtype.bits < 8 and not dtype.is_signed
    return (DType.U8, DType.I8) if is_short else (dtype,)


def factors_of(store: Store) -> tuple[Load, Load] | None:
    """Return the two factors of a store of the form c[i] = c[i] + a[j] * b[k], where a and b may be
    cast to the dtype of c; None for any other store."""
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
