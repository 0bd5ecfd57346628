"""Recognize matrix products, for which most templates are made, and prepare them for tiling."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from farrier.ir.dim import number
from farrier.ir.expr import Binary, BinaryOp, Buffer, Load, MemoryScope, Reduce, ReduceOp, Var
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType, Layout, PhysicalDim
from farrier.schedule import Schedule

_SUMS = "sums"


class Loops(NamedTuple):
    """The names of loops in a schedule: those of the output, and those of the buffer `sums`, which
    is filled with zeros first."""

    rows: str
    columns: str
    sums: str
    zero_rows: str
    zero_columns: str
    sum_rows: str
    sum_columns: str
    steps: str


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """A matrix product y = f(x @ w) with x of shape [rows, steps], w of shape [steps, columns], and
    f elementwise or the identity. All three sizes are constant; x, w and the sums have one dtype.
    """

    rows: int
    columns: int
    steps: int
    x: Buffer
    w: Buffer
    stages: Sequence[Stage]  # The stage of the sum, followed by the stages of f.

    @classmethod
    def of(cls, program: TensorProgram) -> Product | None:
        """Return the product that a kernel computes; None for any other kernel."""
        stages = program.stages
        match stages:
            case [
                Stage(
                    axes=[m, n],
                    body=Reduce(ReduceOp.SUM, [k], Binary(BinaryOp.MUL, Load(x, a), Load(w, b))),
                ) as first,
                *after,
            ]:
                row, column, step = (Var(axis.name) for axis in (m, n, k))
                is_product = (a, b) == ((row, step), (step, column))
                is_elementwise = all(
                    [axis.extent for axis in stage.axes] == [m.extent, n.extent]
                    and not isinstance(stage.body, Reduce)
                    for stage in after
                )
                sizes = m.extent, n.extent, k.extent
                is_known = all(isinstance(size, int) for size in sizes) and not program.dims
                is_one_dtype = x.dtype is w.dtype is first.buffer.dtype
                is_alone = len(program.outputs) == 1
                if is_product and is_elementwise and is_known and is_one_dtype and is_alone:
                    return cls(number(sizes[0]), number(sizes[1]), number(sizes[2]), x, w, stages)
        return None

    @property
    def dtype(self) -> DType:
        return self.x.dtype

    @property
    def has_constant_weights(self) -> bool:
        """Check whether w is constant, so that it may get another layout when the model is
        compiled."""
        return self.w.scope is MemoryScope.CONSTANT

    def pack(self, schedule: Schedule, width: int) -> None:
        """Change the layout of constant weights to panels of `width` columns; within a panel the
        rows of w follow each other."""
        panels = PhysicalDim(1, width), PhysicalDim(0), PhysicalDim(1, 1, width)
        schedule.transform_layout(self.w.name, Layout(panels))

    def loops(self, schedule: Schedule) -> Loops:
        """Compute the sums in a buffer separate from the output, inline f into one expression, and
        return the names of the loops."""
        first, *after = self.stages
        assert isinstance(first.body, Reduce)
        output, sums = self.stages[-1], first.buffer.name
        (m, n), (k,) = first.axes, first.body.axes
        if not after:
            schedule.cache_write(sums, _SUMS)
            sums = _SUMS
        for stage in after[:-1]:
            schedule.inline(stage.buffer.name)
        rows, columns = (f"{output.buffer.name}_{axis.name}" for axis in output.axes)
        zeros = (f"{sums}_init_{axis.name}" for axis in (m, n))
        return Loops(rows, columns, sums, *zeros, *(f"{sums}_{axis.name}" for axis in (m, n, k)))
