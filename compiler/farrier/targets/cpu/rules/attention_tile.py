"""Attention whose products are taken in tile registers: see `attention` for what is computed when.

    for part, head in parallel:                          a part of the query rows
        packed keys and values, panels of lanes, groups of neighbours together
        for block:                                   of query rows
            for panel, row:  scores = tiles of queries x keys, copied, scaled, masked
            high, weights, total                     on vectors, row by row
            for panel, row:  context = tiles of weights x values, copied, divided

A block of tiles is `score_high` by `score_vectors` of them for the scores, `high` by `vectors` for
the context. Keys are filled up with zeros until they are whole vectors, and whole rows of weights.
The totals go to memory and back, which dot products on vectors spare: where a tile's products are
not several times theirs, the other rule stays.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from farrier.ir.dim import typical
from farrier.ir.tensor import TensorProgram
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.space.rewrites import accumulate, without_halos
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units.attention_costs import (
    EXPOSED,
    GROUP_CYCLES,
    balance,
    softmax_cycles,
    traffic_cycles,
)
from farrier.targets.cpu.units.attention_nests import (
    align_rows,
    pack_panels,
    part_choices,
    part_rows,
    put_on_lanes,
    tile_context,
    tile_scores,
)
from farrier.targets.cpu.units.attention_program import (
    VALUES,
    RowsKernel,
    in_whole_keys,
    prepared,
    product,
    second,
)
from farrier.targets.cpu.units.contraction import (
    Contraction,
    extent_of,
    innermost_axis,
    volume,
)
from farrier.targets.cpu.units.epilogue import inline_once, keep_values
from farrier.targets.cpu.units.nests import run_parallel
from farrier.targets.cpu.units.operands import PACKED, pack_lane_operand
from farrier.targets.cpu.units.tile_unit import TileUnit
from farrier.targets.cpu.units.tiled_product import TiledProduct, find_unit

RULE = RuleId("attention_tile", version=2)
_BLOCKS = (16, 32, 48, 64, 96, 128, 192, 256)  # query rows
_WORTH = 4.0  # times the products of vectors, that pay for the way of the totals


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space | None:
    """The space of an attention of static extents, whose operands tiles multiply much faster than
    vectors do; None for any other program."""
    kernel = _kernel(without_halos(program), target.machine(threads), target)
    return None if kernel is None else Space.of(RULE, kernel)


def _kernel(
    program: TensorProgram, machine: Machine, target: CpuTarget
) -> AttentionTileKernel | None:
    """The program made ready, or None where it is something else."""
    made = None if program.dims else prepared(program)
    if made is None:
        return None
    scores = product(made.stages[0], ())
    units = [_unit(found, machine, target) for found in (scores, second(made))]
    if None in units:
        return None
    of_scores, of_context = (unit for unit in units if unit is not None)
    made = accumulate(made, made.stages.index(second(made).stage))
    made = accumulate(made, 0)
    made = pack_lane_operand(made, product(made.stages[0], ()), PACKED)
    made = pack_lane_operand(made, second(made), VALUES)
    extent, deep = extent_of(scores.stage, scores.lane), of_context.product.depths
    depth = next((size for size in reversed(deep) if size >= extent), deep[0])
    step = math.lcm(depth, of_scores.product.lanes)
    made = in_whole_keys(made, -(-extent // step) * step)
    kernel = AttentionTileKernel(made, machine, of_scores, of_context)
    fits = all(_fits(one, target) for one in (kernel.scores, kernel.context))
    return kernel if fits and all(kernel.tile_rows) else None


def _fits(tiled: TiledProduct, target: CpuTarget) -> bool:
    """Whether operands and lanes of a product are whole tiles."""
    found = tiled.contraction
    whole = extent_of(found.stage, found.lane) % tiled.product.lanes == 0
    return whole and find_unit(found, target) is tiled.unit


def _unit(found: Contraction, machine: Machine, target: CpuTarget) -> TileUnit | None:
    """What multiplies tiles of a product's operands several times as fast as vectors do."""
    operands = found.broadcast_load.buffer.dtype, found.vector_load.buffer.dtype
    unit = target.unit_of(*operands)
    lanes = extent_of(found.stage, found.lane)
    if unit is None or not machine.lanes <= unit.product.lanes <= lanes:
        return None
    dot = target.dot_of(*operands, found.stage.buffer.dtype)
    of_vectors = machine.lanes * machine.fma_ports * (1 if dot is None else dot.group)
    rows = min(volume(found.stage, found.points), max(unit.product.rows))
    rate = unit.rate(unit.product.lanes, rows, unit.product.depths[0])
    return unit if rate >= _WORTH * of_vectors else None


@dataclasses.dataclass(frozen=True)
class AttentionTileKernel(RowsKernel):
    """Stages: packed keys, a product, its copy and epilogue, the rows', packed values, a product,
    its copy and epilogue."""

    program: TensorProgram
    machine: Machine
    of_scores: TileUnit
    of_context: TileUnit

    @functools.cached_property
    def scores(self) -> TiledProduct:
        return TiledProduct(self.stages.scores, self.of_scores, "score_")

    @functools.cached_property
    def context(self) -> TiledProduct:
        return TiledProduct(self.stages.context, self.of_context)

    @property
    def keys(self) -> int:
        """Keys of a head, with what fills them up."""
        output = self.scores.contraction.output
        return extent_of(output, output.axes[-1].name)

    @functools.cached_property
    def tile_rows(self) -> tuple[int, int]:
        """The rows of a tile of either product; 0 where it has too few."""
        first, last = (max(one.rows, default=0) for one in (self.scores, self.context))
        return first, last

    # -- decisions ------------------------------------------------------------------------------

    def knobs(self) -> tuple[Knob, ...]:
        blocks = (*(b for b in _BLOCKS if b < self.rows), self.rows)
        return (
            Knob("score_vectors", self._sides(self.scores)),
            Knob("score_high", self.of_scores.sides),
            Knob("vectors", self._sides(self.context)),
            Knob("high", self.of_context.sides),
            Knob("block", blocks),
            Knob("parts", part_choices(self.rows, self.heads, self.machine.threads)),
        )

    def _sides(self, tiled: TiledProduct) -> tuple[int, ...]:
        """The counts of vectors that divide the lanes evenly."""
        found = tiled.contraction
        vectors = extent_of(found.stage, found.lane) // tiled.product.lanes
        return tuple(side for side in tiled.unit.sides if vectors % side == 0)

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Both blocks of tiles fit the registers and divide the block of rows; every part has a
        block; a block's scores and weights fit the second-level cache where any do."""
        block, parts = columns["block"], columns["parts"]
        fits: npt.NDArray[np.bool_] = part_rows(self.rows, block, parts) * (parts - 1) < self.rows
        room = int(self.machine.l2_bytes * 0.6 / (self._row_bytes * self.keys))
        fits &= block <= max(room, min(*_BLOCKS, self.rows))
        for tiled, prefix, rows in self._tiled:
            high, vectors = columns[f"{prefix}high"], columns[f"{prefix}vectors"]
            taken = tiled.unit.taken(rows * np.ones_like(high), tiled.row_bytes, high, vectors)
            fits &= taken <= tiled.unit.registers
            fits &= (high * rows <= block) & ((block % (high * rows) == 0) | (block == self.rows))
        return fits

    @property
    def _tiled(self) -> tuple[tuple[TiledProduct, str, int], ...]:
        """Both products, the prefix of their knobs, the rows of a tile."""
        first, last = self.tile_rows
        return (self.scores, "score_", first), (self.context, "", last)

    @property
    def _row_bytes(self) -> int:
        """What one key's score and weight take."""
        score = self.scores.contraction.output.buffer.dtype
        return score.nbytes + self.context.contraction.broadcast_load.buffer.dtype.nbytes

    def estimate(self, columns: Columns) -> Estimate:
        """Both products in tiles; the rows between them; packing; the caches from which each block
        takes keys, values and its own scores."""
        machine = self.machine
        decided = {name: column.astype(np.float64) for name, column in columns.items()}
        ones = np.ones(len(decided["block"]))
        multiply, loads, finish = 0 * ones, 0 * ones, 0 * ones
        for tiled, prefix, rows in self._tiled:
            high, vectors = decided[f"{prefix}high"], decided[f"{prefix}vectors"]
            found = tiled.contraction
            lanes = extent_of(found.stage, found.lane) / (tiled.product.lanes * vectors)
            blocks = self.heads * lanes * np.ceil(self.rows / (rows * high))
            taken = tiled.cycles(high, rows * ones, vectors)
            multiply = multiply + blocks * taken[0]
            loads, finish = loads + blocks * taken[1], finish + blocks * taken[2]
        uneven = balance(self.heads, self.rows, columns, machine.threads)
        softmax = self.heads * softmax_cycles(self.rows, self.keys, ones, machine)
        packing = decided["parts"] * self._pack_cycles()
        operands = (one.contraction.vector_load.buffer for one in (self.scores, self.context))
        head_bytes = sum(typical(buffer.nbytes) for buffer in operands) / self.heads
        score_bytes = self._row_bytes * decided["block"] * self.keys
        beyond = traffic_cycles(head_bytes, score_bytes, ones, machine)
        beyond = self.heads * np.ceil(self.rows / decided["block"]) * beyond
        cycles = np.maximum(multiply, loads) + 0.1 * loads + finish
        cycles = cycles + softmax + packing + EXPOSED * beyond
        scratch = 4.0 * decided["block"] * self.keys * machine.threads / machine.memory_bandwidth
        seconds = (cycles / machine.hertz / machine.threads + scratch) * uneven
        terms = {
            "compute": multiply / machine.hertz,
            "load": loads / machine.hertz,
            "l2": beyond / machine.hertz,
            "memory": scratch,
            "overhead": machine.fork_join + (finish + softmax + packing) / machine.hertz,
            "tiles": self.heads * decided["parts"],
            "balance": uneven,
        }
        return Estimate(seconds + machine.fork_join, terms)

    def _pack_cycles(self) -> float:
        """To pack keys and values of all heads once."""
        pairs = zip(GROUP_CYCLES, (self.scores, self.context), strict=True)
        return sum(
            cycles * typical(one.contraction.vector_load.buffer.type.size) / one.group
            for cycles, one in pairs
        )

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        """Blocks of query rows outside; in each the context's tiles, and before them the rows'
        stages and the scores' tiles."""
        schedule = Schedule(self.function)
        scores, context = self.scores.contraction, self.context.contraction
        lanes, (score_rows, rows) = self.machine.lanes, self.tile_rows
        scores_end = inline_once(schedule, scores.epilogue[1:])
        kept = inline_once(schedule, context.epilogue[1:])
        block_rows, width = rows * decisions["high"], self.context.product.lanes
        shared = tile_context(schedule, context, decisions, block_rows, width)
        keep_values(schedule, kept, "vector", innermost_axis(context.stage))
        self.context.place(schedule, "row", rows, width)
        for stage in reversed(self.stages.row_stages):
            schedule.compute_at(stage.buffer.name, "block")
        for stage in self.stages.row_stages:
            put_on_lanes(schedule, stage, lanes)
        schedule.compute_at(scores.output.buffer.name, "block")
        block_rows, width = score_rows * decisions["score_high"], self.scores.product.lanes
        tile_scores(schedule, scores, decisions, block_rows, width)
        keep_values(schedule, scores_end, "score_vector", innermost_axis(scores.stage))
        self.scores.place(schedule, "score_row", score_rows, width)
        for name, tiled, prefix in ((PACKED, self.scores, "score_"), (VALUES, self.context, "")):
            panel = decisions[f"{prefix}vectors"] * tiled.product.lanes
            pack_panels(schedule, self.program.stage(name), shared[-1], panel, lanes, tiled)
        self.context.tensorize(schedule, rows)
        self.scores.tensorize(schedule, score_rows)
        align_rows(schedule, scores, self.stages.row_stages, self.keys, lanes)
        run_parallel(schedule, shared)
        return schedule
