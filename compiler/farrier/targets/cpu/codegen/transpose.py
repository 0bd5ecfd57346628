"""Columns of a square of vectors, by shuffles of pairs: log2(n) rounds of n shuffles for all n."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.targets.cpu.codegen.builder import Builder
from farrier.targets.cpu.codegen.text import Value, type_of, vector


def column(builder: Builder, rows: Sequence[Value], number: int, lanes: int) -> Value:
    """Lane `number` of every row, in a value of `lanes` lanes; those beyond the rows are poison.

    Every round exchanges between rows i and i + h the halves of their blocks of 2·h lanes. All
    columns of the same rows share their instructions: the builder knows them by their text.
    """
    size = max(lanes, 1 << (len(rows) - 1).bit_length(), *(row.lanes for row in rows))
    dtype = rows[0].dtype
    kind = type_of(dtype, size)
    square = [_resized(builder, row, size).text for row in rows]
    square += ["poison"] * (size - len(rows))
    half = size // 2
    while half:
        low = [n if not n & half else n - half + size for n in range(size)]
        high = [n + half if not n & half else n + size for n in range(size)]
        for first in (n for n in range(size) if not n & half):
            a, b = square[first], square[first + half]
            if a != "poison" or b != "poison":
                square[first] = _shuffled(builder, kind, a, b, low)
                square[first + half] = _shuffled(builder, kind, a, b, high)
        half //= 2
    return _resized(builder, Value(square[number], dtype, size), lanes)


def _resized(builder: Builder, value: Value, lanes: int) -> Value:
    """The first lanes of a value, or all of them and poison."""
    if value.lanes == lanes:
        return value
    order = [n if n < value.lanes else -1 for n in range(lanes)]
    text = _shuffled(builder, value.type, value.text, "poison", order)
    return Value(text, value.dtype, lanes)


def _shuffled(builder: Builder, kind: str, a: str, b: str, order: list[int]) -> str:
    chosen = ", ".join("i32 poison" if n < 0 else f"i32 {n}" for n in order)
    mask = f"{vector('i32', len(order))} <{chosen}>"
    return builder.pure(f"shufflevector {kind} {a}, {kind} {b}, {mask}")
