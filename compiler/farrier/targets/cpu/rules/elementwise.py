"""Rule: programs without reductions, which compute elementwise or move elements.

Each output is one loop nest, vectorized along the contiguous axis of the output. Threads share the
outer axes if there is enough work. Axes that are contiguous in every buffer are fused, so that a
tensor with a short last axis still fills vectors.

    for outer in parallel:
        for chunk, vector:  y[outer, chunk, vector, lane] = f(x[…])

If an input is contiguous along another axis than the output, the nest is tiled by squares: the
input's rows are loaded as vectors and transposed in registers.

    for outer in parallel:
        rows[i] = x[…, i, lanes]
        for column:  y[outer, column, lanes] = f(rows[lanes][column])
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from farrier.intrinsics import vector_axis
from farrier.ir.dim import Extent, is_less, typical
from farrier.ir.expr import Axis, Expr, Load, Reduce, Var
from farrier.ir.loop import Store
from farrier.ir.substitute import loads, variables
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.walk import walk
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.space.operations import operations, reads_of
from farrier.space.rewrites import without_halos
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units.contraction import innermost_axis, is_elementwise
from farrier.targets.cpu.units.epilogue import inline_once, keep_values
from farrier.targets.cpu.units.nests import exact_extents, loop_extents, share
from farrier.targets.cpu.units.program_kernel import ProgramKernel
from farrier.targets.cpu.units.squares import SMALLEST, turn_squares

RULE = RuleId("elementwise", version=7)
# A second thread pays off for kernels that move at least this number of bytes.
_WORTH_SHARING = 32 << 10

_EXPOSED = 0.1  # The share of the shorter of arithmetic and traffic that the longer does not hide.
_TURNING = 6.0  # The cycles for each vector to transpose.


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space | None:
    """Return the schedule space of a program without Reduce whose results are not scalars; None for
    any other program."""
    plain_program = without_halos(program)
    if any(isinstance(stage.body, Reduce) or not stage.axes for stage in plain_program.stages):
        return None
    if len(plain_program.outputs) > 1 and _is_tangled(plain_program):
        return None
    kernel = ElementwiseKernel(plain_program, target.machine(threads))
    return Space.of(RULE, kernel)


def _is_tangled(program: TensorProgram) -> bool:
    """Check whether the program is unsuitable because some stage is read at several places, or a
    later stage reads an output."""
    outputs = {buffer.name for buffer in program.outputs}
    counts = {s.buffer.name: reads_of(s.buffer.name, program.stages) for s in program.stages}
    return any(count > (name not in outputs) for name, count in counts.items())


@dataclasses.dataclass(frozen=True, slots=True)
class _Across:
    """The inputs that are contiguous along another axis than the output, and that axis."""

    axis: str
    buffers: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ElementwiseKernel(ProgramKernel):
    program: TensorProgram
    machine: Machine

    @functools.cached_property
    def outputs(self) -> list[Stage]:
        return [self.program.stage(buffer.name) for buffer in self.program.outputs]

    @functools.cached_property
    def bytes_moved(self) -> int:
        return sum(typical(b.nbytes) for b in (*self.program.inputs, *self.program.outputs))

    def knobs(self) -> tuple[Knob, ...]:
        worth = self.bytes_moved >= _WORTH_SHARING and self.machine.threads > 1
        return (Knob("vectors", (1, 2, 4)), Knob("parallel", (0, 1) if worth else (0,)))

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        return np.ones(len(columns["vectors"]), bool)

    def estimate(self, columns: Columns) -> Estimate:
        """Estimate the time of each candidate: the longer of its arithmetic and its data transfer
        at the caches' bandwidth."""
        machine, vectors = self.machine, columns["vectors"].astype(np.float64)
        elements = sum(typical(stage.buffer.type.size) for stage in self.outputs)
        steps = elements / machine.lanes
        work = operations(self.program.stages) / machine.fma_ports + 2.0 / vectors
        scattered = not all(self._is_contiguous(stage) for stage in self.outputs)
        work += _TURNING * scattered
        traffic = self.bytes_moved / machine.bandwidth(self.bytes_moved)
        cycles = np.maximum(steps * work, traffic) + _EXPOSED * np.minimum(steps * work, traffic)
        workers = np.where(columns["parallel"] > 0, machine.threads, 1)
        seconds = cycles / machine.hertz / workers + machine.fork_join * (workers > 1)
        memory = np.full(len(vectors), traffic / machine.hertz)
        return Estimate(seconds, {"memory": memory, "code": vectors * operations(self.outputs)})

    def _is_contiguous(self, stage: Stage) -> bool:
        """Check whether all loads of a stage read adjacent elements in adjacent lanes."""
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
        """Schedule the loop nest of one output: vectorize it, or transpose it in squares, and share
        it among the threads. `kept` are the earlier stages that are computed in registers."""
        name, lane = stage.buffer.name, innermost_axis(stage)
        outer = [f"{name}_{axis.name}" for axis in stage.axes]
        across = None if kept else self._read_across(schedule, stage)
        if across is not None:
            buffers = [b for b in self.program.inputs if b.name in across.buffers]
            lane_axis, width = stage.axes[lane].name, self.machine.lanes
            around = turn_squares(schedule, stage, across.axis, lane_axis, buffers, width)
            if decisions["parallel"]:
                share(schedule, around, self.machine.threads)
            return
        inner = outer.pop(lane)
        for _ in range(0 if kept else self._joined(stage)):
            before = outer.pop()
            inner = schedule.fuse(before, inner, f"{before}_{inner.rpartition('_')[2]}")
        total = self._most_lanes(exact_extents(schedule.function)[inner])
        width = min(self.machine.lanes * decisions["vectors"], total)
        chunk, rest = schedule.split(inner, width, f"{name}_chunk", f"{name}_rest")
        vector, lanes = schedule.split(rest, self.machine.lanes, f"{name}_vector", f"{name}_lane")
        if lane < len(stage.axes) - 1:
            outer.insert(lane, chunk)
        else:
            outer.append(chunk)
        schedule.reorder(*outer, vector, lanes)
        if all(is_elementwise(s, self.program) for s in self.program.stages):
            keep_values(schedule, kept, vector, lane)
        else:  # Lanes read elements of other lanes, so these must be in memory.
            for other in reversed(kept):
                schedule.compute_at(other.buffer.name, vector)
        schedule.vectorize(lanes)
        schedule.unroll(vector)
        if decisions["parallel"]:
            share(schedule, outer, self.machine.threads)

    def _most_lanes(self, extent: Extent) -> int:
        """Return the number of lanes that an axis can fill. The typical extent of an open (dynamic)
        axis is rounded up to whole vectors, because the last vector overlaps the one before it."""
        if isinstance(extent, int):
            return max(extent, 1)
        lanes = self.machine.lanes
        return max(-(-typical(extent) // lanes), 1) * lanes

    def _read_across(self, schedule: Schedule, stage: Stage) -> _Across | None:
        """Return the inputs whose elements are contiguous along an axis other than that of the
        output's vectors, so that loads of vectors would be strided. Return None if there are none,
        or if they are contiguous along several different axes."""
        name, lane = (
            stage.buffer.name,
            f"{stage.buffer.name}_{stage.axes[innermost_axis(stage)].name}",
        )
        stores = [s for s in walk(schedule.function.body) if isinstance(s, Store)]
        value = next(s.value for s in stores if s.buffer.name == name)
        read: dict[str, set[tuple[Expr, ...]]] = {}
        along: dict[str, Expr] = {}
        for load in loads(value):
            used = set().union(*map(variables, load.indices), set())
            if lane in used and load.indices[vector_axis(load.buffer)] != Var(lane):
                along[load.buffer.name] = load.indices[vector_axis(load.buffer)]
            read.setdefault(load.buffer.name, set()).add(load.indices)
        axes = set(along.values())
        if len(axes) != 1 or any(len(read[buffer]) > 1 for buffer in along):
            return None
        axis, extents = axes.pop(), loop_extents(schedule.function)
        if not isinstance(axis, Var) or min(extents[axis.name], extents[lane]) < SMALLEST:
            return None
        return _Across(axis.name.removeprefix(f"{name}_"), tuple(along))

    def _joined(self, stage: Stage) -> int:
        """Return how many of the axes before the last can be fused with it. In every buffer, these
        axes must either be contiguous, row-major and read in order, or not be used at all. Extents
        must not be 0, because indices are recovered by division by the extents."""
        if innermost_axis(stage) != len(stage.axes) - 1 or not stage.buffer.is_plain:
            return 0
        for count in range(len(stage.axes) - 1, 0, -1):
            if all(is_less(0, axis.extent) for axis in stage.axes[-count:]) and all(
                s.buffer.shape == stage.buffer.shape
                and all(_walks(load, s.axes[-count - 1 :]) for load in loads(s.body))
                for s in self.program.stages
            ):
                return count
        return 0


def _walks(load: Load, suffix: tuple[Axis, ...]) -> bool:
    """Check whether a load reads consecutive elements along all axes of `suffix`, or does not
    depend on any of these axes."""
    names, count = {axis.name for axis in suffix}, len(suffix)
    if not any(names & variables(index) for index in load.indices):
        return True
    if not load.buffer.is_plain or len(load.indices) < count:
        return False
    if any(names & variables(index) for index in load.indices[:-count]):
        return False
    tail = zip(load.indices[-count:], suffix, load.buffer.shape[-count:], strict=True)
    return all(index == Var(axis.name) and extent == axis.extent for index, axis, extent in tail)
