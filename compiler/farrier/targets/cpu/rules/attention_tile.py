"""Rule: attention whose products are computed in tile registers (AMX, for example). The module
`attention` describes the order of computation.

    for part, head in parallel:                          a part of the query rows
        packed keys and values, panels of lanes, groups of neighbours together
        for block:                                   of query rows
            for panel, row:  scores = tiles of queries x keys, copied, scaled, masked
            high, weights, total                     on vectors, row by row
            for panel, row:  context = tiles of weights x values, copied, divided

A block of tiles consists of `score_high` by `score_vectors` tiles for the scores, and `high` by
`vectors` tiles for the context. Keys are padded with zeros to whole vectors, and to whole rows of
weights. Tile registers have to be stored and reloaded as vectors, which dot products avoid; the
rule therefore applies only if tiles multiply several times as fast as vectors.
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
_BLOCKS = (16, 32, 48, 64, 96, 128, 192, 256)  # The numbers of query rows of a block.
# The minimum speed-up over vector products that pays for spilling accumulators to memory.
_WORTH = 4.0


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space | None:
    """Return the schedule space of an attention with static extents, for operands that tile
    registers multiply much faster than vectors do; None for any other program."""
    kernel = _kernel(without_halos(program), target.machine(threads), target)
    return None if kernel is None else Space.of(RULE, kernel)


def _kernel(
    program: TensorProgram, machine: Machine, target: CpuTarget
) -> AttentionTileKernel | None:
    """Return the program prepared for scheduling as an AttentionTileKernel, or None if the rule
    does not apply."""
    program_in_stages = None if program.dims else prepared(program)
    if program_in_stages is None:
        return None
    scores = product(program_in_stages.stages[0], ())
    units = [
        _unit(contraction, machine, target) for contraction in (scores, second(program_in_stages))
    ]
    if None in units:
        return None
    of_scores, of_context = (unit for unit in units if unit is not None)
    program_in_stages = accumulate(
        program_in_stages, program_in_stages.stages.index(second(program_in_stages).stage)
    )
    program_in_stages = accumulate(program_in_stages, 0)
    program_in_stages = pack_lane_operand(
        program_in_stages, product(program_in_stages.stages[0], ()), PACKED
    )
    program_in_stages = pack_lane_operand(program_in_stages, second(program_in_stages), VALUES)
    extent, deep = extent_of(scores.stage, scores.lane), of_context.product.depths
    depth = next((size for size in reversed(deep) if size >= extent), deep[0])
    step = math.lcm(depth, of_scores.product.lanes)
    program_in_stages = in_whole_keys(program_in_stages, -(-extent // step) * step)
    kernel = AttentionTileKernel(program_in_stages, machine, of_scores, of_context)
    fits = all(_fits(tiled, target) for tiled in (kernel.scores, kernel.context))
    return kernel if fits and all(kernel.tile_rows) else None


def _fits(tiled: TiledProduct, target: CpuTarget) -> bool:
    """Check whether the extents of a product are multiples of the tile's extents along the
    reduction and along the lanes."""
    contraction = tiled.contraction
    whole = extent_of(contraction.stage, contraction.lane) % tiled.product.lanes == 0
    return whole and find_unit(contraction, target) is tiled.unit


def _unit(contraction: Contraction, machine: Machine, target: CpuTarget) -> TileUnit | None:
    """Return the tile unit that multiplies a product's operands several times as fast as vectors
    do; None if the target has none."""
    operands = contraction.broadcast_load.buffer.dtype, contraction.vector_load.buffer.dtype
    unit = target.unit_of(*operands)
    lanes = extent_of(contraction.stage, contraction.lane)
    if unit is None or not machine.lanes <= unit.product.lanes <= lanes:
        return None
    dot = target.dot_of(*operands, contraction.stage.buffer.dtype)
    of_vectors = machine.lanes * machine.fma_ports * (1 if dot is None else dot.group)
    rows = min(volume(contraction.stage, contraction.points), max(unit.product.rows))
    rate = unit.rate(unit.product.lanes, rows, unit.product.depths[0])
    return unit if rate >= _WORTH * of_vectors else None


@dataclasses.dataclass(frozen=True)
class AttentionTileKernel(RowsKernel):
    """The stages of an attention, in order: packed keys, the product for the scores, its copy from
    tile registers, its epilogue, the softmax stages, packed values, the product for the context,
    its copy, and its epilogue."""

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
        """The number of keys of a head, including padding."""
        output = self.scores.contraction.output
        return extent_of(output, output.axes[-1].name)

    @functools.cached_property
    def tile_rows(self) -> tuple[int, int]:
        """The rows of a tile in the products for the scores and for the context; 0 if a product has
        too few rows."""
        first, last = (max(tiled.rows, default=0) for tiled in (self.scores, self.context))
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
        """Return the possible widths of a block of tiles, in vectors; a width must divide the lanes
        of the product evenly."""
        contraction = tiled.contraction
        vectors = extent_of(contraction.stage, contraction.lane) // tiled.product.lanes
        return tuple(side for side in tiled.unit.sides if vectors % side == 0)

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Check three conditions for each candidate. Both blocks of tiles must fit in the tile
        registers, and their rows must divide the block of query rows. Each part must contain a
        block. If any block size allows it, the block's scores and weights must fit in the
        second-level cache."""
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
        """Return both products, each with the prefix of its knobs and the rows of a tile."""
        first, last = self.tile_rows
        return (self.scores, "score_", first), (self.context, "", last)

    @property
    def _row_bytes(self) -> int:
        """The bytes that the score and the weight of one key occupy together."""
        score = self.scores.contraction.output.buffer.dtype
        return score.nbytes + self.context.contraction.broadcast_load.buffer.dtype.nbytes

    def estimate(self, columns: Columns) -> Estimate:
        """Estimate the time of each candidate: both products in tiles, the softmax, packing, and
        fetching the keys, values and scores of each block from the caches."""
        machine = self.machine
        decided = {name: column.astype(np.float64) for name, column in columns.items()}
        ones = np.ones(len(decided["block"]))
        multiply, loads, finish = 0 * ones, 0 * ones, 0 * ones
        for tiled, prefix, rows in self._tiled:
            high, vectors = decided[f"{prefix}high"], decided[f"{prefix}vectors"]
            contraction = tiled.contraction
            lanes = extent_of(contraction.stage, contraction.lane) / (tiled.product.lanes * vectors)
            blocks = self.heads * lanes * np.ceil(self.rows / (rows * high))
            taken = tiled.cycles(high, rows * ones, vectors)
            multiply = multiply + blocks * taken[0]
            loads, finish = loads + blocks * taken[1], finish + blocks * taken[2]
        uneven = balance(self.heads, self.rows, columns, machine.threads)
        softmax = self.heads * softmax_cycles(self.rows, self.keys, ones, machine)
        packing = decided["parts"] * self._pack_cycles()
        operands = (tiled.contraction.vector_load.buffer for tiled in (self.scores, self.context))
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
        """Return the cycles for packing the keys and values of all heads once."""
        pairs = zip(GROUP_CYCLES, (self.scores, self.context), strict=True)
        return sum(
            cycles * typical(tiled.contraction.vector_load.buffer.type.size) / tiled.group
            for cycles, tiled in pairs
        )

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        """Schedule loops over blocks of query rows. Each block contains the tiles of the context,
        preceded by the tiles of the scores and the softmax stages."""
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
