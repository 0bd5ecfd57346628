"""Arrange memory blocks of symbolic sizes in the order of a packing at the typical sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from farrier.ir.dim import Extent, Symbol, bounds, dim, is_less, symbols, typical
from farrier.partition.packing import Block, aligned, meet, pack_blocks

# A longer height gets a name; chosen so that the heights of small models stay readable.
_MOST_TERMS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Stack:
    """The offsets of blocks for all sizes, and the total number of bytes. Both may contain the
    symbols `tops` in addition to those of the blocks: each top is the maximum of some extents over
    the blocks' symbols and earlier tops."""

    offsets: Mapping[str, Extent]
    nbytes: Extent
    tops: Mapping[Symbol, tuple[Extent, ...]]


def pack(blocks: Sequence[Block]) -> Stack:
    """Return an arrangement in which blocks alive at one step do not overlap at any sizes: blocks
    are packed at the typical sizes, and keep the order of their offsets at other sizes."""
    return stacked(blocks, *packed(blocks))


def packed(blocks: Sequence[Block]) -> tuple[dict[str, int], int]:
    """Return the offsets by name and the total bytes of a packing at the typical sizes."""
    return pack_blocks(
        [dataclasses.replace(block, nbytes=typical(aligned(block.nbytes))) for block in blocks]
    )


def stacked(blocks: Sequence[Block], offsets: Mapping[str, int], nbytes: int) -> Stack:
    """Return an arrangement of the blocks for all sizes, derived from a packing at the typical
    sizes: `offsets` are the offsets in that packing, and `nbytes` is its total size."""
    if all(isinstance(block.nbytes, int) for block in blocks):
        return Stack(offsets, nbytes, {})
    return _in_order(sorted(blocks, key=lambda b: (offsets[b.name], typical(b.nbytes), b.name)))


def _in_order(blocks: Sequence[Block]) -> Stack:
    """Place each block directly above the earlier blocks that are alive with it. The order of
    offsets then is the same at all sizes; if `blocks` are in the order of a packing, they are as
    close as in that packing."""
    offsets: dict[str, Extent] = {}
    ends: dict[str, Extent] = {}
    # Blocks with another block above them, whose ends do not count for the total.
    covered: set[str] = set()
    heights = _Heights()
    for position, block in enumerate(blocks):
        below: list[Block] = []
        for other in reversed(blocks[:position]):
            # A block below another block that is alive with both ends below that one's end.
            if meet(other, block) and not any(meet(other, above) for above in below):
                below.append(other)
        offsets[block.name] = heights.top([ends[other.name] for other in below])
        ends[block.name] = offsets[block.name] + aligned(block.nbytes)
        covered.update(other.name for other in below)
    total = heights.top([ends[b.name] for b in blocks if b.name not in covered])
    return Stack(offsets, total, heights.tops)


class _Heights:
    """The offsets at which blocks start: each the maximum of the ends of the blocks below.

    If several ends may be the maximum, or the end is a long sum, the offset becomes a new symbol of
    `tops`: otherwise every offset would contain those below it, and time and code size would grow
    with the product of their numbers.
    """

    def __init__(self) -> None:
        self.tops: dict[Symbol, tuple[Extent, ...]] = {}
        self._names: dict[tuple[Extent, ...], Extent] = {}

    def top(self, ends: Iterable[Extent]) -> Extent:
        """Return the maximum of the extents; 0 for an empty sequence."""
        highest: list[Extent] = []
        for end in dict.fromkeys(ends):
            if not any(self._reaches(other, end) for other in highest):
                highest = [other for other in highest if not self._reaches(end, other)] + [end]
        if not highest:
            return 0
        if len(highest) == 1 and _is_short(highest[0]):
            return highest[0]
        key = tuple(highest)
        if key not in self._names:
            self._names[key] = self._named(key)
        return self._names[key]

    def _named(self, ends: tuple[Extent, ...]) -> Extent:
        """Return a symbol that stands for the maximum of the extents `ends`."""
        low, high = (max(bound) for bound in zip(*map(bounds, ends), strict=True))
        named = dim(f"top.{len(self.tops)}", low, high, max(map(typical, ends)))
        self.tops |= dict.fromkeys(symbols((named,)), ends)
        return named

    def _reaches(self, end: Extent, other: Extent) -> bool:
        """Check whether a quick test proves `end >= other` for all sizes."""
        more = end - other
        if any(symbol in self.tops for symbol in symbols((more,))):
            return bounds(more)[0] >= 0
        return is_less(other, end + 1)


def _is_short(extent: Extent) -> bool:
    return isinstance(extent, int) or len(extent.terms) <= _MOST_TERMS
