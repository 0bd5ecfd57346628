"""Reductions that are not contractions: softmax, normalizations, means, pools.

What is computed once and used along a whole row (a mean, a window's maximum) decides the rows: the
output's axes at which every reduction is read at its own point. Rows are shared by the threads; all
earlier stages are computed for one row where it is used. Where the output's contiguous axis is a
row axis, the lanes are rows; otherwise they run along the row, and what is reduced along it is kept
as a vector of partial results.

    for row in parallel:                         softmax: lanes along the row, or several rows
        high = max(x[row, j]);  exp[j] = …;  sum = sum(exp[j]);  y[row, j] = exp[j] / sum
    for n, block, y, x in parallel:              pool of NCHW16c: lanes are rows
        best[lane] = max(window[lane]);  y[n, block, y, x, lane] = best[lane]
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from farrier.ir.dim import ceildiv, product, typical
from farrier.ir.expr import Axis, Expr, MemoryScope, Reduce, Var
from farrier.ir.loop import Function
from farrier.ir.substitute import Substitution, loads, variables
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.space.operations import operations, reads_of
from farrier.space.rewrites import accumulate, without_halos
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.targets import Target
from farrier.targets.cpu.space.contraction import innermost_axis
from farrier.targets.cpu.space.nests import exact_extents, share
from farrier.targets.cpu.space.partials import reduce_on_lanes, reduced_axes

RULE = RuleId("rows", version=9)
# The element types of reductions. Registers hold bf16 as f32.
_SUMS = (DType.F32, DType.I32, DType.BF16, DType.F64, DType.I64, DType.U64)
_WORTH_SHARING = 30_000  # operations of a kernel before a second thread pays
_STALL = 12.0  # cycles to join the lanes of one vector of partial results
_WAIT = 40.0  # cycles until a row's result is there for the row's next stage
_BLOCKS = (1, 2, 4, 8)  # rows that one iteration works on
_OVERLAP = 4  # of which a core works on so many at a time
_TAPS = 16  # of a window, at most, that one iteration takes


def space(program: TensorProgram, target: Target, threads: int) -> Space | None:
    """Return the space of a program with reductions in `_SUMS` and one output, whose type may
    differ; None for any other program."""
    plain = without_halos(program)
    output = plain.stages[-1] if plain.stages else None
    if (
        output is None
        or not output.axes
        or len(plain.outputs) != 1
        or output.buffer.name != plain.outputs[0].name
    ):
        return None
    if not any(isinstance(stage.body, Reduce) for stage in plain.stages):
        return None
    if any(
        stage.buffer.dtype not in _SUMS for stage in plain.stages if isinstance(stage.body, Reduce)
    ):
        return None
    widest = max((stage.buffer.dtype for stage in plain.stages), key=lambda dtype: dtype.bits)
    machine = Machine.of(target, threads).for_elements(widest)
    return Space.of(RULE, _Kernel(accumulate(plain), machine))


@dataclasses.dataclass(frozen=True)
class _Kernel:
    program: TensorProgram
    machine: Machine

    @functools.cached_property
    def function(self) -> Function:
        return to_loops(self.program)

    @functools.cached_property
    def output(self) -> Stage:
        return self.program.stages[-1]

    @functools.cached_property
    def lane(self) -> str:
        """The output's contiguous axis; where its last are of extent one and the reductions read
        blocks of the axis before, that one, which is contiguous as well."""
        axes = self.output.axes
        last = innermost_axis(self.output)
        layout = self.output.buffer.layout
        if layout is None or layout.is_plain:
            long = [at for at, axis in enumerate(axes) if axis.extent != 1]
            if long and any(self._reads_blocks(s, axes[long[-1]].name) for s in self.reductions):
                last = long[-1]
        return axes[last].name

    def _reads_blocks(self, stage: Stage, axis: str) -> bool:
        """Whether neighbours along an axis of the output are neighbours in what a stage reads."""
        at = self.points.get(stage.buffer.name, ())
        names = {own.name for own, index in zip(stage.axes, at, strict=True) if index == Var(axis)}
        return any(
            load.buffer.layout is not None
            and load.buffer.layout.dims[-1].mod > 0
            and bool(names & variables(load.indices[load.buffer.layout.dims[-1].axis]))
            for load in loads(stage.body)
        )

    @property
    def reductions(self) -> list[Stage]:
        return [stage for stage in self.program.stages if isinstance(stage.body, Reduce)]

    @functools.cached_property
    def points(self) -> dict[str, tuple[Expr, ...]]:
        """Where each earlier stage is read for one point of the output, by buffer; what varies
        besides the output's axes has names that begin with `~`."""
        found: dict[str, tuple[Expr, ...]] = {}
        _follow(self.program, self.output, {}, found)
        return found

    @functools.cached_property
    def rows(self) -> tuple[str, ...]:
        """The output's axes at which every reduction is read at its own point, in order."""
        rows = {axis.name for axis in self.output.axes}
        single = {axis.name for axis in self.output.axes if axis.extent == 1}
        for stage in self.program.stages:
            if isinstance(stage.body, Reduce):
                at = self.points.get(stage.buffer.name, ())
                rows &= single | {index.name for index in at if isinstance(index, Var)}
        return tuple(axis.name for axis in self.output.axes if axis.name in rows)

    @property
    def lanes_are_rows(self) -> bool:
        """Check whether the lanes of a vector are neighbouring rows."""
        return self.lane in self.rows and not self._has_single_lane

    @functools.cached_property
    def _has_single_lane(self) -> bool:
        """Check whether the contiguous axis has extent 1, as after a reduction that keeps its axes.
        There are no neighbouring rows then, and lanes run along the reduced axis."""
        return any(axis.name == self.lane and axis.extent == 1 for axis in self.output.axes)

    # -- decisions ------------------------------------------------------------------------------

    @functools.cached_property
    def work(self) -> float:
        """Operations, all elements of all stages."""
        return sum(
            float(_points(_all_axes(stage))) * (operations([stage]) + 1)
            for stage in self.program.stages
        )

    def knobs(self) -> tuple[Knob, ...]:
        shared = self.machine.threads > 1 and bool(self.rows) and self.work > _WORTH_SHARING
        return (
            Knob("partials", (1,) if self.lanes_are_rows else (1, 2, 4)),
            Knob("block", tuple(b for b in _BLOCKS if b <= self._blockable)),
            Knob("parallel", (0, 1) if shared else (0,)),
        )

    @functools.cached_property
    def _blockable(self) -> int:
        """How many rows there are to work on together, where that helps: to join the lanes of one
        row takes long, and little of the core."""
        if self.lanes_are_rows or not self.rows:
            return 1
        return next(typical(a.extent) for a in self.output.axes if a.name == self.rows[-1])

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Rows that are worked on together stay in the first-level cache from stage to stage."""
        axes = (axis for axis in self.output.axes if axis.name not in self.rows)
        line = _points(axes) * self.output.buffer.dtype.nbytes
        block = columns["block"]
        allowed: npt.NDArray[np.bool_] = (block == 1) | (block * line <= self.machine.l1_bytes / 2)
        return allowed

    def estimate(self, columns: Columns) -> Estimate:
        """Arithmetic on whole vectors, and for each row the chain of partial results and their
        joining."""
        machine, partials = self.machine, columns["partials"].astype(np.float64)
        block = columns["block"].astype(np.float64)
        count = _points(axis for axis in self.output.axes if axis.name in self.rows)
        cycles = self.work / machine.lanes / machine.fma_ports + 0 * partials
        if not self.lanes_are_rows:
            for stage in self.reductions:
                length = _points(_all_axes(stage)) / max(count, 1)
                steps = np.ceil(length / machine.lanes / partials)
                row = steps * machine.fma_latency + _STALL * partials + _WAIT
                cycles += count * row / np.minimum(block, _OVERLAP)
        moved = sum(typical(b.nbytes) for b in (*self.program.inputs, *self.program.outputs))
        cycles = np.maximum(cycles, moved / machine.bandwidth(moved))
        workers = np.where(columns["parallel"] > 0, machine.threads, 1)
        seconds = cycles / machine.hertz / workers + machine.fork_join * (workers > 1)
        peak = machine.lanes * machine.fma_ports * machine.hertz
        return Estimate(
            seconds, {"compute": np.full(len(partials), self.work / peak), "tiles": partials}
        )

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        """Orders the output's nest by rows, computes every earlier stage for one row, and puts
        each stage on vectors."""
        schedule = Schedule(self.function)
        stages = self.program.stages
        placed = []
        for stage in stages[:-1]:
            once = reads_of(stage.buffer.name, stages) == 1 and not self._serves_a_row(stage)
            if once and not isinstance(stage.body, Reduce):
                schedule.inline(stage.buffer.name)
            else:
                placed.append(stage)
        outer = self._order_output(schedule, decisions["block"])
        for stage in reversed(placed) if outer else ():
            schedule.compute_at(stage.buffer.name, outer[-1])
        for stage in placed:
            if self._runs_along(stage):
                self._put_on_lanes(schedule, stage)
            elif isinstance(stage.body, Reduce):
                reduce_on_lanes(schedule, stage, self.machine.lanes, decisions["partials"])
        if decisions["parallel"]:
            share(schedule, outer, self.machine.threads)
        return schedule

    def _serves_a_row(self, stage: Stage) -> bool:
        """Whether a stage makes of a reduction's result what many elements then read: a division
        or a root that they should not repeat."""
        name, stages = stage.buffer.name, self.program.stages
        reduced = {s.buffer.name for s in stages if isinstance(s.body, Reduce)}
        if not any(load.buffer.name in reduced for load in loads(stage.body)):
            return False
        reader = next(s for s in stages if reads_of(name, [s]))
        return _points(_all_axes(reader)) > typical(stage.buffer.type.size)

    def _order_output(self, schedule: Schedule, block: int) -> list[str]:
        """Blocks of rows outside, the rest inside, vectors along the contiguous axis; gives the
        loops over the blocks."""
        name = self.output.buffer.name
        chunk, lanes = schedule.split(f"{name}_{self.lane}", self.machine.lanes, "chunk", "lane")
        outer: list[str] = []
        inner: list[str] = []
        for axis in self.output.axes:
            loop = chunk if axis.name == self.lane else f"{name}_{axis.name}"
            if block > 1 and axis.name == self.rows[-1]:
                loop, in_block = schedule.split(loop, block)
                inner.append(in_block)
            (outer if axis.name in self.rows else inner).append(loop)
        if chunk in outer[:-1]:
            # Lines of the image around blocks of channels: as convolutions divide it.
            at = outer.index(chunk)
            outer[at], outer[at + 1] = outer[at + 1], chunk
        schedule.reorder(*outer, *inner, lanes)
        schedule.vectorize(lanes)
        return outer

    def _runs_along(self, stage: Stage) -> bool:
        """Check whether a stage has a value for each of several lanes of the output."""
        if self._has_single_lane:
            return False
        return any(index == Var(self.lane) for index in self.points[stage.buffer.name])

    def _put_on_lanes(self, schedule: Schedule, stage: Stage) -> None:
        """Vectors of a stage along the axis that becomes the output's lanes."""
        name = stage.buffer.name
        place = self.points[name].index(Var(self.lane))
        lane = stage.axes[place].name
        extents = exact_extents(schedule.function)
        reduced = [axis.name for axis in reduced_axes(stage)]
        spatial = [axis.name for axis in stage.axes if axis.name != lane]
        nests = [(name, [*spatial, *reduced])]
        if reduced:
            nests.append((f"{name}_init", spatial))
        for prefix, others in nests:
            loop = f"{prefix}_{lane}"
            order = [f"{prefix}_{axis}" for axis in others]
            if self.program.dims or typical(extents[loop]) > self.machine.lanes:
                chunk, loop = schedule.split(loop, self.machine.lanes)
                order.insert(place, chunk)
            if order:
                schedule.reorder(*order, loop)
            schedule.vectorize(loop)
        # Registers have no addresses: all loops over the stage but the lanes have one iteration,
        # whatever the sizes.
        single = all(extents[f"{name}_{axis}"] == 1 for axis in spatial)
        if self.rows and single and ceildiv(extents[f"{name}_{lane}"], self.machine.lanes) == 1:
            schedule.set_scope(name, MemoryScope.REGISTER)
            # Of a small window the loops would take longer than its taps.
            taps = {f"{name}_{axis}": extents[f"{name}_{axis}"] for axis in reduced}
            if math.prod(n if isinstance(n, int) else _TAPS + 1 for n in taps.values()) <= _TAPS:
                for loop in taps:
                    schedule.unroll(loop)


def _follow(
    program: TensorProgram,
    stage: Stage,
    at: Mapping[str, Expr],
    found: dict[str, tuple[Expr, ...]],
) -> None:
    """Adds to `found` where `stage`, at the point `at`, reads earlier stages, and they others."""
    for axis in reduced_axes(stage):
        at = {**at, axis.name: Var(f"~{axis.name}")}
    change = Substitution(at)
    made = {s.buffer.name: s for s in program.stages}
    for load in loads(stage.body):
        source = made.get(load.buffer.name)
        if source is None or load.buffer.name in found:
            continue
        indices = tuple(change.expr(index) for index in load.indices)
        found[load.buffer.name] = indices
        point = {axis.name: index for axis, index in zip(source.axes, indices, strict=True)}
        _follow(program, source, point, found)


def _points(axes: Iterable[Axis]) -> int:
    """How many points the axes span where they are typical."""
    return typical(product(axis.extent for axis in axes))


def _all_axes(stage: Stage) -> tuple[Axis, ...]:
    return (*stage.axes, *reduced_axes(stage))
