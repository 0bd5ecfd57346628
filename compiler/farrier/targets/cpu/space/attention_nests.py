"""Loops of attention that do not depend on how its products are computed."""

from __future__ import annotations

import numpy as np

from farrier.ir.expr import Reduce
from farrier.ir.tensor import Stage
from farrier.ir.types import DType
from farrier.schedule import Schedule
from farrier.space.machine import Ints
from farrier.targets.cpu.space.contraction import Contraction, extent_of
from farrier.targets.cpu.space.dot_products import Neighbours
from farrier.targets.cpu.space.operands import lay_out_packed, pack, pack_groups
from farrier.targets.cpu.space.partials import reduce_on_lanes

_PARTIALS = 2  # vectors of partial results along a row


def part_rows(rows: int, block: Ints, parts: Ints) -> Ints:
    """Query rows of a part: whole blocks, as many in each."""
    blocks = np.ceil(rows / block)
    whole: Ints = np.ceil(blocks / parts).astype(np.int64) * block
    return whole


def pack_panels(
    schedule: Schedule, stage: Stage, loop: str, panel: int, lanes: int, grouping: Neighbours | None
) -> None:
    """Packs keys or values within each iteration of `loop`, in panels of so many lanes, by vectors
    of `lanes`."""
    schedule.compute_at(stage.buffer.name, loop)
    lay_out_packed(schedule, stage, panel, grouping)
    if grouping is None:
        pack(schedule, stage, lanes)
    else:
        pack_groups(schedule, stage, lanes, grouping)


def put_on_lanes(schedule: Schedule, stage: Stage, lanes: int) -> None:
    """Vectors along a row; of what a row has one of, along the rows."""
    if isinstance(stage.body, Reduce):
        reduce_on_lanes(schedule, stage, lanes, _PARTIALS)
        return
    loop = f"{stage.buffer.name}_{stage.axes[-1].name}"
    schedule.vectorize(schedule.split(loop, lanes)[1])


def align_rows(
    schedule: Schedule, scores: Contraction, stages: tuple[Stage, ...], keys: int, lanes: int
) -> None:
    """Rows of scores and weights of so many keys begin with a cache line each, an odd number of
    vectors apart: a tile's rows then do not compete for the same lines."""
    rank, read = len(scores.stage.axes), extent_of(scores.output, scores.output.axes[-1].name)
    for stage in (scores.output, *stages):
        if len(stage.axes) == rank:  # neither a maximum nor a sum
            line = lanes * DType.F32.nbytes // stage.buffer.dtype.nbytes
            spare = max(extent_of(stage, stage.axes[-1].name) - read, 0)
            vectors = -(-(keys + spare) // line) | 1
            schedule.pad_axis(stage.buffer.name, rank - 1, vectors * line)
