"""Schedules of attention's loop nests that do not depend on how its products are computed."""

from __future__ import annotations

import numpy as np

from farrier.ir.expr import Reduce
from farrier.ir.tensor import Stage
from farrier.ir.types import DType
from farrier.schedule import Schedule
from farrier.space.machine import Ints
from farrier.space.space import Decisions
from farrier.targets.cpu.units.contraction import Contraction, extent_of, volume
from farrier.targets.cpu.units.dot_products import Neighbours
from farrier.targets.cpu.units.operands import lay_out_packed, pack, pack_groups
from farrier.targets.cpu.units.partials import reduce_on_lanes

_PARTS = (1, 2, 4, 8, 16)
_SHARES = 8  # The most parts of heads for each thread.
_PARTIALS = 2  # The number of vectors of partial results along a row.


def part_rows(rows: int, block: Ints, parts: Ints) -> Ints:
    """Return the number of query rows in a part: a multiple of the block size, the same for all
    parts."""
    blocks = np.ceil(rows / block)
    whole: Ints = np.ceil(blocks / parts).astype(np.int64) * block
    return whole


def part_choices(rows: int, heads: int, threads: int) -> tuple[int, ...]:
    """Return the numbers of parts into which a head's query rows may be divided."""
    most = max(_SHARES * threads // heads, 1)
    return tuple(count for count in _PARTS if count <= min(rows, most))


def output_loops(contraction: Contraction) -> dict[str, str]:
    """Return the loops of the nest that writes a product's output, keyed by the axes of the
    product."""
    pairs = zip(contraction.stage.axes, contraction.output.axes, strict=True)
    return {inner.name: f"{contraction.output.buffer.name}_{outer.name}" for inner, outer in pairs}


def split_parts(schedule: Schedule, row: str, rows: int, decisions: Decisions, inner: str) -> None:
    """Split the loop `row` over query rows into three loops: over parts, over the blocks of a part,
    and over the rows of a block. `inner` is the name of the last one."""
    block, parts = np.array([decisions["block"]]), np.array([decisions["parts"]])
    schedule.split(row, int(part_rows(rows, block, parts)[0]), "part", "in_part")
    schedule.split("in_part", decisions["block"], "block", inner)


def tile_context(
    schedule: Schedule, contraction: Contraction, decisions: Decisions, rows: int, width: int
) -> list[str]:
    """Tile the loop nest that writes the context. A tile has `rows` rows and a panel of vectors
    with `width` lanes. Return the loops over parts and heads."""
    loops = output_loops(contraction)
    queries = volume(contraction.stage, contraction.points)
    split_parts(schedule, loops[contraction.points[0]], queries, decisions, "in_block")
    schedule.split("in_block", rows, "row", "in_row")
    schedule.split(loops[contraction.lane], decisions["vectors"] * width, "panel", "in_panel")
    schedule.split("in_panel", width, "vector", "lane")
    shared = ["part", *(loops[axis] for axis in contraction.batch)]
    schedule.reorder(*shared, "block", "panel", "row", "in_row", "vector", "lane")
    schedule.vectorize("lane")
    schedule.unroll("vector")
    return shared


def tile_scores(
    schedule: Schedule, contraction: Contraction, decisions: Decisions, rows: int, width: int
) -> None:
    """Tile the loop nest that writes the scores of a block of query rows. A tile has `rows` rows
    and a panel of vectors with `width` lanes."""
    loops = output_loops(contraction)
    schedule.split(loops[contraction.points[0]], rows, "score_row", "score_in_row")
    panel = decisions["score_vectors"] * width
    schedule.split(loops[contraction.lane], panel, "score_panel", "score_in_panel")
    schedule.split("score_in_panel", width, "score_vector", "score_lane")
    batch = (loops[axis] for axis in contraction.batch)
    inner = ("score_in_row", "score_vector", "score_lane")
    schedule.reorder(*batch, "score_panel", "score_row", *inner)
    schedule.vectorize("score_lane")
    schedule.unroll("score_vector")


def pack_panels(
    schedule: Schedule, stage: Stage, loop: str, panel: int, lanes: int, grouping: Neighbours | None
) -> None:
    """Pack keys or values within each iteration of `loop`, in panels of `panel` lanes, by vectors
    of `lanes`."""
    schedule.compute_at(stage.buffer.name, loop)
    lay_out_packed(schedule, stage, panel, grouping)
    if grouping is None:
        pack(schedule, stage, lanes)
    else:
        pack_groups(schedule, stage, lanes, grouping)


def put_on_lanes(schedule: Schedule, stage: Stage, lanes: int) -> None:
    """Vectorize a stage along its rows, with `lanes` lanes. If each row has a single element,
    vectorize the stage across rows instead."""
    if isinstance(stage.body, Reduce):
        reduce_on_lanes(schedule, stage, lanes, _PARTIALS)
        return
    loop = f"{stage.buffer.name}_{stage.axes[-1].name}"
    schedule.vectorize(schedule.split(loop, lanes)[1])


def align_rows(
    schedule: Schedule, scores: Contraction, stages: tuple[Stage, ...], keys: int, lanes: int
) -> None:
    """Change the layout of scores and weights so that each row of `keys` elements begins at a cache
    line, and successive rows are an odd number of vectors apart. The rows of a tile then do not
    compete for the same cache sets."""
    rank, read = len(scores.stage.axes), extent_of(scores.output, scores.output.axes[-1].name)
    for stage in (scores.output, *stages):
        if len(stage.axes) == rank:  # The stage is not a reduction (maximum or sum).
            line = lanes * DType.F32.nbytes // stage.buffer.dtype.nbytes
            spare = max(extent_of(stage, stage.axes[-1].name) - read, 0)
            vectors = -(-(keys + spare) // line) | 1
            schedule.pad_axis(stage.buffer.name, rank - 1, vectors * line)
