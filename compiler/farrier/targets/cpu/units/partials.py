"""The vectorization of reductions along the reduced axis: vectors of partial results, which are
combined at the end of the row."""

from __future__ import annotations

from farrier.ir.dim import typical
from farrier.ir.expr import Axis, MemoryScope
from farrier.ir.substitute import loads, variables
from farrier.ir.tensor import Stage
from farrier.schedule import Schedule
from farrier.targets.cpu.units.nests import exact_extents


def reduce_on_lanes(schedule: Schedule, stage: Stage, width: int, partials: int) -> None:
    """Vectorize a reduction along the reduced axis that it reads contiguously; do nothing if there
    is none. The reduction keeps `partials` vectors of partial results in registers, and combines
    them and their lanes at the end.

    before:  for i: for r:  sum[i] = sum[i] + x[i, r]
    after:   for i:
                 for r_o, lane:  part[lane] = part[lane] + x[i, r_o * width + lane]
                 for lane:       sum[i] = sum[i] + part[lane]
    """
    name, along = stage.buffer.name, _contiguous_axis(stage)
    if along is None:
        return
    extents = exact_extents(schedule.function)
    loop = f"{name}_{along.name}"
    others = [f"{name}_{axis.name}" for axis in stage.reduced_axes if axis is not along]
    length = typical(along.extent)
    if length <= width and isinstance(along.extent, int):
        if others:
            schedule.reorder(*others, loop)
        schedule.vectorize(loop)
        return
    partials = max(min(partials, length // width), 1)
    step, part = schedule.split(loop, width * partials)
    buffer = f"{name}_part"
    schedule.rfactor(part, buffer)
    # Registers have no addresses, so only loops that have a single iteration at all sizes may be
    # inside.
    rows = [axis.name for axis in stage.axes if extents[f"{name}_{axis.name}"] != 1]
    if rows:
        schedule.compute_at(buffer, f"{buffer}_{name}_{rows[-1]}")
    vector, lanes = schedule.split(part, width)
    schedule.reorder(*others, step, vector, lanes)
    first, first_lanes = schedule.split(f"{buffer}_init_{part}", width)
    schedule.unroll(first)
    schedule.vectorize(first_lanes)
    schedule.vectorize(f"{buffer}_{part}")
    schedule.vectorize(lanes)
    schedule.unroll(vector)
    schedule.set_scope(buffer, MemoryScope.REGISTER)


def _contiguous_axis(stage: Stage) -> Axis | None:
    """Return the reduced axis along which a stage reads adjacent elements; None if there is
    none."""
    last = set().union(
        *(variables(load.indices[-1]) for load in loads(stage.body) if load.indices), set()
    )
    return next((axis for axis in stage.reduced_axes if axis.name in last), None)
