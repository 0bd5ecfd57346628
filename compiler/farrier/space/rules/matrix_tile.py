"""Matrix products of bf16: a block of tiles in tile registers, each updated by whole tiles.

    for panel, block in parallel:        `wide` tiles of lanes, `high` tiles of rows
        for 32 of the reduction:         sum[tile] += rows[32 k] x lanes[32 k], for each tile
        for each tile:                   from its register to memory of the thread's own
        epilogue, store                  on vectors, from there

The weights lie as the tiles want them: in panels, pairs of the reduction beside each other. Where
rows or lanes do not divide evenly, the register tile of vectors remains.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from farrier.intrinsics.x86 import AMX_DEPTH, AMX_FEATURES, AMX_LANES, AMX_ROWS
from farrier.ir.expr import Binary, Cast, Reduce, Scope, Var
from farrier.ir.loop import Function
from farrier.ir.tensor import Program
from farrier.ir.types import DType, Layout, PhysicalDim
from farrier.lower.loops import to_loops
from farrier.schedule import Schedule
from farrier.space.contraction import (
    Contraction,
    extent_of,
    find_contraction,
    innermost_axis,
    is_constant,
    volume,
)
from farrier.space.dot_products import neighbours
from farrier.space.epilogue import inline_once, keep_values, operations
from farrier.space.machine import Machine
from farrier.space.nests import join
from farrier.space.operands import accumulate, by_first_use, without_halos
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.target import Target

NAME = "matrix_tile"
_REGISTERS = 8
_FEWEST_ROWS = 8  # of a tile: with fewer, multiplying is no faster than vectors do it
_SIDES = (1, 2, 3)  # tiles of a block along each side
_LOAD_CYCLES = 0.5  # a row of a tile, from the first-level cache
_EXPOSED = 0.35  # of the shorter of arithmetic and memory traffic
_EXPOSED_AHEAD = 0.2  # where the next panel is fetched ahead


def space(program: Program, target: Target, threads: int) -> Space | None:
    """The space of a product of rows with constant lanes, both bf16; None for any other program,
    and for a target without such tiles."""
    if not set(target.features) >= AMX_FEATURES or program.dims:
        return None
    program = by_first_use(without_halos(program))
    found = find_contraction(program)
    if found is None or not _fits(found):
        return None
    program = accumulate(program)
    sums = (isinstance(stage.body, Reduce) for stage in program.stages)
    program = accumulate(program, list(sums).index(True))
    made = find_contraction(program)
    assert made is not None  # what rewrites a contraction leaves a contraction
    kernel = _Kernel(program, made, Machine.of(target, threads))
    return Space.of(NAME, kernel) if kernel.rows else None


def _fits(found: Contraction) -> bool:
    """Whether tiles of both operands are rows in memory, or can be made so."""
    point, lane = found.point_load, found.lane_load
    body = found.stage.body
    assert isinstance(body, Reduce)
    if found.padded or found.depthwise or found.stage.buffer.dtype is not DType.F32:
        return False
    if (point.buffer.dtype, lane.buffer.dtype) != (DType.BF16, DType.BF16):
        return False
    if len(found.reduction) != 1 or not is_constant(lane) or not _row_axis(found):
        return False
    (k,) = found.reduction
    if neighbours(found, point, AMX_DEPTH) != k or extent_of(found.stage, k) % AMX_DEPTH:
        return False
    is_left = isinstance(body.body, Binary) and body.body.left == Cast(DType.F32, point)
    whole = extent_of(found.stage, found.lane) % AMX_LANES == 0
    return is_left and whole and Var(found.lane) not in point.indices


def _row_axis(found: Contraction) -> str:
    """The axis along which tiles have their rows, "" where none will do."""
    points = [axis for axis in found.points if extent_of(found.stage, axis) > 1]
    return points[-1] if points and Var(points[-1]) in found.point_load.indices else ""


@dataclasses.dataclass(frozen=True)
class _Kernel:
    """One product: the sum in registers, its copy in memory, what follows."""

    program: Program
    contraction: Contraction
    machine: Machine

    @functools.cached_property
    def function(self) -> Function:
        return to_loops(self.program)

    @property
    def row(self) -> str:
        return _row_axis(self.contraction)

    @property
    def depth(self) -> str:
        return self.contraction.reduction[0]

    @property
    def rows(self) -> tuple[int, ...]:
        """The counts of rows that a tile may have."""
        whole = self._extent(self.row)
        return tuple(r for r in range(_FEWEST_ROWS, AMX_ROWS + 1) if whole % r == 0)

    def _extent(self, axis: str) -> int:
        return extent_of(self.contraction.stage, axis)

    # -- decisions ------------------------------------------------------------------------------

    def knobs(self) -> tuple[Knob, ...]:
        return (
            Knob("rows", self.rows),
            Knob("high", _SIDES),
            Knob("wide", _SIDES),
            Knob("order", (0, 1)),  # 1: all panels of a block of rows follow one another
            Knob("prefetch", (0, 1)),
        )

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """The totals and one step's operands are registers; blocks divide rows and lanes evenly."""
        high, wide = columns["high"], columns["wide"]
        rows = columns["rows"] * high
        lanes = AMX_LANES * wide
        fits = high * wide + high + wide <= _REGISTERS
        fits &= self._extent(self.row) % rows == 0
        fits &= self._extent(self.contraction.lane) % lanes == 0
        ahead = (columns["order"] == 0) & (lanes < self._extent(self.contraction.lane))
        fits &= (columns["prefetch"] == 0) | ahead
        return np.asarray(fits)

    def estimate(self, columns: Columns) -> Estimate:
        machine, found = self.machine, self.contraction
        high, wide, rows = (columns[name].astype(np.float64) for name in ("high", "wide", "rows"))
        steps = self._extent(self.depth) / AMX_DEPTH
        panels = self._extent(found.lane) / (AMX_LANES * wide)
        others = volume(found.stage, tuple(a for a in found.points if a != self.row))
        blocks = panels * self._extent(self.row) / (rows * high) * others
        multiply = steps * high * wide * rows
        loads = steps * (high * rows + wide * AMX_ROWS) * _LOAD_CYCLES
        panel_bytes = steps * wide * AMX_ROWS * 64
        point_bytes = steps * high * rows * 64
        near = panel_bytes + point_bytes <= 0.6 * machine.l1_bytes
        again = np.where(columns["order"] == 1, panel_bytes, point_bytes)
        l2 = np.where(near, again, panel_bytes + point_bytes) / machine.l2_bandwidth
        finish = high * wide * rows * (2.0 + 0.5 * operations(found.epilogue)) + 60.0
        cycles = np.maximum(np.maximum(multiply, loads), l2) + 0.1 * (loads + l2) + finish
        balance = np.ceil(blocks / machine.threads) / (blocks / machine.threads)
        busy = blocks * cycles * balance / machine.threads / machine.hertz
        cold = found.lane_load.buffer.scope is Scope.CONSTANT
        lane_bytes = self._extent(found.lane) * self._extent(self.depth) * 2.0
        memory = np.full(len(high), lane_bytes / machine.memory_bandwidth * cold)
        exposed = np.where(columns["prefetch"] > 0, _EXPOSED_AHEAD, _EXPOSED)
        seconds = np.maximum(busy, memory) + exposed * np.minimum(busy, memory)
        terms = {
            "compute": blocks * multiply / machine.hertz,
            "load": blocks * loads / machine.hertz,
            "l2": blocks * l2 / machine.hertz,
            "memory": memory,
            "overhead": machine.fork_join + blocks * finish / machine.hertz,
            "tiles": blocks * high * wide,
            "balance": balance,
            "registers": (high * wide + high + wide) / _REGISTERS,
        }
        return Estimate(seconds + machine.fork_join, terms)

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        """Tiles the output; computes a block's sum in registers, copies it, and applies what
        follows to the copy."""
        schedule = Schedule(self.function)
        found = self.contraction
        total, copy = found.stage.buffer.name, found.epilogue[0].buffer.name
        rows, lanes = decisions["rows"], AMX_LANES * decisions["wide"]
        self._lay_out_weights(schedule, lanes)
        kept = inline_once(schedule, found.epilogue[1:])
        outer = self._tile_output(schedule, rows * decisions["high"], lanes, decisions["order"])
        keep_values(schedule, kept, "vector", innermost_axis(found.stage))
        schedule.compute_at(copy, outer[-1])
        schedule.compute_at(total, outer[-1])
        schedule.set_scope(total, Scope.REGISTER)
        step, product = schedule.split(f"{total}_{self.depth}", AMX_DEPTH, "step", "product")
        calls = {
            "amx_zero": self._tile(schedule, f"{total}_init", "zero", rows),
            "amx_dot_bf16": self._tile(schedule, total, "sum", rows, step, product),
            "amx_store": self._tile(schedule, copy, "copy", rows),
        }
        if decisions["prefetch"]:
            schedule.prefetch(found.lane_load.buffer.name, "panel", step)
        for intrinsic, loop in calls.items():
            schedule.tensorize(loop, f"{intrinsic}_{rows}")
        schedule.parallel(join(schedule, outer))
        return schedule

    def _lay_out_weights(self, schedule: Schedule, panel: int) -> None:
        load = self.contraction.lane_load
        lane, depth = (load.indices.index(Var(a)) for a in (self.contraction.lane, self.depth))
        rest = (PhysicalDim(at) for at in range(len(load.indices)) if at not in (lane, depth))
        inner = (PhysicalDim(depth, 2), PhysicalDim(lane, 1, panel), PhysicalDim(depth, 1, 2))
        layout = Layout((*rest, PhysicalDim(lane, panel), *inner))
        schedule.transform_layout(load.buffer.name, layout)

    def _tile_output(self, schedule: Schedule, rows: int, lanes: int, order: int) -> list[str]:
        """Splits the nest that writes the output; gives the loops around a block."""
        found = self.contraction
        prefix = found.output.buffer.name
        loops = {
            inner.name: f"{prefix}_{outer.name}"
            for inner, outer in zip(found.stage.axes, found.output.axes, strict=True)
        }
        schedule.split(loops[found.lane], lanes, "panel", "in_panel")
        schedule.split("in_panel", AMX_LANES, "vector", "lane")
        schedule.split(loops[self.row], rows, "block", "in_block")
        outer = [loops[axis] for axis in loops if axis not in (found.lane, self.row)]
        outer += ["block", "panel"] if order else ["panel", "block"]
        schedule.reorder(*outer, "in_block", "vector", "lane")
        schedule.vectorize("lane")
        schedule.unroll("vector")
        return outer

    def _tile(
        self, schedule: Schedule, prefix: str, short: str, rows: int, step: str = "", part: str = ""
    ) -> str:
        """Splits one of the block's nests into tiles, with the loop `step` around them and `part`
        within; gives the loop that is a whole tile."""
        found = self.contraction
        others = [
            f"{prefix}_{axis.name}"
            for axis in found.stage.axes
            if axis.name not in (self.row, found.lane)
        ]
        tile, row = schedule.split(f"{prefix}_{self.row}", rows, f"{short}_tile", f"{short}_row")
        vector, lane = schedule.split(
            f"{prefix}_{found.lane}", AMX_LANES, f"{short}_vector", f"{short}_lane"
        )
        order = (*others, step, tile, vector, row, lane, part)
        schedule.reorder(*(loop for loop in order if loop))
        schedule.unroll(tile)
        schedule.unroll(vector)
        return row
