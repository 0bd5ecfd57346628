"""Transposition in registers: squares of elements are loaded as vectors along one axis and stored
as vectors along another."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.intrinsics import vector_axis
from farrier.ir.expr import Buffer, MemoryScope
from farrier.ir.tensor import Stage
from farrier.schedule import Schedule

SMALLEST = 4  # The least extents that are transposed as squares of vectors.


def turn_squares(
    schedule: Schedule, stage: Stage, across: str, lane: str, buffers: Sequence[Buffer], width: int
) -> list[str]:
    """Tile the nest of `stage`, which stores along the axis `lane`, by squares of `width` × `width`
    elements. For each of `buffers`, which are contiguous along the axis `across`, the rows of a
    square are loaded as vectors. Return the loops around the squares, outermost first.

    before:  for i: for k:  t[k, i] = a[i, k]
    after:   for columns, lanes:
                 rows[i] = a[lanes + i, columns : columns + width]
                 for column, lane:  t[columns + column, lanes + lane] = rows[lane][column]
    """
    name = stage.buffer.name
    outer = [f"{name}_{axis.name}" for axis in stage.axes]
    inner = []
    for axis, part in ((across, "column"), (lane, "lane")):
        loop = f"{name}_{axis}"
        chunk, rest = schedule.split(loop, width, f"{name}_{part}s", f"{name}_{part}")
        outer[outer.index(loop)] = chunk
        inner.append(rest)
    schedule.reorder(*outer, *inner)
    for number, buffer in enumerate(buffers):
        rows = f"{name}_rows{number or ''}"
        schedule.cache_read(buffer.name, outer[-1], rows)
        schedule.set_scope(rows, MemoryScope.REGISTER)
        loops = [f"{rows}_{axis}" for axis in range(len(buffer.shape))]
        along = loops.pop(vector_axis(buffer))
        schedule.reorder(*loops, along)
        schedule.vectorize(along)
        for loop in loops:
            schedule.unroll(loop)
    schedule.unroll(inner[0])
    schedule.vectorize(inner[1])
    return outer
