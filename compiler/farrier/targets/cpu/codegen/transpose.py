"""The transposition of a square of vectors by pairwise shuffles: n columns take log2(n) rounds of n
shuffles."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.ir import instr
from farrier.ir.instr import Operand
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.values import Value, type_of


def column(builder: Builder, rows: Sequence[Value], number: int, lanes: int) -> Value:
    """Return the lane `number` of every row as one value with `lanes` lanes. Lanes beyond the
    number of rows are poison.

    Each round swaps halves of blocks of 2·h lanes between rows i and i + h. All columns of the same
    rows share these shuffles, because the builder merges equal instructions.
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
    """Return a value converted to a vector of `lanes` lanes. If it has more lanes, only the first
    are used; if it has fewer, the additional lanes are poison."""
    if value.lanes == lanes:
        return value
    order = [n if n < value.lanes else -1 for n in range(lanes)]
    return Value(builder.shuffle(value.operand, None, order), value.dtype, lanes)
