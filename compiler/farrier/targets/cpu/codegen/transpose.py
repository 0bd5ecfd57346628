"""Columns of a square of vectors, by shuffles of pairs: log2(n) rounds of n shuffles for all n."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.ir import instr
from farrier.ir.instr import Operand
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.values import Value, type_of


def column(builder: Builder, rows: Sequence[Value], number: int, lanes: int) -> Value:
    """Lane `number` of every row, in a value of `lanes` lanes; those beyond the rows are poison.

    Every round exchanges between rows i and i + h the halves of their blocks of 2·h lanes. All
    columns of the same rows share their instructions, as the builder makes equal ones one.
    """
    size = max(lanes, 1 << (len(rows) - 1).bit_length(), *(row.lanes for row in rows))
    dtype = rows[0].dtype
    unset: Operand = instr.poison(type_of(dtype, size))
    square = [_resized(builder, row, size).operand for row in rows]
    square += [unset] * (size - len(rows))
    half = size // 2
    while half:
        low = [n if not n & half else n - half + size for n in range(size)]
        high = [n + half if not n & half else n + size for n in range(size)]
        for first in (n for n in range(size) if not n & half):
            a, b = square[first], square[first + half]
            if a is not unset or b is not unset:
                square[first] = builder.shuffle(a, b, low)
                square[first + half] = builder.shuffle(a, b, high)
        half //= 2
    return _resized(builder, Value(square[number], dtype, size), lanes)


def _resized(builder: Builder, value: Value, lanes: int) -> Value:
    """The first lanes of a value, or all of them and poison."""
    if value.lanes == lanes:
        return value
    order = [n if n < value.lanes else -1 for n in range(lanes)]
    return Value(builder.shuffle(value.operand, None, order), value.dtype, lanes)
