"""What multiplies tiles in a core's registers, and what that costs."""

from __future__ import annotations

import dataclasses

import numpy as np

from farrier.intrinsics import TileProduct
from farrier.ir.types import DType
from farrier.space.space import Floats
from farrier.targets import Target


@dataclasses.dataclass(frozen=True, slots=True)
class TileUnit:
    """Products of tiles, the registers that hold these, and cycles of a core."""

    products: tuple[TileProduct, ...]
    registers: int  # that hold totals, and the operands of a step
    row_bytes: int  # of a row of a tile that a register holds
    sides: tuple[int, ...]  # rows of tiles, lines and vectors that a block may have
    by_lanes: bool  # whether a step holds its rows while one tile of lanes follows another
    row_cycles: float  # that a product takes for a row of its tile, whole or not,
    product_cycles: float  # but no less than these,
    depth_cycles: float  # nor than these for each byte of a row that it reduces
    load_cycles: float  # a row of a tile, from the first-level cache
    join_cycles: float  # to put the rows of a tile of points together, for each byte of a row
    l2_bytes: float  # a cycle, of tiles from the second-level cache
    store_cycles: float  # a tile, to the first-level cache
    finish_cycles: float  # a vector of results, from there to its place
    block_cycles: float  # around a block

    def product_of(self, left: DType, right: DType, target: Target) -> TileProduct | None:
        """How the target multiplies tiles of such operands; None where it does not."""
        for product in self.products:
            if (product.left, product.right) == (left, right):
                return product if product.features <= set(target.required_features) else None
        return None

    def cycles(self, rows: Floats | int, row_bytes: int) -> Floats:
        """What a product of tiles of so many rows takes, and of so many bytes a row."""
        least = max(self.product_cycles, self.depth_cycles * row_bytes)
        return np.maximum(rows * self.row_cycles, least)

    def rate(self, product: TileProduct, lanes: int, rows: int, depth: int) -> float:
        """How many products a core adds up in a cycle, of `rows` rows with `lanes` lanes, where
        `depth` neighbours of a row are reduced; 0 where tiles do not fit them."""
        steps = [step for step in product.depths if depth % step == 0]
        counts = row_counts(product, rows)
        if lanes % product.lanes or not steps or not counts:
            return 0.0
        row_bytes = steps[0] * product.left.nbytes
        each = {count: float(self.cycles(count, row_bytes)) for count in counts}
        cycles = min(-(-rows // count) * each[count] for count in counts)
        return steps[0] * product.lanes * rows / cycles


def row_counts(product: TileProduct, rows: int) -> tuple[int, ...]:
    """The counts of rows that tiles of so many may have."""
    return tuple(count for count in product.rows if count <= rows)
