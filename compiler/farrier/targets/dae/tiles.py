"""Tiles of a product: how much of it a group of instructions computes.

A *tile* is a part of the results: blocks of channels, rows, columns. Its sums stay in the
scratchpad while *groups* of instructions add the products of some input blocks each: load,
multiply. Two virtual threads compute every other tile; the parts of each in the scratchpads are
apart, so that one loads while the other multiplies.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator

from farrier.space import Decisions, Knob
from farrier.targets.dae.products import Product

_MOST_SIZES = 12  # Values of a knob, at most about.


@dataclasses.dataclass(frozen=True, slots=True)
class Tiling:
    """The extents of a tile, the input blocks of a group, and the virtual threads. The tiles that
    follow each other have the same weights, or `by_points` the same points."""

    blocks: int
    rows: int
    columns: int
    inputs: int
    threads: int
    by_points: int

    @classmethod
    def of(cls, decisions: Decisions) -> Tiling:
        """Return the tiling that decisions are."""
        return cls(**{name: int(value) for name, value in decisions.items()})


def knobs(product: Product) -> tuple[Knob, ...]:
    """Return the decisions of a tiling."""
    return (
        Knob("blocks", parts(product.blocks_out)),
        Knob("rows", parts(product.height)),
        Knob("columns", parts(product.width)),
        Knob("inputs", parts(product.blocks_in)),
        Knob("threads", (2, 1)),
        Knob("by_points", (0, 1)),
    )


@functools.cache
def parts(extent: int) -> tuple[int, ...]:
    """Return sizes of even parts of an extent, the last of which may be smaller; all that divide
    it, and of the others some."""
    sizes = {math.ceil(extent / count) for count in range(1, extent + 1)}
    dividing = [size for size in sizes if extent % size == 0]
    others = sorted(sizes - set(dividing))
    step = max(1, len(others) // max(1, _MOST_SIZES - len(dividing)))
    return tuple(sorted({*dividing, *others[::step]}, reverse=True))


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A part of an axis."""

    first: int
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """A part of the results, in blocks of channels and points."""

    blocks: Span
    rows: Span
    columns: Span


def spans(extent: int, size: int) -> list[Span]:
    """Return the parts of an extent, each of a size but for the last one."""
    return [Span(first, min(size, extent - first)) for first in range(0, extent, size)]


def tiles(product: Product, tiling: Tiling) -> Iterator[Tile]:
    """Yield the tiles in the order in which they are computed."""
    blocks = spans(product.blocks_out, tiling.blocks)
    points = [
        (rows, columns)
        for rows in spans(product.height, tiling.rows)
        for columns in spans(product.width, tiling.columns)
    ]
    if tiling.by_points:
        yield from (Tile(each, *point) for point in points for each in blocks)
    else:
        yield from (Tile(each, *point) for each in blocks for point in points)
