"""Attention in one kernel: scores, softmax and context for a block of query rows at a time.

The scores of a block stay in memory of the thread that computes them, so no sequence is too long
for them; keys are turned once for all blocks of a head, so that vectors run along them. The
division by a row's sum is left to the context, which is shorter than the row.

    for part, head in parallel:                          a part of the query rows
        packed[k, key] = keys[key, k]
        for block:                                   of query rows
            for panel, row:  scores[rows, vectors of keys] = sum(queries * packed), scaled, masked
            high = max(scores);  weights = exp(scores - high);  share = 1 / sum(weights)
            for panel, row:  context[rows, vectors] = sum(weights * values) * share

Dao et al., FlashAttention (2022), blocks the keys as well and corrects earlier sums when a higher
score turns up. Rows of a block are whole here: a core's second-level cache holds them.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from farrier.ir.dim import typical
from farrier.ir.expr import Reduce, ReduceOp, Scope
from farrier.ir.loop import Function
from farrier.ir.substitute import loads
from farrier.ir.tensor import Program, Stage
from farrier.ir.types import Layout, PhysicalDim
from farrier.lower.loops import to_loops
from farrier.schedule import Schedule
from farrier.space import microkernel
from farrier.space.contraction import (
    Contraction,
    contraction_of,
    extent_of,
    innermost_axis,
    is_direct,
    is_elementwise,
    is_permuted,
    volume,
)
from farrier.space.epilogue import inline_once, keep_values, operations
from farrier.space.machine import Machine
from farrier.space.nests import join
from farrier.space.operands import (
    PACKED,
    accumulate,
    factor_out,
    pack,
    pack_lane_operand,
    without_halos,
)
from farrier.space.partials import reduce_on_lanes
from farrier.space.space import Columns, Decisions, Estimate, Floats, Knob, Space
from farrier.space.tiled_sum import TiledSum
from farrier.target import Target

NAME = "attention"
_VECTORS = (1, 2, 3, 4, 6)
_ROWS = (1, 2, 4, 6, 8, 11, 12, 13)
_BLOCKS = (8, 12, 16, 24, 26, 32, 33, 48, 52, 64, 66, 72, 96)  # query rows
_PARTS = (1, 2, 4, 8, 16)
_UNROLL = (4, 2, 1)
_PARTIALS = 2  # vectors of partial results along a row

_PACK_CYCLES = 0.3  # to turn one element of the keys
_SOFTMAX_CYCLES = 13.0  # a vector of scores: its maximum, exponential and sum
_ROW_CYCLES = 40.0  # to join the partial results of one row, twice
_PASSES = 5  # over the scores of a block: written, for the maximum, the exponential, its sum, read
_EXPOSED = 0.15  # of the traffic beyond the first-level cache, what arithmetic does not hide


def space(program: Program, target: Target, threads: int) -> Space | None:
    """The space of a product, a softmax along its rows, and a product with those; elementwise
    stages may follow both products. None for any other program."""
    machine = Machine.of(target, threads)
    kernel = _kernel(without_halos(program), machine)
    return None if kernel is None else Space.of(NAME, kernel)


def _kernel(program: Program, machine: Machine) -> _Kernel | None:
    """The program made ready, or None where it is something else."""
    products = [s for s in program.stages if contraction_of(s) is not None]
    rows = [s for s in program.stages if isinstance(s.body, Reduce) and s not in products]
    if len(products) != 2 or len(program.outputs) != 1:
        return None
    if [_operation(stage) for stage in rows] != [ReduceOp.MAX, ReduceOp.SUM]:
        return None
    program = _in_order(program, products[0], rows[0], products[1])
    scores, context = (contraction_of(product) for product in products)
    assert scores is not None
    assert context is not None
    if any(found.padded or len(found.points) != 1 for found in (scores, context)):
        return None
    if not is_permuted(scores.lane_load) or not is_direct(context):
        return None
    after = program.stages[program.stages.index(products[1]) + 1 :]
    between = program.stages[1 : program.stages.index(rows[0])]
    if not all(is_elementwise(stage, program) for stage in (*between, *after)):
        return None
    if not between:
        program = accumulate(program, 0)
    program = accumulate(factor_out(program, context))
    packs = not is_direct(scores)
    if packs:
        program = pack_lane_operand(program, _product(program.stages[0], ()))
    return _Kernel(program, machine, packs)


def _operation(stage: Stage) -> ReduceOp:
    assert isinstance(stage.body, Reduce)
    return stage.body.op


def _in_order(program: Program, scores: Stage, high: Stage, context: Stage) -> Program:
    """The program with the scores first, then what else their rows' maximum takes, then what the
    context takes."""
    first = [s for s in _sources(program, high) if s is not scores and s is not high]
    second = [s for s in _sources(program, context) if s is not scores and s not in first]
    rest = [s for s in program.stages if s is not scores and s not in first and s not in second]
    return dataclasses.replace(program, stages=(scores, *first, *second, *rest))


def _sources(program: Program, stage: Stage) -> list[Stage]:
    """`stage` and all stages that it is computed from, in the program's order."""
    needed = {stage.buffer.name}
    for earlier in reversed(program.stages):
        if earlier.buffer.name in needed:
            needed |= {load.buffer.name for load in loads(earlier.body)}
    return [s for s in program.stages if s.buffer.name in needed]


@dataclasses.dataclass(frozen=True)
class _Kernel:
    """Stages: packed keys where they are packed, a product, its epilogue, the rows', a product and
    its epilogue."""

    program: Program
    machine: Machine
    packs: bool  # the keys are a stage of their own, computed for each part of a head

    @functools.cached_property
    def function(self) -> Function:
        return to_loops(self.program)

    @functools.cached_property
    def _products(self) -> tuple[int, int]:
        stages = self.program.stages
        first, second = (at for at, s in enumerate(stages) if contraction_of(s) is not None)
        return first, second

    @functools.cached_property
    def _high(self) -> int:
        """The position of the rows' maximum."""
        return next(
            at
            for at, s in enumerate(self.program.stages)
            if isinstance(s.body, Reduce) and s.body.op is ReduceOp.MAX
        )

    @functools.cached_property
    def scores(self) -> Contraction:
        at = self._products[0]
        return _product(self.program.stages[at], self.program.stages[at + 1 : self._high])

    @functools.cached_property
    def context(self) -> Contraction:
        at = self._products[1]
        return _product(self.program.stages[at], self.program.stages[at + 1 :])

    @property
    def row_stages(self) -> tuple[Stage, ...]:
        return self.program.stages[self._high : self._products[1]]

    @property
    def heads(self) -> int:
        return volume(self.context.stage, self.context.batch)

    @property
    def rows(self) -> int:
        """Queries of a head."""
        return volume(self.context.stage, self.context.points)

    @property
    def keys(self) -> int:
        """Keys of a head."""
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
            Knob("block", tuple(b for b in blocks if b <= max(self._longest, min(blocks)))),
            Knob("parts", tuple(p for p in _PARTS if p <= self.rows)),
        )

    @property
    def _longest(self) -> int:
        """Query rows whose scores and weights fit the second-level cache beside the keys."""
        return int(self.machine.l2_bytes * 0.6 / (8 * self.keys))

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Both tiles fit the registers, and divide the block; every part has a block."""
        block, parts = columns["block"], columns["parts"]
        fits: npt.NDArray[np.bool_] = self._part_rows(block, parts) * (parts - 1) < self.rows
        for vectors, rows in (("score_vectors", "score_rows"), ("vectors", "rows")):
            fits &= self.machine.fits(columns[vectors], columns[rows])
            whole = (block == self.rows) & (not self.program.dims)
            fits &= (block % columns[rows] == 0) | whole
        return fits

    def _part_rows(
        self, block: npt.NDArray[np.int64], parts: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Query rows of a part: whole blocks, as many in each."""
        blocks = np.ceil(self.rows / block)
        whole: npt.NDArray[np.int64] = np.ceil(blocks / parts).astype(np.int64) * block
        return whole

    def estimate(self, columns: Columns) -> Estimate:
        """Both products by the model of register tiles; the rows between them; packing; the caches
        from which each block takes keys, values and its own scores; and memory for the scores of
        a block, which has left the caches since the last layer."""
        machine = self.machine
        decided = {name: column.astype(np.float64) for name, column in columns.items()}
        first = microkernel.estimate(
            self._problem(self.scores), _tiles(decided, "score_", self.scores), machine
        )
        second = microkernel.estimate(
            self._problem(self.context), _tiles(decided, "", self.context), machine
        )
        blocks = self.heads * np.ceil(self.rows / decided["block"])
        units = self.heads * decided["parts"]
        balance = np.ceil(units / machine.threads) / (units / machine.threads)
        part_rows = self._part_rows(columns["block"], columns["parts"])
        balance = balance * np.maximum(part_rows * decided["parts"] / self.rows, 1.0)
        elements = self.heads * self.rows * self.keys
        rows = elements / machine.lanes * _SOFTMAX_CYCLES + self.heads * self.rows * _ROW_CYCLES
        packing = decided["parts"] * typical(self.scores.lane_load.buffer.nbytes) / 4 * _PACK_CYCLES
        beyond = self._traffic(decided["block"], blocks)
        cycles = rows + packing * self.packs + _EXPOSED * beyond
        scratch = 4.0 * decided["block"] * self.keys * machine.threads
        extra = cycles / machine.hertz / machine.threads + scratch / machine.memory_bandwidth
        seconds = (first.seconds + second.seconds + extra) * balance - machine.fork_join
        terms = {name: first.terms[name] + second.terms[name] for name in first.terms}
        terms["l2"] = terms["l2"] + beyond / machine.hertz
        terms["overhead"] = terms["overhead"] + (rows + packing) / machine.hertz
        terms["tiles"], terms["balance"] = units, balance
        for name in ("registers", "waste"):
            terms[name] = np.maximum(first.terms[name], second.terms[name])
        return Estimate(seconds, terms)

    def _traffic(self, block: Floats, blocks: Floats) -> Floats:
        """Cycles in which the blocks take keys, values and scores from beyond the first-level
        cache."""
        machine = self.machine
        operands = (
            sum(typical(p.lane_load.buffer.nbytes) for p in (self.scores, self.context))
            / self.heads
        )
        scores = 4.0 * block * self.keys
        passes = np.where(2 * scores > 0.6 * machine.l1_bytes, _PASSES, 0)
        rate = np.where(2 * scores + operands > 0.7 * machine.l2_bytes, 0.0, 1.0)
        rate = np.where(rate > 0, machine.l2_bandwidth, machine.l3_bandwidth)
        traffic: Floats = blocks * (operands + passes * scores) / rate
        return traffic

    def _problem(self, found: Contraction) -> microkernel.Problem:
        return microkernel.Problem(
            batch=volume(found.stage, found.batch),
            lanes=extent_of(found.stage, found.lane),
            points=(volume(found.stage, found.points), 1),
            steps=volume(found.stage, found.reduction),
            lane_bytes=typical(found.lane_load.buffer.nbytes),
            point_bytes=typical(found.point_load.buffer.nbytes),
            cold=False,
            epilogue=operations(found.epilogue),
        )

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        """Blocks of query rows outside; in each the context's tiles, and before them the rows'
        stages and the scores' tiles."""
        schedule = Schedule(self.function)
        scores_end = inline_once(schedule, self.scores.epilogue)
        kept = inline_once(schedule, self.context.epilogue)
        shared = self._tile_context(schedule, decisions)
        keep_values(schedule, kept, "vector", innermost_axis(self.context.stage))
        self._sum_tile(schedule, self.context, "row", "")
        for stage in reversed(self.row_stages):
            schedule.compute_at(stage.buffer.name, "block")
        for stage in self.row_stages:
            self._put_on_lanes(schedule, stage)
        schedule.compute_at(self.scores.output.buffer.name, "block")
        self._tile_scores(schedule, decisions)
        keep_values(schedule, scores_end, "score_vector", innermost_axis(self.scores.stage))
        self._sum_tile(schedule, self.scores, "score_row", "score_")
        if self.packs:
            schedule.compute_at(PACKED, shared[-1])
            self._lay_out_keys(schedule, decisions["score_vectors"] * self.machine.lanes)
            pack(schedule, self.program.stage(PACKED), self.machine.lanes)
        self._align_rows(schedule)
        schedule.parallel(join(schedule, shared))
        return schedule

    def _tile_context(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        """Tiles the nest that writes the output; gives the loops over parts and heads."""
        found, name = self.context, self.context.output.buffer.name
        pairs = zip(found.stage.axes, found.output.axes, strict=True)
        loops = {inner.name: f"{name}_{outer.name}" for inner, outer in pairs}
        row, width = loops[found.points[0]], self.machine.lanes
        block, parts = np.array([decisions["block"]]), np.array([decisions["parts"]])
        schedule.split(row, int(self._part_rows(block, parts)[0]), "part", "in_part")
        schedule.split("in_part", decisions["block"], "block", "in_block")
        schedule.split("in_block", decisions["rows"], "row", "in_row")
        schedule.split(loops[found.lane], decisions["vectors"] * width, "panel", "in_panel")
        schedule.split("in_panel", width, "vector", "lane")
        shared = ["part", *(loops[axis] for axis in found.batch)]
        schedule.reorder(*shared, "block", "panel", "row", "in_row", "vector", "lane")
        schedule.vectorize("lane")
        schedule.unroll("vector")
        schedule.unroll("in_row")
        return shared

    def _tile_scores(self, schedule: Schedule, decisions: Decisions) -> None:
        """Tiles the nest that writes the scores of a block."""
        found, name = self.scores, self.scores.output.buffer.name
        pairs = zip(found.stage.axes, found.output.axes, strict=True)
        loops = {inner.name: f"{name}_{outer.name}" for inner, outer in pairs}
        width = self.machine.lanes
        schedule.split(loops[found.points[0]], decisions["score_rows"], "score_row", "score_in_row")
        panel = decisions["score_vectors"] * width
        schedule.split(loops[found.lane], panel, "score_panel", "score_in_panel")
        schedule.split("score_in_panel", width, "score_vector", "score_lane")
        batch = (loops[axis] for axis in found.batch)
        inner = ("score_in_row", "score_vector", "score_lane")
        schedule.reorder(*batch, "score_panel", "score_row", *inner)
        schedule.vectorize("score_lane")
        schedule.unroll("score_vector")
        schedule.unroll("score_in_row")

    def _sum_tile(self, schedule: Schedule, found: Contraction, loop: str, prefix: str) -> None:
        """Moves a product into the registers of a tile."""
        schedule.compute_at(found.stage.buffer.name, loop)
        schedule.set_scope(found.stage.buffer.name, Scope.REGISTER)
        tiled = TiledSum.of(found, self.machine.lanes, (found.points[0], ""), prefix)
        tiled.order(schedule, _unroll(found))

    def _put_on_lanes(self, schedule: Schedule, stage: Stage) -> None:
        """Vectors along a row; of what a row has one of, along the rows."""
        if isinstance(stage.body, Reduce):
            reduce_on_lanes(schedule, stage, self.machine.lanes, _PARTIALS)
            return
        loop = f"{stage.buffer.name}_{stage.axes[-1].name}"
        schedule.vectorize(schedule.split(loop, self.machine.lanes)[1])

    def _align_rows(self, schedule: Schedule) -> None:
        """Rows of scores and weights begin with a cache line each, an odd number of vectors apart:
        a tile's rows then do not compete for the same lines."""
        if self.program.dims:
            return  # how long a row is shows only when it runs
        vectors = -(-self.keys // self.machine.lanes) | 1
        rank = len(self.scores.stage.axes)
        for stage in (self.scores.output, *self.row_stages):
            if len(stage.axes) == rank:  # neither a maximum nor a sum
                schedule.pad_axis(stage.buffer.name, rank - 1, vectors * self.machine.lanes)

    def _lay_out_keys(self, schedule: Schedule, panel: int) -> None:
        """Panels of keys, each in the order in which its sums read it."""
        *others, lane = range(len(self.program.stage(PACKED).axes))
        dims = [PhysicalDim(axis) for axis in others]
        batch = len(others) - len(self.scores.reduction)
        dims.insert(batch, PhysicalDim(lane, panel))
        layout = Layout((*dims, PhysicalDim(lane, 1, panel)))
        schedule.transform_layout(PACKED, layout)


def _product(stage: Stage, epilogue: tuple[Stage, ...]) -> Contraction:
    found = contraction_of(stage, epilogue)
    assert found is not None  # what rewrites a contraction leaves a contraction
    return found


def _unroll(found: Contraction) -> int:
    inner = extent_of(found.stage, found.reduction[-1])
    return next(u for u in _UNROLL if inner % u == 0)


def _tiles(decided: dict[str, Floats], prefix: str, found: Contraction) -> microkernel.Tiles:
    one = np.ones(len(decided["block"]))
    vectors, rows = decided[f"{prefix}vectors"], decided[f"{prefix}rows"]
    order, prefetch = microkernel.Order.PANELS * one, 0 * one
    return microkernel.Tiles(vectors, rows, one, _unroll(found) * one, order, prefetch)
