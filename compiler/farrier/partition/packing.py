"""Pack memory blocks of known sizes: blocks that are not alive at the same time share bytes."""

from __future__ import annotations

import bisect
import dataclasses
import random
from collections.abc import Iterable, Mapping, Sequence

from farrier.ir.dim import Extent, ceildiv, number, typical

ALIGNMENT = 64  # In bytes: a cache line, and the widest vector.
_MOST_ATTEMPTS = 100
_PAIRS = 5_000_000  # The most pairs of blocks that are compared in all attempts.


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """A block of memory that is alive from step `first` to step `last`, both inclusive."""

    name: str
    nbytes: Extent
    first: int
    last: int


def meet(first: Block, second: Block) -> bool:
    """Check whether two blocks are alive at the same step."""
    return first.first <= second.last and second.first <= first.last


def pack_blocks(blocks: Sequence[Block]) -> tuple[dict[str, int], int]:
    """Find offsets for blocks of known sizes, such that blocks that are alive at the same step do
    not overlap. Return the offsets by name, and the total number of bytes.

    Blocks are placed greedily, the largest first, each into the smallest gap that has room
    (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, section
    5.2). As long as the total is larger than the bytes that are alive at once, other orders are
    tried. At first, the blocks with the highest ends move to the front of the order (Joslin and
    Clements, "Squeaky Wheel Optimization", 1999). In the second half of the attempts, single blocks
    of the best order change their position; every other time it is a block with the highest end.
    """
    order = sorted(blocks, key=lambda b: (-typical(b.nbytes), b.first, b.name))
    least = alive_at_once(blocks)
    offsets, reach = _placed_in(order)
    best_order, best, total = order, offsets, reach
    attempts = _attempts(len(blocks))
    rng = random.Random(0)  # The seed is fixed, so the plan is the same each time.
    for attempt in range(attempts):
        if total == least:
            break
        if attempt < attempts // 2:
            top = {block.name for block in _highest(order, offsets, reach)}
            order = sorted(order, key=lambda b: b.name not in top)
        else:
            among = best_order if rng.random() < 0.5 else _highest(best_order, best, total)
            moved = rng.choice(among)
            order = [block for block in best_order if block is not moved]
            order.insert(rng.randrange(len(blocks)), moved)
        offsets, reach = _placed_in(order)
        if reach <= total:
            best_order, best, total = order, offsets, reach
    return best, total


def _highest(order: Sequence[Block], offsets: Mapping[str, int], reach: int) -> list[Block]:
    """Return the blocks whose end is the end of the whole memory, `reach`."""
    return [b for b in order if offsets[b.name] + number(aligned(b.nbytes)) == reach]


def _attempts(blocks: int) -> int:
    """Return the number of orders to try for this number of blocks, which takes about a second."""
    return min(_MOST_ATTEMPTS, _PAIRS // max(blocks, 1) ** 2)


def _placed_in(order: Sequence[Block]) -> tuple[dict[str, int], int]:
    """Place the blocks in this order, each into the smallest gap; return offsets by name, and the
    total bytes."""
    offsets: dict[str, int] = {}
    placed: list[tuple[int, int, Block]] = []  # As (offset, end, block), sorted by offset.
    total = 0
    for block in order:
        size = number(aligned(block.nbytes))
        overlapping = (
            (start, end)
            for start, end, other in placed
            if other.first <= block.last and block.first <= other.last
        )
        offset = _best_gap(overlapping, size)
        offsets[block.name] = offset
        total = max(total, offset + size)
        bisect.insort(placed, (offset, offset + size, block), key=lambda item: item[0])
    return offsets, total


def _best_gap(taken: Iterable[tuple[int, int]], size: int) -> int:
    """Return the start of the smallest gap between the ranges `taken` that has room for `size`
    bytes. The ranges are sorted by their start."""
    best: tuple[int, int] | None = None
    reach = 0
    for start, end in taken:
        gap = start - reach
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, reach)
        reach = max(reach, end)
    return best[1] if best is not None else reach


def alive_at_once(blocks: Sequence[Block]) -> int:
    """Return the largest number of bytes alive at any step, at the typical sizes."""
    return busiest_step(blocks)[0]


def busiest_step(blocks: Sequence[Block]) -> tuple[int, int]:
    """Return the largest number of bytes alive at any step, at the typical sizes, and the first
    such step."""
    change: dict[int, int] = {}
    for block in blocks:
        size = typical(aligned(block.nbytes))
        change[block.first] = change.get(block.first, 0) + size
        change[block.last + 1] = change.get(block.last + 1, 0) - size
    alive = most = busiest = 0
    for step in sorted(change):
        alive += change[step]
        if alive > most:
            most, busiest = alive, step
    return most, busiest


def aligned(nbytes: Extent, alignment: int = ALIGNMENT) -> Extent:
    return ceildiv(nbytes, alignment) * alignment
