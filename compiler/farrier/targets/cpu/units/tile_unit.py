"""What multiplies tiles in a core's registers, and what that costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.intrinsics import TileProduct
from farrier.space.machine import Ints
from farrier.space.space import Floats

# (rows of a tile, bytes of a row) -> cycles of one product.
Cycles: TypeAlias = Callable[[Floats, int], Floats]
# (rows of a tile, bytes of a row, tiles of points, tiles of lanes) -> registers of a block.
Registers: TypeAlias = Callable[[Ints, int, Ints, Ints], Ints]


@dataclasses.dataclass(frozen=True, slots=True)
class TileUnit:
    """A product of tiles, the registers that hold these, and cycles of a core."""

    product: TileProduct
    registers: int  # that hold totals, and the operands of a step
    taken: Registers  # of these
    blocks: tuple[int, ...]  # channels of an image that lie together
    sides: tuple[int, ...]  # rows of tiles, lines and vectors that a block may have
    by_lanes: bool  # whether a step holds its rows while one tile of lanes follows another
    cycles: Cycles
    load_cycles: float  # of a load, from the first-level cache,
    load_bytes: int  # that brings so many at most
    join_cycles: float  # to put the rows of a tile of points together, for each byte of a row
    l2_bytes: float  # a cycle, of tiles from the second-level cache
    store_cycles: float  # a tile, to the first-level cache
    finish_cycles: float  # a vector of results, from there to its place
    block_cycles: float  # around a block

    def blocks_of(self, outputs: int, lanes: int) -> tuple[int, ...]:
        """Those of `blocks` that so many outputs may lie in, where a vector has `lanes`."""
        width = max(self.product.lanes, lanes)
        panels = np.array(self.sides) * width
        return tuple(
            block
            for block in self.blocks
            if panels_cover(panels, outputs, -(-outputs // block) * block).any()
        )

    def rate(self, lanes: int, rows: int, depth: int) -> float:
        """How many products a core adds up in a cycle, of `rows` rows with `lanes` lanes, where
        `depth` neighbours of a row are reduced; 0 where tiles do not fit them."""
        product = self.product
        steps = [step for step in product.depths if depth % step == 0]
        counts = row_counts(product, rows)
        if lanes % product.lanes or not steps or not counts:
            return 0.0
        taken = self.cycles(np.array(counts, np.float64), steps[0] * product.left.nbytes)
        cycles = float(np.min(-(-rows // np.array(counts)) * taken))
        return steps[0] * product.lanes * rows / cycles


def panels_cover(panels: Ints, outputs: int, lanes: int) -> npt.NDArray[np.bool_]:
    """Whether panels of so many lanes each, as many as `outputs` take, cover `lanes`: the outputs
    and what fills up their last block."""
    reaches = -(-outputs // panels) * panels >= lanes
    return np.asarray(reaches & (lanes % panels == 0))


def row_counts(product: TileProduct, rows: int) -> tuple[int, ...]:
    """The counts of rows that tiles of so many may have."""
    return tuple(count for count in product.rows if count <= rows)
