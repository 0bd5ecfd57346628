"""Programs without a reduction: arithmetic element by element, and elements moved about.

Each output is one nest: vectors along its contiguous axis, the axes outside shared by the threads
where there is enough to do. Axes that lie together in every buffer are walked as one, so that a
tensor whose last axis is short still fills its vectors.

    for outer in parallel:
        for chunk, vector:  y[outer, chunk, vector, lane] = f(x[…])
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from farrier.ir.expr import Axis, Load, Reduce, Var
from farrier.ir.loop import Function
from farrier.ir.substitute import loads, variables
from farrier.ir.tensor import Program, Stage
from farrier.ir.types import Layout
from farrier.lower.loops import to_loops
from farrier.schedule import Schedule
from farrier.space.contraction import innermost_axis
from farrier.space.epilogue import inline_once, keep_values, operations, reads_of
from farrier.space.machine import Machine
from farrier.space.nests import loop_extents, share
from farrier.space.operands import without_halos
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.target import Target

NAME = "elementwise"
_WORTH_SHARING = 32 << 10  # bytes a kernel moves before a second thread pays


def space(program: Program, target: Target, threads: int) -> Space | None:
    """The space of a program of tensors (no scalars) without Reduce; None for any other."""
    made = without_halos(program)
    if any(isinstance(stage.body, Reduce) or not stage.axes for stage in made.stages):
        return None
    if len(made.outputs) > 1 and _is_tangled(made):
        return None
    kernel = _Kernel(made, Machine.of(target, threads))
    return Space(NAME, kernel.knobs(), kernel.allowed, kernel.estimate, kernel.schedule)


def _is_tangled(program: Program) -> bool:
    """Whether a stage is read at several places, or an output by a later stage."""
    outputs = {buffer.name for buffer in program.outputs}
    counts = {s.buffer.name: reads_of(s.buffer.name, program.stages) for s in program.stages}
    return any(count > (name not in outputs) for name, count in counts.items())


@dataclasses.dataclass(frozen=True)
class _Kernel:
    program: Program
    machine: Machine

    @functools.cached_property
    def function(self) -> Function:
        return to_loops(self.program)

    @functools.cached_property
    def outputs(self) -> list[Stage]:
        return [self.program.stage(buffer.name) for buffer in self.program.outputs]

    @functools.cached_property
    def bytes_moved(self) -> int:
        return sum(b.nbytes for b in (*self.program.inputs, *self.program.outputs))

    def knobs(self) -> tuple[Knob, ...]:
        worth = self.bytes_moved >= _WORTH_SHARING and self.machine.threads > 1
        return (Knob("vectors", (1, 2, 4)), Knob("parallel", (0, 1) if worth else (0,)))

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        return np.ones(len(columns["vectors"]), bool)

    def estimate(self, columns: Columns) -> Estimate:
        """Arithmetic a vector, or the caches' bandwidth, whichever is slower."""
        machine, vectors = self.machine, columns["vectors"].astype(np.float64)
        elements = sum(math.prod(stage.buffer.shape) for stage in self.outputs)
        steps = elements / machine.lanes
        work = operations(self.program.stages) / machine.fma_ports + 2.0 / vectors
        scattered = not all(self._is_contiguous(stage) for stage in self.outputs)
        work += machine.lanes * scattered
        cycles = steps * work + self.bytes_moved / machine.l3_bandwidth
        workers = np.where(columns["parallel"] > 0, machine.threads, 1)
        seconds = cycles / machine.hertz / workers + machine.fork_join * (workers > 1)
        memory = np.full(len(vectors), self.bytes_moved / machine.l3_bandwidth / machine.hertz)
        return Estimate(seconds, {"memory": memory, "code": vectors * operations(self.outputs)})

    def _is_contiguous(self, stage: Stage) -> bool:
        """Whether neighbouring lanes read neighbouring elements."""
        lane = Var(stage.axes[innermost_axis(stage)].name)
        return all(
            lane.name not in variables(index)
            for load in loads(stage.body)
            for index in load.indices[:-1]
            if load.buffer.layout is None
        )

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = Schedule(self.function)
        stages = self.program.stages
        kept: list[Stage] = []
        if len(self.outputs) == 1:
            kept = inline_once(schedule, stages)
        else:
            outputs = {stage.buffer.name for stage in self.outputs}
            for stage in stages:
                if stage.buffer.name not in outputs:
                    schedule.inline(stage.buffer.name)
        for stage in self.outputs:
            self._nest(schedule, stage, decisions, kept)
        return schedule

    def _nest(
        self, schedule: Schedule, stage: Stage, decisions: Decisions, kept: list[Stage]
    ) -> None:
        """Schedules the nest of one output."""
        name, lane = stage.buffer.name, innermost_axis(stage)
        outer = [f"{name}_{axis.name}" for axis in stage.axes]
        inner = outer.pop(lane)
        for _ in range(0 if kept else self._joined(stage)):
            before = outer.pop()
            inner = schedule.fuse(before, inner, f"{before}_{inner.rpartition('_')[2]}")
        total = loop_extents(schedule.function)[inner]
        width = min(self.machine.lanes * decisions["vectors"], total)
        chunk, rest = schedule.split(inner, width, f"{name}_chunk", f"{name}_rest")
        vector, lanes = schedule.split(rest, self.machine.lanes, f"{name}_vector", f"{name}_lane")
        if lane < len(stage.axes) - 1:
            outer.insert(lane, chunk)
        else:
            outer.append(chunk)
        schedule.reorder(*outer, vector, lanes)
        keep_values(schedule, kept, vector, lane)
        schedule.vectorize(lanes)
        schedule.unroll(vector)
        if decisions["parallel"]:
            share(schedule, outer, self.machine.threads)

    def _joined(self, stage: Stage) -> int:
        """How many axes before the last can be walked as one with it: in every buffer either all
        of them lie together, plain and read in order, or none is used."""
        if innermost_axis(stage) != len(stage.axes) - 1 or not _is_plain(stage.buffer.layout):
            return 0
        for count in range(len(stage.axes) - 1, 0, -1):
            if all(
                s.buffer.shape == stage.buffer.shape
                and all(_walks(load, s.axes[-count - 1 :]) for load in loads(s.body))
                for s in self.program.stages
            ):
                return count
        return 0


def _walks(load: Load, suffix: tuple[Axis, ...]) -> bool:
    """Whether a load runs along the axes of `suffix` together, or along none of them."""
    names, count = {axis.name for axis in suffix}, len(suffix)
    if not any(names & variables(index) for index in load.indices):
        return True
    if not _is_plain(load.buffer.layout) or len(load.indices) < count:
        return False
    if any(names & variables(index) for index in load.indices[:-count]):
        return False
    tail = zip(load.indices[-count:], suffix, load.buffer.shape[-count:], strict=True)
    return all(index == Var(axis.name) and extent == axis.extent for index, axis, extent in tail)


def _is_plain(layout: Layout | None) -> bool:
    return layout is None or layout.is_plain
