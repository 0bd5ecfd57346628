"""A loop nest for scheduling: one stage that writes to memory, together with the sums that it
reads."""

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
    """A stage without a reduction, together with the reductions (sums) that only this stage reads.
    Each element of the stage reads the elements of these sums with the same indices.

    Axes are numbered: the axes of the stage first, then the axes that a sum reduces.
    """

    stage: Stage
    sums: tuple[Stage, ...] = ()

    @property
    def name(self) -> str:
        return self.stage.buffer.name

    @functools.cached_property
    def extents(self) -> tuple[int, ...]:
        """The extents of the stage's axes, at typical sizes."""
        return tuple(typical(axis.extent) for axis in self.stage.axes)

    @functools.cached_property
    def long_axes(self) -> tuple[int, ...]:
        """The axes of the stage that have more than one point."""
        return tuple(at for at, axis in enumerate(self.stage.axes) if axis.extent != 1)

    @functools.cached_property
    def is_empty(self) -> bool:
        """Check whether some axis has the extent 0 at typical sizes."""
        axes = (*self.stage.axes, *(axis for total in self.sums for axis in total.reduced_axes))
        return any(axis.extent == 0 for axis in axes)

    @functools.cached_property
    def widest(self) -> DType:
        """The element type that determines the lanes of a vector."""
        return max((s.buffer.dtype for s in (self.stage, *self.sums)), key=lambda dtype: dtype.bits)

    @functools.cached_property
    def work(self) -> float:
        """The number of operations at all points, including those of the sums."""
        return sum(
            count_points(s.all_axes) * (operations([s]) + 1.0) for s in (self.stage, *self.sums)
        )

    @functools.cached_property
    def _sum_names(self) -> frozenset[str]:
        """The buffers of the sums, which are kept in registers."""
        return frozenset(total.buffer.name for total in self.sums)

    @functools.cached_property
    def consumed(self) -> list[Access]:
        """The stage's loads, except loads of its sums, and its store."""
        stage = self.stage
        return [*accesses(stage, stage.axes, self._sum_names), store(stage)]

    @functools.cached_property
    def operands(self) -> dict[str, list[Access]]:
        """The loads of each sum, except loads of other sums, by the buffer of the sum."""
        return {
            total.buffer.name: accesses(total, total.all_axes, self._sum_names)
            for total in self.sums
        }

    def loops(self) -> list[str]:
        """Return the loops over the stage's axes, outermost first."""
        return [f"{self.name}_{axis.name}" for axis in self.stage.axes]
