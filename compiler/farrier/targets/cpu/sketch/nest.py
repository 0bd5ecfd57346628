"""The nest of one stage that is written to memory, with the sums that its points read."""

from __future__ import annotations

import dataclasses
import functools

from farrier.ir.dim import typical
from farrier.ir.tensor import Stage
from farrier.ir.types import DType
from farrier.space.operations import count_points, operations
from farrier.targets.cpu.sketch.access import Access, accesses, store


@dataclasses.dataclass(frozen=True)
class Nest:
    """A stage without a reduction, and the reductions that it alone reads, each at its own point.

    Axes are numbered: the axes of the stage first, then the axes that a sum reduces.
    """

    stage: Stage
    sums: tuple[Stage, ...] = ()

    @property
    def name(self) -> str:
        return self.stage.buffer.name

    @functools.cached_property
    def extents(self) -> tuple[int, ...]:
        """The typical extents of the stage's axes."""
        return tuple(typical(axis.extent) for axis in self.stage.axes)

    @functools.cached_property
    def long_axes(self) -> tuple[int, ...]:
        """The axes of the stage that have more than one point."""
        return tuple(at for at, axis in enumerate(self.stage.axes) if axis.extent != 1)

    @functools.cached_property
    def is_empty(self) -> bool:
        """Check whether some loop runs at no size."""
        axes = (*self.stage.axes, *(axis for total in self.sums for axis in total.reduced_axes))
        return any(axis.extent == 0 for axis in axes)

    @functools.cached_property
    def widest(self) -> DType:
        """The element type that decides how many lanes a vector has."""
        return max((s.buffer.dtype for s in (self.stage, *self.sums)), key=lambda dtype: dtype.bits)

    @functools.cached_property
    def work(self) -> float:
        """The operations at all points, those on sums included."""
        return sum(
            count_points(s.all_axes) * (operations([s]) + 1.0) for s in (self.stage, *self.sums)
        )

    @functools.cached_property
    def _sum_names(self) -> frozenset[str]:
        """The buffers of the sums, which are registers of a tile."""
        return frozenset(total.buffer.name for total in self.sums)

    @functools.cached_property
    def consumed(self) -> list[Access]:
        """The loads of the stage, but for those of its sums, and its store."""
        stage = self.stage
        return [*accesses(stage, stage.axes, self._sum_names), store(stage)]

    @functools.cached_property
    def operands(self) -> dict[str, list[Access]]:
        """The loads of each sum, but for those of other sums, by the buffer of the sum."""
        return {
            total.buffer.name: accesses(total, total.all_axes, self._sum_names)
            for total in self.sums
        }

    def loops(self) -> list[str]:
        """Return the loops over the stage's axes, outermost first."""
        return [f"{self.name}_{axis.name}" for axis in self.stage.axes]
