"""Derivation: compute tiles of points whose sums stay in registers during the whole reduction.

before:  for i, j:  sum[i, j] = 0
         for i, j, k:  sum[i, j] += a[i, k] * b[k, j]
         for i, j:  y[i, j] = sum[i, j]
after:   for i_o:
             for j_o:                                     a tile: rows of i, vectors of j
                 sum[rows, vectors, lanes] = 0
                 for k:
                     for row, vector:  sum[row, vector, lanes] += a[row, k] * b[k, vector, lanes]
                 for row, vector:  y[row, vector, lanes] = sum[row, vector, lanes]

Rows and vectors are unrolled. An operand that does not depend on one of these is loaded once for
all of them.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from farrier.ir.expr import MemoryScope
from farrier.ir.tensor import Stage
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.space import Columns, Decisions, Knob
from farrier.targets.cpu.sketch.derivation import Derivation
from farrier.targets.cpu.sketch.narrow import lane_axes, row_axes
from farrier.targets.cpu.sketch.nest import Nest
from farrier.targets.cpu.sketch.tiling import NONE, Tiling

_VECTORS = (1, 2, 3, 4)
_ROWS = (1, 2, 3, 4, 6, 8)


class TileRegisters(Derivation):
    @classmethod
    def rule(cls) -> RuleId:
        return RuleId("sketch/tile-registers", version=1)

    @classmethod
    def applies(cls, nest: Nest) -> bool:
        return bool(nest.sums and nest.long_axes)

    @functools.cached_property
    def _lane_axes(self) -> tuple[int, ...]:
        return lane_axes(self.nest)

    @functools.cached_property
    def _row_axes(self) -> tuple[int, ...]:
        return row_axes(self.nest)

    def knobs(self) -> tuple[Knob, ...]:
        extents = self.nest.extents
        longest = max(extents[axis] for axis in self._lane_axes)
        vectors = tuple(v for v in _VECTORS if (v - 1) * self.machine.lanes < longest)
        highest = max(extents[axis] for axis in self._row_axes)
        return (
            self.knob("lanes", tuple(range(len(self._lane_axes)))),
            self.knob("vectors", vectors or (1,)),
            self.knob("row", tuple(range(len(self._row_axes)))),
            self.knob("rows", tuple(r for r in _ROWS if r <= highest) or (1,)),
            self.parallel_knob(),
        )

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        tiling = self.tiling(columns)
        extents = np.array(self.nest.extents)
        fits = self.machine.fits(
            tiling.vectors * len(self.nest.sums), tiling.rows, self.nest.widest
        )
        fits &= (tiling.vectors - 1) * self.machine.lanes < np.maximum(extents[tiling.lanes], 1)
        one_row = (tiling.rows == 1) & (self.column(columns, "row") == 0)
        several = (tiling.rows > 1) & (tiling.row != tiling.lanes)
        several &= tiling.rows <= extents[tiling.row]
        # The smallest tile is always allowed: a space is never empty.
        smallest = one_row & (tiling.vectors == 1)
        allowed: npt.NDArray[np.bool_] = ((one_row | several) & fits) | smallest
        return allowed

    def tiling(self, columns: Columns) -> Tiling:
        rows = self.column(columns, "rows")
        row = np.array(self._row_axes)[self.column(columns, "row")]
        return Tiling(
            lanes=np.array(self._lane_axes)[self.column(columns, "lanes")],
            vectors=self.column(columns, "vectors"),
            row=np.where(rows > 1, row, NONE),
            rows=rows,
            parallel=self.column(columns, "parallel"),
            width=self.machine.lanes,
        )

    def schedule(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        lane = self._lane_axes[self.decided(decisions, "lanes")]
        rows = self.decided(decisions, "rows")
        row = self._row_axes[self.decided(decisions, "row")] if rows > 1 else NONE
        width = self.machine.lanes
        loops = self.nest.loops()
        tile, inner = schedule.split(loops[lane], self.decided(decisions, "vectors") * width)
        vector, lanes = schedule.split(inner, width)
        outer = [loop for axis, loop in enumerate(loops) if axis not in (lane, row)]
        unrolled = [vector]
        if row != NONE:
            above, within = schedule.split(loops[row], rows)
            outer.append(above)
            unrolled.insert(0, within)
        outer.append(tile)
        schedule.reorder(*outer, *unrolled, lanes)
        for total in reversed(self.nest.sums):
            schedule.compute_at(total.buffer.name, tile)
            schedule.set_scope(total.buffer.name, MemoryScope.REGISTER)
        for total in self.nest.sums:
            _tile_sum(schedule, total, lane, row, width)
        schedule.vectorize(lanes)
        schedule.unroll(*unrolled)
        return outer


def _tile_sum(schedule: Schedule, total: Stage, lane: int, row: int, width: int) -> None:
    """Schedule both loop nests of the sum `total` within a tile: its initialization and its
    reduction. The loops over the reduced axes are outside, and the loops over the points of the
    tile are inside and unrolled."""
    reduced = [axis.name for axis in total.reduced_axes]
    for prefix, steps in ((f"{total.buffer.name}_init", []), (total.buffer.name, reduced)):
        loops = [f"{prefix}_{axis.name}" for axis in total.axes]
        single = [loop for axis, loop in enumerate(loops) if axis not in (lane, row)]
        rows = [loops[row]] if row != NONE else []
        vector, lanes = schedule.split(loops[lane], width)
        inner = [f"{prefix}_{name}" for name in steps]
        schedule.reorder(*single, *inner, *rows, vector, lanes)
        schedule.vectorize(lanes)
        schedule.unroll(*rows, vector)
