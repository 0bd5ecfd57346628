"""The schedule of a sum of products in tile registers: the choice of tiles, and the loops around
them.

The sums of a block of tiles are kept in tile registers, and then stored to memory of the thread for
the epilogue.

    for each tile:                   sum[tile] = 0
    for a step of the reduction:     sum[tile] += rows[k] x lanes[k], for each tile
    for each tile:                   copy[tile] = sum[tile]
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from farrier.intrinsics import TileProduct
from farrier.ir.expr import Binary, Cast, MemoryScope, Reduce, Var
from farrier.ir.types import Layout
from farrier.schedule import Schedule
from farrier.space.operations import operations
from farrier.space.space import Floats
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units.contraction import (
    Contraction,
    extent_of,
    factor_of,
    innermost_axis,
    volume,
    window_along,
)
from farrier.targets.cpu.units.dot_products import neighbours
from farrier.targets.cpu.units.tile_unit import TileUnit, row_counts


def find_unit(contraction: Contraction, target: CpuTarget) -> TileUnit | None:
    """Return the tile unit that multiplies the operands of a contraction; None if the target has
    none, or if the contraction does not divide into its tiles."""
    point, lane = contraction.broadcast_load, contraction.vector_load
    units = target.units_of(point.buffer.dtype, lane.buffer.dtype)
    return next((unit for unit in units if _fits(contraction, unit.product)), None)


def _fits(contraction: Contraction, product: TileProduct) -> bool:
    """Check whether a contraction divides into the tiles of a product."""
    body = contraction.stage.body
    assert isinstance(body, Reduce)
    point = Cast(product.total, contraction.broadcast_load)
    is_left = isinstance(body.body, Binary) and body.body.left == point
    if contraction.padded or contraction.depthwise or not is_left:
        return False
    if contraction.stage.buffer.dtype is not product.total:
        return False
    return bool(tiled_axes(contraction)[1] and depth_of(contraction, product)[1])


def tiled_axes(contraction: Contraction) -> tuple[str, str]:
    """Return the axis along which a block has several lines of tiles, and the axis of a tile's
    rows; "" for a missing axis."""
    points = [axis for axis in contraction.points if extent_of(contraction.stage, axis) > 1]
    *others, row = points or [""]
    return (others or [""])[-1], row if window_along(contraction, row) else ""


def depth_of(contraction: Contraction, product: TileProduct) -> tuple[str, int]:
    """Return the reduced axis along which one instruction sums, and the number of elements along
    this axis that it sums. Return ("", 0) if these elements are not contiguous in memory."""
    for depth in product.depths:
        axis = neighbours(contraction, contraction.broadcast_load, depth)
        if axis is not None and factor_of(contraction.stage, axis) % depth == 0:
            return axis, depth if Var(axis) in contraction.vector_load.indices else 0
    return "", 0


@dataclasses.dataclass(frozen=True)
class TiledProduct:
    """The sum of a contraction in tile registers. The contraction's epilogue begins with the copy
    of the sum to memory. The names of new loops begin with `prefix`."""

    contraction: Contraction
    unit: TileUnit
    prefix: str = ""

    @property
    def product(self) -> TileProduct:
        return self.unit.product

    @functools.cached_property
    def tiled(self) -> tuple[str, str]:
        """The axis along which a block has several lines of tiles ("" if there is none), and the
        axis of a tile's rows."""
        return tiled_axes(self.contraction)

    @functools.cached_property
    def depth(self) -> tuple[str, int]:
        """The reduced axis along which an instruction sums, and the number of elements that it
        sums."""
        return depth_of(self.contraction, self.product)

    @property
    def axis(self) -> str:
        """The reduced axis along which groups of elements are contiguous in the tiles of the vector
        operand."""
        return self.depth[0]

    @property
    def group(self) -> int:
        """The number of elements along `axis` that are contiguous."""
        return self.product.group

    @property
    def rows(self) -> tuple[int, ...]:
        """The possible numbers of rows of a tile."""
        return row_counts(self.product, extent_of(self.contraction.stage, self.tiled[1]))

    @property
    def row_bytes(self) -> int:
        """The bytes of a row that one instruction reduces."""
        return self.depth[1] * self.product.left.nbytes

    def cycles(
        self, points: Floats, rows: Floats, vectors: Floats, tiles: int = 1
    ) -> tuple[Floats, Floats, Floats]:
        """Return three costs of a block in cycles: multiplying, loading the operands from the
        first-level cache, and storing the results. The block is a grid of tiles: `points` tiles of
        `rows` rows each down, and `vectors` vectors across, each `tiles` tiles wide."""
        unit, depth, lanes = self.unit, self.depth[1], vectors * tiles
        steps = volume(self.contraction.stage, self.contraction.reduction) / depth
        join = unit.join_cycles * self.row_bytes
        multiply = steps * points * (lanes * unit.cycles(rows, self.row_bytes) + join)
        of_lanes = lanes * depth / self.product.group
        of_points = points * rows * -(-self.row_bytes // unit.load_bytes)
        loads = steps * (of_points + of_lanes) * unit.load_cycles
        vector = unit.finish_cycles + 0.5 * operations(self.contraction.epilogue)
        finish = points * vectors * (tiles * unit.store_cycles + rows * vector)
        finish += unit.block_cycles
        return multiply, loads, finish

    def place(self, schedule: Schedule, loop: str, rows: int, width: int) -> list[str]:
        """Compute the sum and its copy within `loop`, by tiles of `rows` rows; the copy has rows of
        `width` lanes. Return the loops over the steps of the reduction, outermost first."""
        total, copy = self.contraction.stage.buffer.name, self.contraction.epilogue[0].buffer.name
        for name in (copy, total):
            schedule.compute_whole_at(name, loop)
            self._lay_out_lanes(schedule, name, width)
        schedule.set_scope(total, MemoryScope.REGISTER)
        steps, within = self._order_reduction(schedule)
        self._tile(schedule, f"{total}_init", "zero", rows)
        self._tile(schedule, total, "sum", rows, steps, within)
        self._tile(schedule, copy, "copy", rows)
        return steps

    def tensorize(self, schedule: Schedule, rows: int) -> None:
        """Replace the loops over the tiles, which `place` has created, by tensor intrinsics. The
        layouts and memory scopes of the operands must not change afterwards."""
        product = self.product
        schedule.tensorize(f"{self.prefix}zero_row", product.zero_name(rows))
        schedule.tensorize(f"{self.prefix}sum_row", product.product_name(rows, self.depth[1]))
        schedule.tensorize(f"{self.prefix}copy_row", product.store_name(rows))

    def _lay_out_lanes(self, schedule: Schedule, buffer: str, width: int) -> None:
        """Change the layout of a buffer with a block's results: split the axis of the lanes into
        blocks of `width`, innermost, so that the vectors of a tile are successive rows in
        memory."""
        lane, rank = innermost_axis(self.contraction.stage), len(self.contraction.stage.axes)
        if lane != rank - 1:
            schedule.transform_layout(buffer, Layout.blocked(rank, lane, width))

    def _order_reduction(self, schedule: Schedule) -> tuple[list[str], str]:
        """Split the loops of the reduction into steps of one instruction. Return the loops over the
        steps, and the loop within one instruction."""
        prefix, (axis, depth) = self.contraction.stage.buffer.name, self.depth
        names = f"{self.prefix}step", f"{self.prefix}product"
        step, within = schedule.split(f"{prefix}_{axis}", depth, *names)
        taps = [f"{prefix}_{tap}" for tap in self.contraction.reduction if tap != axis]
        return [step, *taps], within

    def _tile(
        self,
        schedule: Schedule,
        prefix: str,
        short: str,
        rows: int,
        steps: Sequence[str] = (),
        product: str = "",
    ) -> None:
        """Split one of the block's loop nests, whose loops have names that begin with `prefix`,
        into tiles. The loops `steps` are outside of the tiles, and the loop `product` is inside
        them. The loop over the tiles' rows is named `short` + "_row"."""
        contraction, short = self.contraction, f"{self.prefix}{short}"
        line, row = self.tiled
        axes = (axis.name for axis in contraction.stage.axes)
        others = [
            f"{prefix}_{axis}" for axis in axes if axis not in (*self.tiled, contraction.lane)
        ]
        tiles = [f"{prefix}_{line}"] if line else []
        split, in_tile = schedule.split(f"{prefix}_{row}", rows, f"{short}_tile", f"{short}_row")
        vector, lane = schedule.split(
            f"{prefix}_{contraction.lane}", self.product.lanes, f"{short}_vector", f"{short}_lane"
        )
        tiles = [vector, *tiles, split] if self.unit.by_lanes else [*tiles, split, vector]
        within = [in_tile, lane, product] if product else [in_tile, lane]
        schedule.reorder(*others, *steps, *tiles, *within)
        for tile in tiles:
            schedule.unroll(tile)
