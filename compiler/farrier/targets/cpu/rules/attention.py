"""Rule: attention in one kernel, which computes scores, softmax and context for a block of query
rows at a time.

The scores of a block are stored in memory of the thread that computes them, so their size does not
limit the sequence length. Keys are transposed once for all blocks of a head, so that vectors run
along the keys. Instead of the weights, the context is divided by the row's sum, as its rows are
shorter.

    for part, head in parallel:                          a part of the query rows
        packed[k, key] = keys[key, k]                    for dot products values as well, in groups
        for block:                                   of query rows
            for panel, row:  scores[rows, vectors of keys] = sum(queries * packed), scaled, masked
            high = max(scores);  weights = exp(scores - high);  share = 1 / sum(weights)
            for panel, row:  context[rows, vectors] = sum(weights * values) * share

For long sequences, the keys are divided into blocks as well (`units/key_blocks.py`): scores,
weights and context are computed for one block of keys at a time, and the contexts of all blocks are
combined at the end.

        for block:                                   of query rows
            for key block:  scores, high, weights, total and context, as above
            for row:  context[row] = sum(block context * exp(block high - high)) * share
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from farrier.ir.dim import typical
from farrier.ir.expr import MemoryScope
from farrier.ir.tensor import Stage, TensorProgram
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.space.operations import operations
from farrier.space.rewrites import without_halos
from farrier.space.space import Columns, Decisions, Estimate, Floats, Knob, Space
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units import microkernel
from farrier.targets.cpu.units.attention_costs import (
    EXPOSED,
    GROUP_CYCLES,
    balance,
    softmax_cycles,
    traffic_cycles,
)
from farrier.targets.cpu.units.attention_nests import (
    align_rows,
    output_loops,
    pack_panels,
    part_choices,
    part_rows,
    put_on_lanes,
    split_parts,
    tile_context,
    tile_scores,
)
from farrier.targets.cpu.units.attention_program import (
    VALUES,
    RowsKernel,
    in_whole_groups,
    prepared,
    product,
    second,
)
from farrier.targets.cpu.units.contraction import (
    Contraction,
    extent_of,
    innermost_axis,
    is_direct,
    volume,
)
from farrier.targets.cpu.units.dot_products import Grouping, find_grouping
from farrier.targets.cpu.units.epilogue import inline_once, keep_values
from farrier.targets.cpu.units.key_blocks import BLOCK, CONTEXT, in_key_blocks
from farrier.targets.cpu.units.nests import run_parallel
from farrier.targets.cpu.units.operands import PACKED, pack_lane_operand
from farrier.targets.cpu.units.tiled_sum import TiledSum

RULE = RuleId("attention", version=7)
_VECTORS = (1, 2, 3, 4, 6)
_ROWS = (1, 2, 4, 6, 8, 11, 12, 13)
# The numbers of query rows of a block.
_BLOCKS = (8, 12, 16, 24, 26, 32, 33, 48, 52, 64, 66, 72, 96, 104, 128, 192)
_KEYS = (512, 256, 128)  # The numbers of keys of a block.

_PACK_CYCLES = 0.3  # Cycles to transpose one element of the keys.


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space | None:
    """Return the schedule space of an attention: a product, a softmax along its rows, and a product
    with the result, each product optionally followed by elementwise stages. None for any other
    program."""
    kernel = _kernel(without_halos(program), target.machine(threads), target)
    return None if kernel is None else Space.of(RULE, kernel)


def _kernel(program: TensorProgram, machine: Machine, target: CpuTarget) -> AttentionKernel | None:
    """Return the program prepared for scheduling as an AttentionKernel, or None if it is not an
    attention."""
    prepared_program = prepared(program)
    if prepared_program is None:
        return None
    program = prepared_program
    scores = product(program.stages[0], ())
    grouped = find_grouping(scores, target)
    packs = grouped is not None or not is_direct(scores)
    if packs:
        program = pack_lane_operand(program, scores)
    context = second(program)
    operands = context.broadcast_load.buffer.dtype, context.vector_load.buffer.dtype
    dot = target.dot_of(*operands, context.stage.buffer.dtype)
    if dot is None:
        return AttentionKernel(program, machine, packs, grouped, None)
    program = in_whole_groups(pack_lane_operand(program, context, VALUES), dot.group)
    return AttentionKernel(program, machine, packs, grouped, find_grouping(second(program), target))


@dataclasses.dataclass(frozen=True)
class AttentionKernel(RowsKernel):
    """The stages of an attention, in order: packed keys (optional), the product for the scores, its
    epilogue, the softmax stages, packed values (optional), the product for the context, and its
    epilogue."""

    program: TensorProgram
    machine: Machine
    packs: bool  # Set if the keys are packed in a separate stage, computed for each part of a head.
    score_grouping: Grouping | None  # The grouping in dot products of the sums of the scores.
    # The grouping of the context's sums. If set, the values are packed in a separate stage.
    grouping: Grouping | None

    @property
    def scores(self) -> Contraction:
        return self.stages.scores

    @property
    def context(self) -> Contraction:
        return self.stages.context

    @property
    def keys(self) -> int:
        """The number of keys of a head."""
        return extent_of(self.scores.stage, self.scores.lane)

    # -- decisions ------------------------------------------------------------------------------

    def knobs(self) -> tuple[Knob, ...]:
        rows = tuple(r for r in _ROWS if r <= self.rows)
        keys = -(-self.keys // self.machine.lanes)
        lanes = -(-extent_of(self.context.stage, self.context.lane) // self.machine.lanes)
        blocks = (*(b for b in _BLOCKS if b < self.rows), self.rows)
        return (
            Knob("score_vectors", tuple(v for v in _VECTORS if v <= keys)),
            Knob("score_rows", rows),
            Knob("vectors", tuple(v for v in _VECTORS if v <= lanes)),
            Knob("rows", rows),
            Knob("block", blocks),
            Knob("parts", part_choices(self.rows, self.heads, self.machine.threads)),
            Knob("keys", tuple(sorted({self._key_block(), self.keys}))),
        )

    def _key_block(self) -> int:
        """Return the number of keys in a block, or the number of all keys if none of the block
        sizes divides it."""
        sizes = () if self.program.dims else _KEYS
        return next((size for size in sizes if self.keys % size == 0), self.keys)

    def _longest(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the largest blocks of query rows for which the scores and weights of `keys` keys
        fit in the second-level cache; the smallest block if none fits."""
        room = self.machine.l2_bytes * 0.6 / (self._row_bytes * keys)
        return np.maximum(room.astype(np.int64), min(*_BLOCKS, self.rows))

    @property
    def _row_bytes(self) -> int:
        """The bytes that the score and the weight of one key occupy together."""
        return (
            self.scores.stage.buffer.dtype.nbytes + self.context.broadcast_load.buffer.dtype.nbytes
        )

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Check three conditions for each candidate. The register tiles of both products must fit
        in the registers. Their rows must divide the block of query rows. Each part of the query
        rows must contain a block."""
        block, parts = columns["block"], columns["parts"]
        fits: npt.NDArray[np.bool_] = part_rows(self.rows, block, parts) * (parts - 1) < self.rows
        fits &= block <= self._longest(columns["keys"])
        for vectors, rows in (("score_vectors", "score_rows"), ("vectors", "rows")):
            tiled = self._sum(self.scores if rows == "score_rows" else self.context)
            held = columns[rows] if tiled.by_lane else 1
            fits &= self.machine.fits(columns[vectors], columns[rows], held=held)
            whole = (block == self.rows) & (not self.program.dims)
            fits &= (block % columns[rows] == 0) | whole
        return fits

    def estimate(self, columns: Columns) -> Estimate:
        """Estimate the time of each candidate as the sum of several parts. The cost model of
        register tiles estimates both products. Further parts are the softmax, packing, and fetching
        each block's keys, values and scores from the caches. The last part is the memory traffic
        for the scores, which the previous layer has not left in the caches."""
        machine = self.machine
        decided = {name: column.astype(np.float64) for name, column in columns.items()}
        first, second = (
            microkernel.estimate(
                self._problem(contraction), self._tiles(decided, contraction), machine
            )
            for contraction in (self.scores, self.context)
        )
        blocks = self.heads * np.ceil(self.rows / decided["block"])
        uneven = balance(self.heads, self.rows, columns, machine.threads)
        key_blocks = self.keys / decided["keys"]
        rows = self.heads * softmax_cycles(self.rows, self.keys, key_blocks, machine)
        packing = decided["parts"] * self._pack_cycles()
        operands = (self.scores.vector_load.buffer, self.context.vector_load.buffer)
        head_bytes = sum(typical(buffer.nbytes) for buffer in operands) / self.heads
        score_bytes = self._row_bytes * decided["block"] * decided["keys"]
        beyond = blocks * traffic_cycles(head_bytes, score_bytes, key_blocks, machine)
        cycles = rows + packing + EXPOSED * beyond
        scratch = 4.0 * decided["block"] * decided["keys"] * machine.threads
        extra = cycles / machine.hertz / machine.threads + scratch / machine.memory_bandwidth
        seconds = (first.seconds + second.seconds + extra) * uneven - machine.fork_join
        terms = {name: first.terms[name] + second.terms[name] for name in first.terms}
        terms["l2"] = terms["l2"] + beyond / machine.hertz
        terms["overhead"] = terms["overhead"] + (rows + packing) / machine.hertz
        terms["tiles"], terms["balance"] = self.heads * decided["parts"], uneven
        for name in ("registers", "waste"):
            terms[name] = np.maximum(first.terms[name], second.terms[name])
        return Estimate(seconds, terms)

    def _pack_cycles(self) -> float:
        """Return the cycles for packing the keys and values of all heads once."""
        operands = (self.scores.vector_load.buffer, self.context.vector_load.buffer)
        keys, values = (typical(buffer.nbytes) / 4 for buffer in operands)
        if self.grouping is None:
            return keys * _PACK_CYCLES * self.packs
        turn, put = GROUP_CYCLES
        return keys * (_PACK_CYCLES if self.score_grouping is None else turn) + values * put

    def _tiles(self, decided: dict[str, Floats], contraction: Contraction) -> microkernel.Tiles:
        tiled, ones = self._sum(contraction), np.ones(len(decided["block"]))
        vectors, rows = decided[f"{tiled.prefix}vectors"], decided[f"{tiled.prefix}rows"]
        order, prefetch = microkernel.LoopOrder.PANELS * ones, 0 * ones
        unroll = max(tiled.unrolls(self.machine.unroll)) * ones
        return microkernel.Tiles(
            vectors, rows, ones, unroll, order, prefetch, ahead=0 * ones, slices=ones
        )

    def _problem(self, contraction: Contraction) -> microkernel.Problem:
        group = self._sum(contraction).group
        return microkernel.Problem(
            batch=volume(contraction.stage, contraction.batch),
            lanes=extent_of(contraction.stage, contraction.lane),
            points=(volume(contraction.stage, contraction.points), 1),
            steps=volume(contraction.stage, contraction.reduction) // group,
            group=group,
            lane_bytes=typical(contraction.vector_load.buffer.nbytes),
            point_bytes=typical(contraction.broadcast_load.buffer.nbytes),
            cold=False,
            epilogue=operations(contraction.epilogue),
        )

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        """Schedule loops over blocks of query rows. Each block contains the tiles of the context,
        preceded by the tiles of the scores and the softmax stages."""
        if decisions["keys"] < self.keys:
            return self._schedule_key_blocks(decisions)
        schedule = Schedule(self.function)
        scores_end = inline_once(schedule, self.scores.epilogue)
        kept = inline_once(schedule, self.context.epilogue)
        lanes = self.machine.lanes
        shared = tile_context(schedule, self.context, decisions, decisions["rows"], lanes)
        schedule.unroll("in_row")
        keep_values(schedule, kept, "vector", innermost_axis(self.context.stage))
        self._sum_tile(schedule, self.context, "row")
        for stage in reversed(self.stages.row_stages):
            schedule.compute_at(stage.buffer.name, "block")
        for stage in self.stages.row_stages:
            put_on_lanes(schedule, stage, self.machine.lanes)
        self._place_scores(schedule, decisions, "block", scores_end)
        self._pack_operands(schedule, decisions, shared[-1])
        self._align_rows(schedule, self.stages.row_stages, self.keys)
        run_parallel(schedule, shared)
        return schedule

    def _schedule_key_blocks(self, decisions: Decisions) -> Schedule:
        """Schedule loops over blocks of query rows. Each block contains a loop over blocks of keys
        with the tiles of scores and context, followed by the combination of the contexts row by
        row."""
        size = decisions["keys"]
        blocked = in_key_blocks(self.program, size, self.stages.row_stages, self.context.stage)
        context, name, width = (
            product(blocked.context, ()),
            blocked.partial.buffer.name,
            self.machine.lanes,
        )
        schedule = Schedule(to_loops(blocked.program))
        scores_end = inline_once(schedule, self.scores.epilogue)
        kept = inline_once(schedule, self.context.epilogue)
        shared = self._tile_rows(schedule, decisions)
        keep_values(schedule, kept, "vector", innermost_axis(self.context.stage))
        self._join_blocks(schedule, blocked.joined)
        for stage in reversed(blocked.outer):
            schedule.compute_at(stage.buffer.name, "block")
        for stage in blocked.outer:
            put_on_lanes(schedule, stage, self.machine.lanes)
        schedule.compute_at(name, "block")
        *batch, block, row, lane = (f"{name}_{axis.name}" for axis in blocked.partial.axes)
        schedule.reorder(*batch, block, lane, row)
        schedule.cut(lane, extent_of(blocked.context, context.lane), "known")
        schedule.split(lane, decisions["vectors"] * width, "panel", "in_panel")
        schedule.split("in_panel", width, "context_vector", "context_lane")
        schedule.split(row, decisions["rows"], "context_row", "in_context_row")
        inner = ("in_context_row", "context_vector", "context_lane")
        schedule.reorder("panel", "context_row", *inner)
        schedule.vectorize("context_lane")
        for loop in ("context_vector", "in_context_row", "known"):
            schedule.unroll(loop)
        schedule.compute_at(CONTEXT, "context_row")
        schedule.set_scope(CONTEXT, MemoryScope.REGISTER)
        tiled = TiledSum.of(context, self.machine, (context.points[0], ""), "", self.grouping)
        tiled.order(schedule, max(tiled.unrolls(self.machine.unroll)))
        for stage in reversed(blocked.inner):
            schedule.compute_at(stage.buffer.name, block)
        for stage in blocked.inner:
            put_on_lanes(schedule, stage, self.machine.lanes)
        self._place_scores(schedule, decisions, block, scores_end)
        self._pack_operands(schedule, decisions, shared[-1])
        self._align_rows(schedule, blocked.inner[1:2], size)
        schedule.pad_axis(
            name, len(blocked.partial.axes) - 1, extent_of(blocked.context, context.lane) + width
        )
        run_parallel(schedule, shared)
        return schedule

    def _tile_rows(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        """Split the loop nest that writes the output into blocks of query rows, which are processed
        row by row. Return the loops around a block."""
        context, loops = self.context, output_loops(self.context)
        split_parts(schedule, loops[context.points[0]], self.rows, decisions, "row")
        schedule.split(loops[context.lane], self.machine.lanes, "vector", "lane")
        shared = ["part", *(loops[axis] for axis in context.batch)]
        schedule.reorder(*shared, "block", "row", "vector", "lane")
        schedule.vectorize("lane")
        schedule.unroll("vector")
        return shared

    def _join_blocks(self, schedule: Schedule, joined: Stage) -> None:
        """Keep the context of one row in registers while it is summed over the blocks of keys."""
        name, lane = joined.buffer.name, joined.axes[-1].name
        schedule.compute_at(name, "row")
        schedule.set_scope(name, MemoryScope.REGISTER)
        for loop, around in ((f"{name}_init_{lane}", []), (f"{name}_{lane}", [f"{name}_{BLOCK}"])):
            vector, lanes = schedule.split(loop, self.machine.lanes)
            schedule.reorder(*around, vector, lanes)
            schedule.vectorize(lanes)
            schedule.unroll(vector)

    def _place_scores(
        self, schedule: Schedule, decisions: Decisions, loop: str, kept: list[Stage]
    ) -> None:
        """Compute the scores within each iteration of `loop`, tile by tile; only the scores that
        the iteration reads are computed. `kept` are the epilogue stages of the scores that are
        computed in registers."""
        schedule.compute_at(self.scores.output.buffer.name, loop)
        lanes = self.machine.lanes
        tile_scores(schedule, self.scores, decisions, decisions["score_rows"], lanes)
        schedule.unroll("score_in_row")
        keep_values(schedule, kept, "score_vector", innermost_axis(self.scores.stage))
        self._sum_tile(schedule, self.scores, "score_row")

    def _pack_operands(self, schedule: Schedule, decisions: Decisions, loop: str) -> None:
        """Pack the keys, and the values if dot products need it, within each iteration of
        `loop`."""
        if self.packs:
            panel = decisions["score_vectors"] * self.machine.lanes
            keys = self.program.stage(PACKED)
            pack_panels(schedule, keys, loop, panel, self.machine.lanes, self.score_grouping)
        if self.grouping is not None:
            panel, values = decisions["vectors"] * self.machine.lanes, self.program.stage(VALUES)
            pack_panels(schedule, values, loop, panel, self.machine.lanes, self.grouping)

    def _sum(self, contraction: Contraction) -> TiledSum:
        first = contraction.stage is self.scores.stage
        prefix, grouping = ("score_", self.score_grouping) if first else ("", self.grouping)
        return TiledSum.of(contraction, self.machine, (contraction.points[0], ""), prefix, grouping)

    def _sum_tile(self, schedule: Schedule, contraction: Contraction, loop: str) -> None:
        """Compute the sum of a product within `loop`, in the registers of a tile."""
        schedule.compute_at(contraction.stage.buffer.name, loop)
        schedule.set_scope(contraction.stage.buffer.name, MemoryScope.REGISTER)
        tiled = self._sum(contraction)
        tiled.order(schedule, max(tiled.unrolls(self.machine.unroll)))

    def _align_rows(self, schedule: Schedule, stages: tuple[Stage, ...], keys: int) -> None:
        if not self.program.dims:  # With open dims, the length of a row is known only at run time.
            align_rows(schedule, self.scores, stages, keys, self.machine.lanes)
