"""The schedule of programs with row-wise reductions such as softmax: threads share the rows, and
vectors run across rows or along them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from farrier.intrinsics import vector_axis
from farrier.ir.dim import ceildiv, typical
from farrier.ir.expr import Expr, MemoryScope, Reduce, Var
from farrier.ir.substitute import Substitution, loads, variables
from farrier.ir.tensor import Stage, TensorProgram
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.space.operations import JOIN_CYCLES, count_points, operations, reads_of
from farrier.space.space import Columns, Decisions, Estimate, Knob
from farrier.targets.cpu.units.contraction import innermost_axis
from farrier.targets.cpu.units.nests import exact_extents, share
from farrier.targets.cpu.units.partials import reduce_on_lanes
from farrier.targets.cpu.units.program_kernel import ProgramKernel

# A second thread pays for kernels of more operations.
WORTH_SHARING = 30_000
# The next stage of a row waits forty cycles for the row's result.
_WAIT = 40.0
# One iteration works on a block of rows; a core has four of them in flight.
_BLOCKS = (1, 2, 4, 8)
_OVERLAP = 4
# One iteration takes all taps of a window of up to sixteen.
_TAPS = 16


@dataclasses.dataclass(frozen=True)
class RowKernel(ProgramKernel):
    """A program with a single output, in which each reduction is written to a buffer of its own. A
    row is a set of outputs that use the same result of every reduction."""

    program: TensorProgram
    machine: Machine
    # The loops over the vectors of the output, and over the lanes of a vector.
    names: tuple[str, str] = ("chunk", "lane")

    @functools.cached_property
    def output(self) -> Stage:
        return self.program.stages[-1]

    @functools.cached_property
    def lane(self) -> str:
        """The axis along which the output is contiguous. If the output's last axes have extent 1,
        the preceding axis is contiguous as well; it is returned instead if the reductions read an
        input that is stored in blocks of that axis."""
        axes = self.output.axes
        last = innermost_axis(self.output)
        if self.output.buffer.is_plain:
            long = [at for at, axis in enumerate(axes) if axis.extent != 1]
            if long and any(self._reads_blocks(s, axes[long[-1]].name) for s in self.reductions):
                last = long[-1]
        return axes[last].name

    def _reads_blocks(self, stage: Stage, axis: str) -> bool:
        """Check whether a stage reads an operand in the blocked layout, with adjacent elements
        along the given axis of the output."""
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
        """The indices at which each earlier stage is read to compute one point of the output, by
        buffer. Variables that are not axes of the output have names that begin with `~`."""
        indices: dict[str, tuple[Expr, ...]] = {}
        _follow(self.program, self.output, {}, indices)
        return indices

    @functools.cached_property
    def rows(self) -> tuple[str, ...]:
        """The output's axes, in order, along which every reduction is read at the output's own
        index."""
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
        return self.lane in self.rows and not self._lanes_are_terms

    @property
    def _lanes_are_terms(self) -> bool:
        """Check whether vectors run along the reduced axes although the output's contiguous axis is
        a row axis."""
        return self._has_single_lane or self._reads_rows_across

    @functools.cached_property
    def _has_single_lane(self) -> bool:
        """Check whether the contiguous axis of the output has extent 1, as after a reduction that
        keeps its axes. Vectors across rows are then not possible along it."""
        return any(axis.name == self.lane and axis.extent == 1 for axis in self.output.axes)

    @functools.cached_property
    def _reads_rows_across(self) -> bool:
        """Check whether a vector across rows would have to be gathered element by element: in
        all inputs of the reductions, the terms of a row are contiguous, so that the rows are far
        apart."""
        return (
            self.output.buffer.is_plain
            and bool(self.reductions)
            and len(self.rows) == len(self.output.axes)
            and all(self._reads_along(stage) for stage in self.reductions)
        )

    def _reads_along(self, stage: Stage) -> bool:
        """Check whether a reduction can load vectors along a reduced axis: all loads that depend on
        reduced axes are contiguous along one of these axes, and this axis is at least as long as a
        vector."""
        long = {a.name for a in stage.reduced_axes if typical(a.extent) >= self.machine.lanes}
        reduced = {axis.name for axis in stage.reduced_axes}
        varying = [
            load
            for load in loads(stage.body)
            if reduced & set().union(*map(variables, load.indices), set())
        ]
        return bool(varying) and all(
            bool(long & variables(load.indices[vector_axis(load.buffer)])) for load in varying
        )

    @property
    def row_count(self) -> int:
        """The number of rows at typical sizes."""
        return count_points(axis for axis in self.output.axes if axis.name in self.rows)

    @property
    def shares(self) -> int:
        """The number of iterations that threads can share: the rows, or the vectors of rows if the
        lanes are rows."""
        count = max(self.row_count, 1)
        if not self.lanes_are_rows:
            return count
        (lane,) = (typical(a.extent) for a in self.output.axes if a.name == self.lane)
        return -(-count // max(min(lane, self.machine.lanes), 1))

    # -- decisions ------------------------------------------------------------------------------

    @functools.cached_property
    def work(self) -> float:
        """The number of operations for all elements of all stages."""
        return sum(
            float(count_points(stage.all_axes)) * (operations([stage]) + 1)
            for stage in self.program.stages
        )

    def knobs(self) -> tuple[Knob, ...]:
        shared = self.machine.threads > 1 and bool(self.rows) and self.work > WORTH_SHARING
        return (
            Knob("partials", (1,) if self.lanes_are_rows else (1, 2, 4)),
            Knob("block", tuple(b for b in _BLOCKS if b <= max(self._blockable, 1))),
            Knob("parallel", (0, 1) if shared else (0,)),
        )

    @functools.cached_property
    def _blockable(self) -> int:
        """The number of rows that may be processed together in a block. Adding up the lanes of a
        single row has a long latency but uses few resources, so several rows overlap. 1 if blocks
        have no advantage."""
        if self.lanes_are_rows or not self.rows:
            return 1
        return next(typical(a.extent) for a in self.output.axes if a.name == self.rows[-1])

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Check for each candidate that a block of rows stays in the first-level cache from stage
        to stage."""
        axes = (axis for axis in self.output.axes if axis.name not in self.rows)
        line = count_points(axes) * self.output.buffer.dtype.nbytes
        block = columns["block"]
        allowed: npt.NDArray[np.bool_] = (block == 1) | (block * line <= self.machine.l1_bytes / 2)
        return allowed

    def estimate(self, columns: Columns) -> Estimate:
        """Estimate the time of each candidate: arithmetic on full vectors, and for each row the
        latency of its partial results and of combining these."""
        machine, partials = self.machine, columns["partials"].astype(np.float64)
        block = columns["block"].astype(np.float64)
        count = self.row_count
        cycles = self.work / machine.lanes / machine.fma_ports + 0 * partials
        if not self.lanes_are_rows:
            for stage in self.reductions:
                length = count_points(stage.all_axes) / max(count, 1)
                steps = np.ceil(length / machine.lanes / partials)
                row = steps * machine.fma_latency + JOIN_CYCLES * partials + _WAIT
                cycles += count * row / np.minimum(block, _OVERLAP)
        moved = sum(typical(b.nbytes) for b in (*self.program.inputs, *self.program.outputs))
        cycles = np.maximum(cycles, moved / machine.bandwidth(moved))
        workers = np.where(columns["parallel"] > 0, machine.threads, 1)
        seconds = cycles / machine.hertz / workers + machine.fork_join * (workers > 1)
        peak = machine.lanes * machine.fma_ports * machine.hertz
        return Estimate(
            seconds, {"compute": np.full(len(partials), self.work / peak), "tiles": partials}
        )

    @property
    def serial_seconds(self) -> float:
        """The estimated time of the fastest schedule on one thread."""
        rows = [knob.values for knob in self.knobs() if knob.name != "parallel"]
        partials, blocks = np.meshgrid(*rows)
        columns = {"partials": partials.ravel(), "block": blocks.ravel()}
        columns["parallel"] = np.zeros(partials.size, np.int64)
        return float(self.estimate(columns).seconds.min())

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = Schedule(self.function)
        self.apply(schedule, decisions)
        return schedule

    def apply(self, schedule: Schedule, decisions: Decisions) -> None:
        """Order the output's nest by rows, compute every earlier stage for one row at a time, and
        vectorize each stage."""
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

    def _serves_a_row(self, stage: Stage) -> bool:
        """Check whether a stage computes a single value for each row from the result of a
        reduction, such as a reciprocal. Many elements of the row read this value, so it should be
        computed only once."""
        name, stages = stage.buffer.name, self.program.stages
        reduced = {s.buffer.name for s in stages if isinstance(s.body, Reduce)}
        if not any(load.buffer.name in reduced for load in loads(stage.body)):
            return False
        reader = next(s for s in stages if reads_of(name, [s]))
        return count_points(reader.all_axes) > typical(stage.buffer.type.size)

    def _order_output(self, schedule: Schedule, block: int) -> list[str]:
        """Reorder the output's loops: blocks of rows outside, then the loops within a row, and
        vectors along the contiguous axis inside. Return the loops over the blocks."""
        name = self.output.buffer.name
        if self._reads_rows_across and not self._has_single_lane:
            return self._order_rows(schedule, block)
        chunk, lanes = schedule.split(f"{name}_{self.lane}", self.machine.lanes, *self.names)
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

    def _order_rows(self, schedule: Schedule, block: int) -> list[str]:
        """Reorder the loops of an output that has one element for each row: the last axis is split
        into vectors of rows. Return the loops over the vectors and over the other axes."""
        loops = [f"{self.output.buffer.name}_{axis.name}" for axis in self.output.axes]
        if block > 1:
            loops[-1], in_block = schedule.split(loops[-1], block)
            schedule.vectorize(in_block)
        return loops

    def _runs_along(self, stage: Stage) -> bool:
        """Check whether the value of a stage differs between the lanes of an output vector, so that
        the stage must be vectorized along the lanes too."""
        if self._lanes_are_terms:
            return False
        return any(index == Var(self.lane) for index in self.points[stage.buffer.name])

    def _put_on_lanes(self, schedule: Schedule, stage: Stage) -> None:
        """Vectorize a stage along the axis that corresponds to the lanes of the output."""
        name = stage.buffer.name
        place = self.points[name].index(Var(self.lane))
        lane = stage.axes[place].name
        extents = exact_extents(schedule.function)
        reduced = [axis.name for axis in stage.reduced_axes]
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
            # For a small window, loop overhead would exceed the work.
            taps = {f"{name}_{axis}": extents[f"{name}_{axis}"] for axis in reduced}
            if math.prod(n if isinstance(n, int) else _TAPS + 1 for n in taps.values()) <= _TAPS:
                for loop in taps:
                    schedule.unroll(loop)


def _follow(
    program: TensorProgram,
    stage: Stage,
    at: Mapping[str, Expr],
    points: dict[str, tuple[Expr, ...]],
) -> None:
    """Record the indices at which `stage` reads earlier stages, when `stage` is evaluated at the
    point `at`; also record, recursively, the indices at which these earlier stages read others. The
    indices are added to `points`, by buffer."""
    for axis in stage.reduced_axes:
        at = {**at, axis.name: Var(f"~{axis.name}")}
    change = Substitution(at)
    stages = {s.buffer.name: s for s in program.stages}
    for load in loads(stage.body):
        source = stages.get(load.buffer.name)
        if source is None or load.buffer.name in points:
            continue
        indices = tuple(change.expr(index) for index in load.indices)
        points[load.buffer.name] = indices
        point = {axis.name: index for axis, index in zip(source.axes, indices, strict=True)}
        _follow(program, source, point, points)
