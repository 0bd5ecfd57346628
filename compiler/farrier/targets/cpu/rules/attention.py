"""Attention in one kernel: scores, softmax and context for a block of query rows at a time.

The scores of a block stay in memory of the thread that computes them, so no sequence is too long
for them; keys are turned once for all blocks of a head, so that vectors run along them. The
division by a row's sum is left to the context, which is shorter than the row.

    for part, head in parallel:                          a part of the query rows
        packed[k, key] = keys[key, k]                    for dot products values as well, in groups
        for block:                                   of query rows
            for panel, row:  scores[rows, vectors of keys] = sum(queries * packed), scaled, masked
            high = max(scores);  weights = exp(scores - high);  share = 1 / sum(weights)
            for panel, row:  context[rows, vectors] = sum(weights * values) * share

Of long sequences, the keys come in blocks too (`space/key_blocks.py`): scores, weights and the
context of a block of keys are made together, and the blocks' contexts joined at the end.

        for block:                                   of query rows
            for key block:  scores, high, weights, total and context, as above
            for row:  context[row] = sum(block context * exp(block high - high)) * share
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from farrier.intrinsics import dot_of
from farrier.ir import expr as e
from farrier.ir.dim import typical
from farrier.ir.expr import Cast, Const, Load, MemoryScope, Reduce, ReduceOp, Select, Var
from farrier.ir.loop import Function
from farrier.ir.substitute import Substitution, loads
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from farrier.ir.walk import rewrite
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.space.space import Columns, Decisions, Estimate, Floats, Knob, Space
from farrier.targets import Target
from farrier.targets.cpu.space import microkernel
from farrier.targets.cpu.space.contraction import (
    Contraction,
    contraction_of,
    extent_of,
    innermost_axis,
    is_direct,
    is_elementwise,
    is_permuted,
    volume,
)
from farrier.targets.cpu.space.dot_products import Grouping, find_grouping
from farrier.targets.cpu.space.epilogue import inline_once, keep_values, operations
from farrier.targets.cpu.space.key_blocks import BLOCK, CONTEXT, in_key_blocks
from farrier.targets.cpu.space.nests import run_parallel
from farrier.targets.cpu.space.operands import (
    PACKED,
    accumulate,
    factor_out,
    lay_out_packed,
    pack,
    pack_groups,
    pack_lane_operand,
    without_halos,
)
from farrier.targets.cpu.space.partials import reduce_on_lanes
from farrier.targets.cpu.space.tiled_sum import TiledSum

RULE = RuleId("attention", version=6)
VALUES = "packed_values"
_VECTORS = (1, 2, 3, 4, 6)
_ROWS = (1, 2, 4, 6, 8, 11, 12, 13)
_BLOCKS = (8, 12, 16, 24, 26, 32, 33, 48, 52, 64, 66, 72, 96, 104, 128, 192)  # query rows
_PARTS = (1, 2, 4, 8, 16)
_KEYS = (512, 256, 128)  # of a block
_SHARES = 8  # of parts of heads, that a thread has at most to choose from
_PARTIALS = 2  # vectors of partial results along a row

_PACK_CYCLES = 0.3  # to turn one element of the keys
_GROUP_CYCLES = (1.2, 0.2)  # to turn one group of the keys, to put one of the values together
_SOFTMAX_CYCLES = 13.0  # a vector of scores: its maximum, exponential and sum
_ROW_CYCLES = 40.0  # to join the partial results of one row, twice
_JOIN_CYCLES = 20.0  # to store what is known of a row and a block of keys, and to join it
_PASSES = 5  # over the scores of a block: written, for the maximum, the exponential, its sum, read
_EXPOSED = 0.15  # of the traffic beyond the first-level cache, what arithmetic does not hide


def space(program: TensorProgram, target: Target, threads: int) -> Space | None:
    """The space of a product, a softmax along its rows, and a product with those; elementwise
    stages may follow both products. None for any other program."""
    kernel = _kernel(without_halos(program), Machine.of(target, threads), target)
    return None if kernel is None else Space.of(RULE, kernel)


def _kernel(program: TensorProgram, machine: Machine, target: Target) -> _Kernel | None:
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
    if not is_permuted(scores.vector_load) or not is_direct(context):
        return None
    after = program.stages[program.stages.index(products[1]) + 1 :]
    between = program.stages[1 : program.stages.index(rows[0])]
    if not all(is_elementwise(stage, program) for stage in (*between, *after)):
        return None
    if not between:
        program = accumulate(program, 0)
    program = _with_rounded_weights(program, context)
    program = accumulate(factor_out(program, _second(program)))
    grouped = find_grouping(scores, target)
    packs = grouped is not None or not is_direct(scores)
    if packs:
        program = pack_lane_operand(program, _product(program.stages[0], ()))
    found = _second(program)
    operands = found.broadcast_load.buffer.dtype, found.vector_load.buffer.dtype
    dot = dot_of(*operands, found.stage.buffer.dtype, target)
    if dot is None:
        return _Kernel(program, machine, packs, grouped, None)
    program = _in_whole_groups(pack_lane_operand(program, found, VALUES), dot.group)
    return _Kernel(program, machine, packs, grouped, find_grouping(_second(program), target))


def _second(program: TensorProgram) -> Contraction:
    """The product with the weights."""
    *_, last = (found for found in map(contraction_of, program.stages) if found is not None)
    return last


def _with_rounded_weights(program: TensorProgram, context: Contraction) -> TensorProgram:
    """The program with the exponentials in the dtype that they are multiplied in, where that is
    another than f32: their sum is one of what is multiplied.

    before:  weight[m, k] = exp(score[m, k] - high[m])
             total[m] = sum(weight[m, k])
             share[m, k] = weight[m, k] * scale[m]
             narrow[m, k] = cast(bf16, share[m, k])
             context[m, n] = sum(cast(f32, narrow[m, k]) * cast(f32, v[k, n]))
    after:   weight[m, k] = cast(bf16, exp(score[m, k] - high[m]))
             total[m] = sum(cast(f32, weight[m, k]))
             share[m, k] = cast(f32, weight[m, k]) * scale[m]
             context[m, n] = sum(share[m, k] * cast(f32, v[k, n]))
    """
    by_name = {stage.buffer.name: stage for stage in program.stages}
    narrow = by_name[context.broadcast_load.buffer.name]
    if not isinstance(narrow.body, Cast) or not isinstance(narrow.body.operand, Load):
        return program
    share, dtype = by_name[narrow.body.operand.buffer.name], narrow.buffer.dtype
    rank = len(share.axes)
    weights = [load.buffer for load in loads(share.body) if len(load.indices) == rank]
    old = weights[0]
    made = dataclasses.replace(old, dtype=dtype)

    def narrowed(node: object) -> object:
        if isinstance(node, Load) and node.buffer == old:
            return Cast(old.dtype, Load(made, node.indices))
        read = node.operand if isinstance(node, Cast) else None
        if isinstance(read, Load) and read.buffer == narrow.buffer:
            return Load(share.buffer, read.indices)
        return node

    stages = []
    for stage in program.stages:
        body = rewrite(stage.body, narrowed)
        if stage.buffer == old:
            stages.append(Stage(made, stage.axes, Cast(dtype, body)))
        elif stage is not narrow:
            stages.append(dataclasses.replace(stage, body=body))
    return dataclasses.replace(program, stages=tuple(stages))


def _in_whole_groups(program: TensorProgram, group: int) -> TensorProgram:
    """The program with zeros after the last weights and values, so that dot products of `group`
    take all of them; as it was where they do.

    before:  packed[k, n] = v[k, n]                             for 3 k
             context[m, n] = sum(weight[m, k] * packed[k, n])
    after:   packed[k, n] = v[k, n] if k < 3 else 0             for 4 k, and so the weights
             context[m, n] = sum(weight[m, k] * packed[k, n])
    """
    found = _second(program)
    assert isinstance(found.stage.body, Reduce)
    (axis,) = found.stage.body.axes
    extent, reduced = axis.extent, axis.name
    whole = -(-extent // group) * group
    if whole == extent:
        return program
    wider: dict[str, Stage] = {}
    for load in (found.broadcast_load, found.vector_load):
        stage, at = program.stage(load.buffer.name), load.indices.index(Var(reduced))
        axes = [*stage.axes]
        axes[at] = dataclasses.replace(axes[at], extent=whole)
        buffer = dataclasses.replace(load.buffer, shape=tuple(axis.extent for axis in axes))
        is_given, zero = e.less(Var(axes[at].name), extent), Const(0.0, buffer.dtype)
        assert not isinstance(stage.body, Reduce)
        wider[buffer.name] = Stage(buffer, tuple(axes), Select(is_given, stage.body, zero))
    change = Substitution(buffers={name: stage.buffer for name, stage in wider.items()})
    stages = []
    for stage in program.stages:
        stage = wider.get(stage.buffer.name, stage)
        body = change.expr(stage.body)
        if stage.buffer == found.stage.buffer:
            assert isinstance(body, Reduce)
            body = dataclasses.replace(body, axes=(dataclasses.replace(axis, extent=whole),))
        stages.append(dataclasses.replace(stage, body=body))
    return dataclasses.replace(program, stages=tuple(stages))


def _operation(stage: Stage) -> ReduceOp:
    assert isinstance(stage.body, Reduce)
    return stage.body.op


def _in_order(program: TensorProgram, scores: Stage, high: Stage, context: Stage) -> TensorProgram:
    """The program with the scores first, then what else their rows' maximum takes, then what the
    context takes."""
    first = [s for s in _sources(program, high) if s is not scores and s is not high]
    second = [s for s in _sources(program, context) if s is not scores and s not in first]
    rest = [s for s in program.stages if s is not scores and s not in first and s not in second]
    return dataclasses.replace(program, stages=(scores, *first, *second, *rest))


def _sources(program: TensorProgram, stage: Stage) -> list[Stage]:
    """`stage` and all stages that it is computed from, in the program's order."""
    needed = {stage.buffer.name}
    for earlier in reversed(program.stages):
        if earlier.buffer.name in needed:
            needed |= {load.buffer.name for load in loads(earlier.body)}
    return [s for s in program.stages if s.buffer.name in needed]


@dataclasses.dataclass(frozen=True)
class _Kernel:
    """Stages: packed keys where they are packed, a product, its epilogue, the rows', packed values
    where they are packed, a product and its epilogue."""

    program: TensorProgram
    machine: Machine
    packs: bool  # the keys are a stage of their own, computed for each part of a head
    score_grouping: Grouping | None  # how dot products take the sums of the scores
    grouping: Grouping | None  # and those of the context: then the values are a stage of their own

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
        between = self.program.stages[self._high : self._products[1]]
        return tuple(stage for stage in between if stage.buffer.name != VALUES)

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
        most = max(_SHARES * self.machine.threads // self.heads, 1)
        return (
            Knob("score_vectors", tuple(v for v in _VECTORS if v <= keys)),
            Knob("score_rows", rows),
            Knob("vectors", tuple(v for v in _VECTORS if v <= lanes)),
            Knob("rows", rows),
            Knob("block", blocks),
            Knob("parts", tuple(p for p in _PARTS if p <= min(self.rows, most))),
            Knob("keys", tuple(sorted({self._key_block(), self.keys}))),
        )

    def _key_block(self) -> int:
        """The keys of a block; all of them where no size divides them."""
        sizes = () if self.program.dims else _KEYS
        return next((size for size in sizes if self.keys % size == 0), self.keys)

    def _longest(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Query rows whose scores and weights of so many keys fit the second-level cache beside
        these; the fewest there are where none do."""
        room = self.machine.l2_bytes * 0.6 / (self._row_bytes * keys)
        return np.maximum(room.astype(np.int64), min(*_BLOCKS, self.rows))

    @property
    def _row_bytes(self) -> int:
        """What one key's score and weight take."""
        return (
            self.scores.stage.buffer.dtype.nbytes + self.context.broadcast_load.buffer.dtype.nbytes
        )

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Both tiles fit the registers, and divide the block; every part has a block."""
        block, parts = columns["block"], columns["parts"]
        fits: npt.NDArray[np.bool_] = self._part_rows(block, parts) * (parts - 1) < self.rows
        fits &= block <= self._longest(columns["keys"])
        for vectors, rows in (("score_vectors", "score_rows"), ("vectors", "rows")):
            tiled = self._sum(self.scores if rows == "score_rows" else self.context)
            held = columns[rows] if tiled.by_lane else 1
            fits &= self.machine.fits(columns[vectors], columns[rows], held=held)
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
        first, second = (
            microkernel.estimate(self._problem(found), self._tiles(decided, found), machine)
            for found in (self.scores, self.context)
        )
        blocks = self.heads * np.ceil(self.rows / decided["block"])
        units = self.heads * decided["parts"]
        balance = np.ceil(units / machine.threads) / (units / machine.threads)
        part_rows = np.minimum(self._part_rows(columns["block"], columns["parts"]), self.rows)
        balance = balance * np.maximum(part_rows * decided["parts"] / self.rows, 1.0)
        elements = self.heads * self.rows * self.keys
        key_blocks = self.keys / decided["keys"]
        joins = _ROW_CYCLES * key_blocks + _JOIN_CYCLES * np.where(key_blocks > 1, key_blocks, 0.0)
        rows = elements / machine.lanes * _SOFTMAX_CYCLES + self.heads * self.rows * joins
        packing = decided["parts"] * self._pack_cycles()
        beyond = blocks * self._traffic(decided["block"], decided["keys"])
        cycles = rows + packing + _EXPOSED * beyond
        scratch = 4.0 * decided["block"] * decided["keys"] * machine.threads
        extra = cycles / machine.hertz / machine.threads + scratch / machine.memory_bandwidth
        seconds = (first.seconds + second.seconds + extra) * balance - machine.fork_join
        terms = {name: first.terms[name] + second.terms[name] for name in first.terms}
        terms["l2"] = terms["l2"] + beyond / machine.hertz
        terms["overhead"] = terms["overhead"] + (rows + packing) / machine.hertz
        terms["tiles"], terms["balance"] = units, balance
        for name in ("registers", "waste"):
            terms[name] = np.maximum(first.terms[name], second.terms[name])
        return Estimate(seconds, terms)

    def _pack_cycles(self) -> float:
        """To pack keys and values of all heads once."""
        operands = (self.scores.vector_load.buffer, self.context.vector_load.buffer)
        keys, values = (typical(buffer.nbytes) / 4 for buffer in operands)
        if self.grouping is None:
            return keys * _PACK_CYCLES * self.packs
        turn, put = _GROUP_CYCLES
        return keys * (_PACK_CYCLES if self.score_grouping is None else turn) + values * put

    def _traffic(self, block: Floats, keys: Floats) -> Floats:
        """Cycles in which a block of rows takes keys, values and scores, these by blocks of `keys`,
        from beyond the first-level cache."""
        machine = self.machine
        operands = (
            sum(typical(p.vector_load.buffer.nbytes) for p in (self.scores, self.context))
            / self.heads
        )
        scores = 0.5 * self._row_bytes * block * keys
        passes = np.where(2 * scores > 0.6 * machine.l1_bytes, _PASSES, 0) * self.keys / keys

        def rate(beside: Floats | float) -> Floats:
            far = 2 * scores + beside > 0.9 * machine.l2_bytes
            return np.where(far, machine.l3_bandwidth, machine.l2_bandwidth)

        again = operands * keys / self.keys  # that the passes over the scores find beside them
        traffic: Floats = operands / rate(operands) + passes * scores / rate(again)
        return traffic

    def _tiles(self, decided: dict[str, Floats], found: Contraction) -> microkernel.Tiles:
        tiled, one = self._sum(found), np.ones(len(decided["block"]))
        vectors, rows = decided[f"{tiled.prefix}vectors"], decided[f"{tiled.prefix}rows"]
        order, prefetch = microkernel.LoopOrder.PANELS * one, 0 * one
        unroll = max(tiled.unrolls(self.machine.unroll)) * one
        return microkernel.Tiles(
            vectors, rows, one, unroll, order, prefetch, ahead=0 * one, slices=one
        )

    def _problem(self, found: Contraction) -> microkernel.Problem:
        group = self._sum(found).group
        return microkernel.Problem(
            batch=volume(found.stage, found.batch),
            lanes=extent_of(found.stage, found.lane),
            points=(volume(found.stage, found.points), 1),
            steps=volume(found.stage, found.reduction) // group,
            group=group,
            lane_bytes=typical(found.vector_load.buffer.nbytes),
            point_bytes=typical(found.broadcast_load.buffer.nbytes),
            cold=False,
            epilogue=operations(found.epilogue),
        )

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        """Blocks of query rows outside; in each the context's tiles, and before them the rows'
        stages and the scores' tiles."""
        if decisions["keys"] < self.keys:
            return self._schedule_key_blocks(decisions)
        schedule = Schedule(self.function)
        scores_end = inline_once(schedule, self.scores.epilogue)
        kept = inline_once(schedule, self.context.epilogue)
        shared = self._tile_context(schedule, decisions)
        keep_values(schedule, kept, "vector", innermost_axis(self.context.stage))
        self._sum_tile(schedule, self.context, "row")
        for stage in reversed(self.row_stages):
            schedule.compute_at(stage.buffer.name, "block")
        for stage in self.row_stages:
            self._put_on_lanes(schedule, stage)
        self._place_scores(schedule, decisions, "block", scores_end)
        self._pack_operands(schedule, decisions, shared[-1])
        self._align_rows(schedule, self.row_stages, self.keys)
        run_parallel(schedule, shared)
        return schedule

    def _schedule_key_blocks(self, decisions: Decisions) -> Schedule:
        """Blocks of query rows outside; in each first the blocks of keys with the tiles of scores
        and context, then what joins them, row by row."""
        size = decisions["keys"]
        made = in_key_blocks(self.program, size, self.row_stages, self.context.stage)
        found, name, width = (
            _product(made.context, ()),
            made.partial.buffer.name,
            self.machine.lanes,
        )
        schedule = Schedule(to_loops(made.program))
        scores_end = inline_once(schedule, self.scores.epilogue)
        kept = inline_once(schedule, self.context.epilogue)
        shared = self._tile_rows(schedule, decisions)
        keep_values(schedule, kept, "vector", innermost_axis(self.context.stage))
        self._join_blocks(schedule, made.joined)
        for stage in reversed(made.outer):
            schedule.compute_at(stage.buffer.name, "block")
        for stage in made.outer:
            self._put_on_lanes(schedule, stage)
        schedule.compute_at(name, "block")
        *batch, block, row, lane = (f"{name}_{axis.name}" for axis in made.partial.axes)
        schedule.reorder(*batch, block, lane, row)
        schedule.cut(lane, extent_of(made.context, found.lane), "known")
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
        tiled = TiledSum.of(found, self.machine, (found.points[0], ""), "", self.grouping)
        tiled.order(schedule, max(tiled.unrolls(self.machine.unroll)))
        for stage in reversed(made.inner):
            schedule.compute_at(stage.buffer.name, block)
        for stage in made.inner:
            self._put_on_lanes(schedule, stage)
        self._place_scores(schedule, decisions, block, scores_end)
        self._pack_operands(schedule, decisions, shared[-1])
        self._align_rows(schedule, made.inner[1:2], size)
        schedule.pad_axis(
            name, len(made.partial.axes) - 1, extent_of(made.context, found.lane) + width
        )
        run_parallel(schedule, shared)
        return schedule

    def _tile_rows(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        """Walks the output in blocks of rows, one row at a time; gives the loops around a block."""
        found, name = self.context, self.context.output.buffer.name
        pairs = zip(found.stage.axes, found.output.axes, strict=True)
        loops = {inner.name: f"{name}_{outer.name}" for inner, outer in pairs}
        block, parts = np.array([decisions["block"]]), np.array([decisions["parts"]])
        part_rows = int(self._part_rows(block, parts)[0])
        schedule.split(loops[found.points[0]], part_rows, "part", "in_part")
        schedule.split("in_part", decisions["block"], "block", "row")
        schedule.split(loops[found.lane], self.machine.lanes, "vector", "lane")
        shared = ["part", *(loops[axis] for axis in found.batch)]
        schedule.reorder(*shared, "block", "row", "vector", "lane")
        schedule.vectorize("lane")
        schedule.unroll("vector")
        return shared

    def _join_blocks(self, schedule: Schedule, joined: Stage) -> None:
        """Sums up the blocks' contexts of one row as values."""
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
        """Computes the scores that each iteration of `loop` reads, tile by tile."""
        schedule.compute_at(self.scores.output.buffer.name, loop)
        self._tile_scores(schedule, decisions)
        keep_values(schedule, kept, "score_vector", innermost_axis(self.scores.stage))
        self._sum_tile(schedule, self.scores, "score_row")

    def _pack_operands(self, schedule: Schedule, decisions: Decisions, loop: str) -> None:
        """Packs what is packed of keys and values within each iteration of `loop`."""
        if self.packs:
            self._pack(schedule, PACKED, loop, decisions["score_vectors"], self.score_grouping)
        if self.grouping is not None:
            self._pack(schedule, VALUES, loop, decisions["vectors"], self.grouping)

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

    def _sum(self, found: Contraction) -> TiledSum:
        first = found.stage is self.scores.stage
        prefix, grouping = ("score_", self.score_grouping) if first else ("", self.grouping)
        return TiledSum.of(found, self.machine, (found.points[0], ""), prefix, grouping)

    def _sum_tile(self, schedule: Schedule, found: Contraction, loop: str) -> None:
        """Moves a product into the registers of a tile."""
        schedule.compute_at(found.stage.buffer.name, loop)
        schedule.set_scope(found.stage.buffer.name, MemoryScope.REGISTER)
        tiled = self._sum(found)
        tiled.order(schedule, max(tiled.unrolls(self.machine.unroll)))

    def _pack(
        self, schedule: Schedule, name: str, loop: str, vectors: int, grouping: Grouping | None
    ) -> None:
        """Packs keys or values within each iteration of `loop`, in panels of so many vectors."""
        stage, lanes = self.program.stage(name), self.machine.lanes
        schedule.compute_at(name, loop)
        lay_out_packed(schedule, stage, vectors * lanes, grouping)
        if grouping is None:
            pack(schedule, stage, lanes)
        else:
            pack_groups(schedule, stage, lanes, grouping)

    def _put_on_lanes(self, schedule: Schedule, stage: Stage) -> None:
        """Vectors along a row; of what a row has one of, along the rows."""
        if isinstance(stage.body, Reduce):
            reduce_on_lanes(schedule, stage, self.machine.lanes, _PARTIALS)
            return
        loop = f"{stage.buffer.name}_{stage.axes[-1].name}"
        schedule.vectorize(schedule.split(loop, self.machine.lanes)[1])

    def _align_rows(self, schedule: Schedule, stages: tuple[Stage, ...], keys: int) -> None:
        """Rows of scores and weights of so many keys begin with a cache line each, an odd number of
        vectors apart: a tile's rows then do not compete for the same lines."""
        if self.program.dims:
            return  # how long a row is shows only when it runs
        rank = len(self.scores.stage.axes)
        for stage in (self.scores.output, *stages):
            if len(stage.axes) == rank:  # neither a maximum nor a sum
                lanes = self.machine.lanes * DType.F32.nbytes // stage.buffer.dtype.nbytes
                spare = max(extent_of(stage, stage.axes[-1].name) - self.keys, 0)
                vectors = -(-(keys + spare) // lanes) | 1
                schedule.pad_axis(stage.buffer.name, rank - 1, vectors * lanes)


def _product(stage: Stage, epilogue: tuple[Stage, ...]) -> Contraction:
    found = contraction_of(stage, epilogue)
    assert found is not None  # what rewrites a contraction leaves a contraction
    return found
