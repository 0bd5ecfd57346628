"""Rule: products with few columns or few rows, vectorized along the summed axis.

One operand is long, the other small. Examples are a matrix times a matrix of a few columns, and a
few rows times a transposed matrix that is not constant. The long operand must be contiguous along
the summed axis, and is read once. The small operand must be contiguous along the summed axis as
well; if it is not, it gets another layout (if it is constant) or is copied. A tile combines several
rows of the long operand with the whole small operand. It keeps a vector of partial sums in
registers for each result.

    for row in parallel:                                  y[m, n] = sum(x[m, k] * w[k, n])
        for k:  part[row, n, lane] += x[row, k + lane] * packed[n, k + lane]
        for row, n:  y[row, n] = sum(part[row, n, lane])
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from farrier.intrinsics import vector_axis
from farrier.ir.dim import number, typical
from farrier.ir.dim import product as volume
from farrier.ir.expr import Axis, Buffer, Load, MemoryScope, Reduce, ReduceOp, Var
from farrier.ir.substitute import variables
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import Layout, PhysicalDim
from farrier.ir.walk import rewrite
from farrier.lower.contiguous_axes import with_joined_axes
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.space.operations import JOIN_CYCLES, operations
from farrier.space.rewrites import accumulate, replaced, without_halos
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units.contraction import SUMS, factors_of, is_elementwise, is_permuted
from farrier.targets.cpu.units.nests import share
from farrier.targets.cpu.units.operands import by_first_use, pack
from farrier.targets.cpu.units.program_kernel import ProgramKernel
from farrier.targets.cpu.units.row_kernel import WORTH_SHARING

RULE = RuleId("inner_product", version=1)
PACKED = "packed"
_ROWS = (1, 2, 4, 8)
# A tile has at most eight rows or columns of the small operand: half the lanes of AVX-512.
_WIDEST = 8
# The small operand is copied if the long one has at least sixteen times its elements.
_WORTH_COPYING = 16
# The share of the shorter of arithmetic and traffic that does not overlap (as in `elementwise`).
_EXPOSED = 0.1


@dataclasses.dataclass(frozen=True)
class _Product:
    """A sum of products with a long and a small operand, and the roles of its axes."""

    stage: Stage
    long: Load
    small: Load
    along: Axis  # The reduced axis along which the long operand is contiguous.
    rows: Axis  # The last axis on which only the long operand depends.
    width: Axis | None  # The axis on which only the small operand depends.


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space | None:
    """Return the schedule space of a product whose long operand is contiguous along the summed
    axis, and whose small operand has at most `_WIDEST` rows or columns; None for any other
    program."""
    plain = by_first_use(with_joined_axes(without_halos(program)))
    machine = target.machine(threads)
    product = _product(plain, machine)
    if product is None:
        return None
    if not _lies_along(product.small, product.along) and not _is_constant(product.small):
        plain = _with_copy(plain, product)
    plain = accumulate(plain)
    product = _product(plain, machine)
    assert product is not None  # The program with a copied operand is still a product.
    own = machine.for_elements(product.stage.buffer.dtype)
    return Space.of(RULE, InnerProductKernel(plain, product, own))


def _product(program: TensorProgram, machine: Machine) -> _Product | None:
    """Return the product that a program computes, if it consists of a single product followed by
    elementwise stages; None for any other program."""
    stages = [stage for stage in program.stages if stage.buffer.name != PACKED]
    stage, *rest = stages
    body = stage.body
    if not isinstance(body, Reduce) or body.op is not ReduceOp.SUM or len(program.outputs) != 1:
        return None
    factors = factors_of(body.body)
    if stage.buffer.dtype not in SUMS or factors is None or factors[1]:
        return None
    output = stages[-1].buffer
    if output.name != program.outputs[0].name or not output.is_plain:
        return None
    if not all(is_elementwise(other, program) for other in rest):
        return None
    operands = factors[0]
    if not all(is_permuted(load) and load.buffer.is_plain for load in operands):
        return None
    small, long = sorted(operands, key=lambda load: typical(load.buffer.type.size))
    return _roles(stage, long, small, machine.for_elements(stage.buffer.dtype))


def _roles(stage: Stage, long: Load, small: Load, machine: Machine) -> _Product | None:
    """Return the roles of the axes in the product of `long` and `small`, or None if this rule does
    not apply or the tiles of another rule are faster."""
    assert isinstance(stage.body, Reduce)
    in_long, in_small = (
        {name for index in load.indices for name in variables(index)} for load in (long, small)
    )
    along = next((axis for axis in stage.body.axes if _lies_along(long, axis)), None)
    rows = [axis for axis in stage.axes if axis.name in in_long - in_small]
    wide = [axis for axis in stage.axes if axis.name in in_small - in_long and axis.extent != 1]
    if along is None or along.name not in in_small or not rows or len(wide) > 1:
        return None
    width = wide[0] if wide else None
    extent = 1 if width is None else width.extent
    if typical(along.extent) < machine.lanes or not isinstance(extent, int):
        return None
    if not 0 < extent <= _WIDEST or (width is stage.axes[-1] and 2 * extent >= machine.lanes):
        return None
    # The layout of a constant can be chosen for vectors of rows without a copy, so another rule is
    # better.
    if _is_constant(long) or typical(rows[-1].extent) < machine.lanes:
        return None
    is_small = typical(small.buffer.type.size) * _WORTH_COPYING <= typical(long.buffer.type.size)
    if not (_lies_along(small, along) or _is_constant(small) or is_small):
        return None
    return _Product(stage, long, small, along, rows[-1], width)


def _is_constant(load: Load) -> bool:
    return load.buffer.scope is MemoryScope.CONSTANT


def _lies_along(load: Load, axis: Axis) -> bool:
    """Check whether an operand is contiguous in memory along an axis."""
    return bool(load.indices) and load.indices[vector_axis(load.buffer)] == Var(axis.name)


def _with_copy(program: TensorProgram, product: _Product) -> TensorProgram:
    """Return the program with a copy of the small operand that is contiguous along the summed axis.

    before:  y[m, n] = sum(x[m, k] * w[k, n])
    after:   packed[n, k] = w[k, n]
             y[m, n] = sum(x[m, k] * packed[n, k])
    """
    stage, load = product.stage, product.small
    assert isinstance(stage.body, Reduce)
    used = {name for index in load.indices for name in variables(index)}
    axes = [axis for axis in (*stage.axes, *stage.body.axes) if axis.name in used]
    axes.sort(key=lambda axis: axis == product.along)
    shape = tuple(axis.extent for axis in axes)
    buffer = Buffer(PACKED, load.buffer.dtype, shape, None, MemoryScope.WORKSPACE)
    copy = Load(buffer, tuple(Var(axis.name) for axis in axes))
    body = rewrite(stage.body, lambda node: copy if node == load else node)
    reading = dataclasses.replace(stage, body=body)
    return replaced(program, stage, Stage(buffer, tuple(axes), load), reading)


@dataclasses.dataclass(frozen=True)
class InnerProductKernel(ProgramKernel):
    program: TensorProgram
    product: _Product
    machine: Machine

    @property
    def output(self) -> Stage:
        return self.program.stages[-1]

    @property
    def width(self) -> int:
        return 1 if self.product.width is None else number(self.product.width.extent)

    @functools.cached_property
    def sums(self) -> int:
        """The number of results of the product at typical sizes."""
        return typical(self.product.stage.buffer.type.size)

    @functools.cached_property
    def steps(self) -> float:
        """The number of vectors in one row of the long operand."""
        assert isinstance(self.product.stage.body, Reduce)
        terms = typical(volume(axis.extent for axis in self.product.stage.body.axes))
        return max(terms / self.machine.lanes, 1.0)

    def knobs(self) -> tuple[Knob, ...]:
        rows = typical(self.product.rows.extent)
        shared = self.machine.threads > 1 and self.sums * self.steps > WORTH_SHARING
        return (
            Knob("rows", tuple(count for count in _ROWS if count <= max(rows, 1))),
            Knob("parallel", (0, 1) if shared else (0,)),
        )

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Check for each candidate that the registers hold the partial sums and one vector for each
        row and column of a tile."""
        rows = columns["rows"]
        fits: npt.NDArray[np.bool_] = (
            rows * self.width + rows + self.width <= self.machine.registers
        ) | (rows == 1)
        return fits

    def estimate(self, columns: Columns) -> Estimate:
        """Estimate the time of each candidate: the longest of multiply-adds, loads and latency in
        each step, or the transfer from memory if that is longer."""
        machine, rows = self.machine, columns["rows"].astype(np.float64)
        sums = rows * self.width
        loads = (rows + self.width) / machine.load_ports
        step = np.maximum(np.maximum(sums / machine.fma_ports, loads), machine.fma_latency)
        tiles = self.sums / sums
        cycles = tiles * (
            self.steps * step + sums * JOIN_CYCLES + operations((self.output,)) * sums
        )
        moved = sum(typical(b.nbytes) for b in (*self.program.inputs, *self.program.outputs))
        traffic = moved / machine.bandwidth(moved)
        cycles = np.maximum(cycles, traffic) + _EXPOSED * np.minimum(cycles, traffic)
        workers = np.where(columns["parallel"] > 0, machine.threads, 1)
        seconds = cycles / machine.hertz / workers + machine.fork_join * (workers > 1)
        peak = machine.lanes * machine.fma_ports * machine.hertz
        compute = self.sums * self.steps * machine.lanes / peak
        return Estimate(seconds, {"compute": np.full(len(rows), compute), "tiles": tiles})

    def schedule(self, decisions: Decisions) -> Schedule:
        """Tile the output by rows, compute the partial sums of each tile in registers, and add up
        their lanes."""
        schedule, product = Schedule(self.function), self.product
        stages = [stage for stage in self.program.stages if stage.buffer.name != PACKED]
        for stage in stages[1:-1]:
            schedule.inline(stage.buffer.name)
        outer, batches = self._tile_output(schedule, decisions["rows"])
        schedule.compute_at(product.stage.buffer.name, outer[-1])
        if _is_constant(product.small):
            self._lay_out(schedule)
        self._sum(schedule)
        shared = outer
        if len(stages) < len(self.program.stages):
            copy = self.program.stage(PACKED)
            if batches:
                schedule.compute_at(PACKED, batches[-1])
                shared = batches
            pack(schedule, copy, self.machine.lanes)
        if decisions["parallel"]:
            share(schedule, shared, self.machine.threads)
        return schedule

    def _tile_output(self, schedule: Schedule, rows: int) -> tuple[list[str], list[str]]:
        """Order the loops over the output. Return two lists: the loops around a tile, and those
        loops among them on whose variable the small operand depends."""
        name, product = self.output.buffer.name, self.product
        small = {name for index in product.small.indices for name in variables(index)}
        names = {
            inner.name: outer.name
            for inner, outer in zip(product.stage.axes, self.output.axes, strict=True)
        }
        batches = [
            f"{name}_{names[a.name]}"
            for a in product.stage.axes
            if a.name in small and a is not product.width
        ]
        others = [
            f"{name}_{names[a.name]}"
            for a in product.stage.axes
            if a.name not in small and a is not product.rows
        ]
        tile, in_tile = schedule.split(f"{name}_{names[product.rows.name]}", rows)
        outer, inner = [*batches, *others, tile], [in_tile]
        if product.width is not None:
            inner.append(f"{name}_{names[product.width.name]}")
        last = self.output.axes[-1].name
        inner.sort(key=lambda loop: loop == in_tile and names[product.rows.name] == last)
        schedule.reorder(*outer, *inner)
        schedule.vectorize(inner[-1])
        for loop in inner[:-1]:
            schedule.unroll(loop)
        return outer, batches

    def _lay_out(self, schedule: Schedule) -> None:
        """Change the layout of the small operand, if it is constant, so that it is contiguous along
        the summed axis."""
        load = self.product.small
        along = load.indices.index(Var(self.product.along.name))
        order = sorted(range(len(load.indices)), key=lambda at: at == along)
        schedule.transform_layout(load.buffer.name, Layout(tuple(map(PhysicalDim, order))))

    def _sum(self, schedule: Schedule) -> None:
        """Keep a vector of partial sums in registers for each result of a tile."""
        product, lanes = self.product, self.machine.lanes
        assert isinstance(product.stage.body, Reduce)
        name = product.stage.buffer.name
        points = [f"{name}_{axis.name}" for axis in product.stage.axes]
        others = [f"{name}_{a.name}" for a in product.stage.body.axes if a is not product.along]
        step, lane = schedule.split(f"{name}_{product.along.name}", lanes)
        part = f"{name}_part"
        schedule.rfactor(lane, part)
        schedule.reorder(*others, step, *points, lane)
        for prefix in (f"{part}_init_", f"{part}_", ""):
            for loop in points:
                schedule.unroll(f"{prefix}{loop}")
            schedule.vectorize(f"{prefix}{lane}")
        for loop in points:
            schedule.unroll(f"{name}_init_{loop.removeprefix(f'{name}_')}")
        schedule.set_scope(part, MemoryScope.REGISTER)
