"""A unit that multiplies tiles in a core's registers, and its costs for the estimate."""

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
    """A tile product, the registers that it uses, and its costs in cycles of a core."""

    product: TileProduct
    registers: int  # The registers that hold sums and the operands of a step.
    taken: Registers  # The number of these in use.
    blocks: tuple[int, ...]  # The channels of an image in a block.
    sides: tuple[int, ...]  # The counts of rows of tiles, lines and vectors that a block may have.
    by_lanes: bool  # Set if a step holds its rows while one tile of lanes follows another.
    cycles: Cycles
    load_cycles: float  # For a load of at most `load_bytes` from the first-level cache.
    load_bytes: int  # The bytes of one load.
    join_cycles: float  # To assemble the rows of a tile of points, for each byte of a row.
    l2_bytes: float  # Bytes a cycle of tiles from the second-level cache.
    store_cycles: float  # To store a tile to the first-level cache.
    finish_cycles: float  # To move a vector of results from there to its place.
    block_cycles: float  # The overhead of a block.

    def blocks_of(self, outputs: int, lanes: int) -> tuple[int, ...]:
        """Return the possible sizes of channel blocks (out of `blocks`) for a convolution with
        `outputs` output channels and vectors of `lanes`."""
        width = max(self.product.lanes, lanes)
        panels = np.array(self.sides) * width
        return tuple(
            block
            for block in self.blocks
            if panels_cover(panels, outputs, -(-outputs // block) * block).any()
        )

    def rate(self, lanes: int, rows: int, depth: int) -> float:
        """Return the multiply-adds per cycle of a core for `rows` rows with `lanes` lanes and a
        reduction over `depth` contiguous elements; 0 if tiles do not fit."""
        product = self.product
        steps = [step for step in product.depths if depth % step == 0]
        counts = row_counts(product, rows)
        if lanes % product.lanes or not steps or not counts:
            return 0.0
        taken = self.cycles(np.array(counts, np.float64), steps[0] * product.left.nbytes)
        cycles = float(np.min(-(-rows // np.array(counts)) * taken))
        return steps[0] * product.lanes * rows / cycles


def panels_cover(panels: Ints, outputs: int, lanes: int) -> npt.NDArray[np.bool_]:
    """Check for each panel width in `panels` whether whole panels fit the blocked layout of the
    output channels. `outputs` is the number of channels, and `lanes` is that number rounded up to
    whole channel blocks. The width must divide `lanes`, and the panels that cover `outputs` must
    extend to `lanes`."""
    reaches = -(-outputs // panels) * panels >= lanes
    return np.asarray(reaches & (lanes % panels == 0))


def row_counts(product: TileProduct, rows: int) -> tuple[int, ...]:
    """Return the possible numbers of rows of a tile for a product with `rows` rows."""
    return tuple(count for count in product.rows if count <= rows)
