"""Derivation: vectorize the points of a nest without reductions.

before:  for i, j:  y[i, j] = f(x[j, i])
after:   for i:
             for j_o:
                 for vector:  y[i, j_o, vector, lanes] = f(x[j_o, vector, lanes, i])
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.space import Columns, Decisions, Knob
from farrier.targets.cpu.sketch.derivation import Derivation
from farrier.targets.cpu.sketch.narrow import lane_axes
from farrier.targets.cpu.sketch.nest import Nest
from farrier.targets.cpu.sketch.tiling import NONE, Tiling

_VECTORS = (1, 2, 4)


class Lanes(Derivation):
    @classmethod
    def rule(cls) -> RuleId:
        return RuleId("sketch/lanes", version=1)

    @classmethod
    def applies(cls, nest: Nest) -> bool:
        return bool(not nest.sums and nest.long_axes)

    @functools.cached_property
    def _lane_axes(self) -> tuple[int, ...]:
        return lane_axes(self.nest)

    def knobs(self) -> tuple[Knob, ...]:
        return (
            self.knob("lanes", tuple(range(len(self._lane_axes)))),
            self.knob("vectors", _VECTORS),
            self.parallel_knob(),
        )

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        tiling = self.tiling(columns)
        extents = np.array(self.nest.extents)[tiling.lanes]
        allowed: npt.NDArray[np.bool_] = tiling.vectors == 1
        return allowed | ((tiling.vectors - 1) * self.machine.lanes < extents)

    def tiling(self, columns: Columns) -> Tiling:
        vectors = self.column(columns, "vectors")
        return Tiling(
            lanes=np.array(self._lane_axes)[self.column(columns, "lanes")],
            vectors=vectors,
            row=np.full_like(vectors, NONE),
            rows=np.ones_like(vectors),
            parallel=self.column(columns, "parallel"),
            width=self.machine.lanes,
        )

    def schedule(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        lane = self._lane_axes[self.decided(decisions, "lanes")]
        width, loops = self.machine.lanes, self.nest.loops()
        tile, inner = schedule.split(loops[lane], self.decided(decisions, "vectors") * width)
        vector, lanes = schedule.split(inner, width)
        outer = [*(loop for axis, loop in enumerate(loops) if axis != lane), tile]
        schedule.reorder(*outer, vector, lanes)
        schedule.vectorize(lanes)
        schedule.unroll(vector)
        return outer
