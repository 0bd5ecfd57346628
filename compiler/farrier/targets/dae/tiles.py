"""The tiling of a kernel: which part of it each group of instructions computes.

A *tile* is a part of the results: a range of channel blocks, rows and columns. Its sums stay in the
scratchpad, while each *group* of instructions loads some input blocks and adds their products. Two
virtual threads compute alternate tiles; each thread has its own part of the scratchpads, so that
one thread can load while the other multiplies.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator

from farrier.space import Decisions, Knob
from farrier.targets.dae.anchor import Anchor

_MOST_SIZES = 12  # The approximate limit of the number of values of a knob.


@dataclasses.dataclass(frozen=True, slots=True)
class Tiling:
    """The extents of a tile (`blocks`, `rows`, `columns`), the input blocks of a group, and the
    number of virtual threads. Successive tiles share their weights, or with `by_points` their input
    points."""

    blocks: int
    rows: int
    columns: int
    inputs: int
    threads: int
    by_points: int

    @classmethod
    def of(cls, decisions: Decisions) -> Tiling:
        """Return the tiling with the values of the decisions."""
        return cls(**{name: int(value) for name, value in decisions.items()})


def knobs(anchor: Anchor) -> tuple[Knob, ...]:
    """Return the knobs of a tiling."""
    return (
        Knob("blocks", parts(anchor.blocks_out)),
        Knob("rows", parts(anchor.height)),
        Knob("columns", parts(anchor.width)),
        Knob("inputs", parts(anchor.blocks_in)),
        Knob("threads", (2, 1)),
        Knob("by_points", (0, 1)),
    )


@functools.cache
def parts(extent: int) -> tuple[int, ...]:
    """Return possible sizes of equal parts of an extent, of which the last part may be smaller: all
    divisors, and some of the other sizes."""
    sizes = {math.ceil(extent / count) for count in range(1, extent + 1)}
    dividing = [size for size in sizes if extent % size == 0]
    others = sorted(sizes - set(dividing))
    step = max(1, len(others) // max(1, _MOST_SIZES - len(dividing)))
    return tuple(sorted({*dividing, *others[::step]}, reverse=True))


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A range along an axis."""

    first: int
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """A tile of the results: ranges of channel blocks, rows and columns."""

    blocks: Span
    rows: Span
    columns: Span


def spans(extent: int, size: int) -> list[Span]:
    """Return the ranges that divide an extent; each has `size` elements, the last one possibly
    fewer."""
    return [Span(first, min(size, extent - first)) for first in range(0, extent, size)]


def tiles(anchor: Anchor, tiling: Tiling) -> Iterator[Tile]:
    """Yield the tiles in the order of computation."""
    blocks = spans(anchor.blocks_out, tiling.blocks)
    points = [
        (rows, columns)
        for rows in spans(anchor.height, tiling.rows)
        for columns in spans(anchor.width, tiling.columns)
    ]
    if tiling.by_points:
        yield from (Tile(each, *point) for point in points for each in blocks)
    else:
        yield from (Tile(each, *point) for each in blocks for point in points)
