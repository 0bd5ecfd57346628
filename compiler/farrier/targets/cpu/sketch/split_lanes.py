"""Derivation: vectorize a reduction, for nests with too few points to fill the lanes.

before:  for i:  for k:  sum[i] += x[i, k]
after:   for i:
             part[vectors, lanes] = 0
             for k_o:  for vector:  part[vector, lanes] += x[i, k_o, vector, lanes]
             for vector, lanes:  sum[i] += part[vector, lanes]

The partial sums stay in registers. If the reduction is no longer than a vector, its lanes are added
at once.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from farrier.ir.dim import typical
from farrier.ir.expr import MemoryScope
from farrier.ir.tensor import Stage
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.space import Columns, Decisions, Knob
from farrier.targets.cpu.sketch.access import accesses
from farrier.targets.cpu.sketch.derivation import Derivation
from farrier.targets.cpu.sketch.nest import Nest
from farrier.targets.cpu.sketch.tiling import NONE, Tiling

_PARTIALS = (1, 2, 4, 8)  # Vectors: eight hide the latency of additions on two ports.


class SplitLanes(Derivation):
    @classmethod
    def rule(cls) -> RuleId:
        return RuleId("sketch/split-lanes", version=1)

    @classmethod
    def applies(cls, nest: Nest) -> bool:
        return bool(nest.sums) and all(
            any(axis.extent != 1 for axis in total.reduced_axes) for total in nest.sums
        )

    def knobs(self) -> tuple[Knob, ...]:
        longest = max(self._length(total) for total in self.nest.sums)
        partials = tuple(p for p in _PARTIALS if p * self.machine.lanes <= longest)
        return (self.knob("partials", partials or (1,)), self.parallel_knob())

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        partials = self.column(columns, "partials")
        allowed: npt.NDArray[np.bool_] = (partials == 1) | (
            partials * len(self.nest.sums) < self.machine.registers
        )
        return allowed

    def tiling(self, columns: Columns) -> Tiling:
        partials = self.column(columns, "partials")
        heaviest = max(self.nest.sums, key=self._length)
        return Tiling(
            lanes=np.full_like(partials, len(heaviest.axes) + self._axis(heaviest)),
            vectors=partials,
            row=np.full_like(partials, NONE),
            rows=np.ones_like(partials),
            parallel=self.column(columns, "parallel"),
            width=self.machine.lanes,
        )

    def schedule(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        outer = self.nest.loops()
        for total in reversed(self.nest.sums if outer else ()):
            schedule.compute_at(total.buffer.name, outer[-1])
        for total in self.nest.sums:
            partials = self.decided(decisions, "partials")
            _split(schedule, total, self._axis(total), self.machine.lanes, partials)
        return outer

    @functools.cached_property
    def _axes(self) -> dict[str, int]:
        return {total.buffer.name: _best_axis(total) for total in self.nest.sums}

    def _axis(self, total: Stage) -> int:
        """Return the reduced axis, as its number among the reduced axes, along which the lanes of a
        sum run."""
        return self._axes[total.buffer.name]

    def _length(self, total: Stage) -> int:
        return typical(total.reduced_axes[self._axis(total)].extent)


def _best_axis(total: Stage) -> int:
    """Return the reduced axis along which the most operands are contiguous; of several, the
    longest."""
    reduced, spatial = total.reduced_axes, len(total.axes)
    operands = accesses(total, (*total.axes, *reduced), frozenset())

    def rank(axis: int) -> tuple[bool, int, int]:
        together = sum(access.strides[spatial + axis] == 1 for access in operands)
        return reduced[axis].extent != 1, together, typical(reduced[axis].extent)

    return max(range(len(reduced)), key=rank)


def _split(schedule: Schedule, total: Stage, axis: int, width: int, partials: int) -> None:
    name, reduced = total.buffer.name, total.reduced_axes
    loop = f"{name}_{reduced[axis].name}"
    others = [f"{name}_{other.name}" for at, other in enumerate(reduced) if at != axis]
    extent = reduced[axis].extent
    if isinstance(extent, int) and extent <= width:
        if others:
            schedule.reorder(*others, loop)
        schedule.vectorize(loop)
        return
    partials = max(min(partials, typical(extent) // width), 1)
    step, part = schedule.split(loop, width * partials, f"{name}_step", f"{name}_in_step")
    buffer = f"{name}_part"
    schedule.rfactor(part, buffer)
    vector, lanes = schedule.split(part, width, f"{name}_vector", f"{name}_lane")
    schedule.reorder(*others, step, vector, lanes)
    for prefix in (f"{buffer}_init_{part}", f"{buffer}_{part}"):
        outer, inner = schedule.split(prefix, width)
        schedule.vectorize(inner)
        schedule.unroll(outer)
    schedule.vectorize(lanes)
    schedule.unroll(vector)
    schedule.set_scope(buffer, MemoryScope.REGISTER)
