"""Products in tile registers: a block of tiles, each updated by whole tiles.

    for panel, block in parallel:        `wide` vectors of lanes, `lines` × `high` tiles of rows
        for a step of the reduction:     sum[tile] += rows[k] x lanes[k], for each tile
        for each tile:                   from its register to memory of the thread's own
        epilogue, store                  on vectors, from there

Which operands there are products of, and how deep one goes, the target declares
(`CpuBackend.tile_units`). Of AMX a row of the left one is 64 bytes of the reduction: 32 of bf16, 64
of u8; of NEON it is up to 16 bytes of bf16 or integers, and up to 64 of f16. The rows are those of
a matrix product, or the points along a line of an image, as far apart as a convolution's windows;
the reduction then also runs over the taps. Of an image in blocks of 16 channels an instruction of
AMX takes 16 of them, at half the rate in bf16, at a quarter in u8. The weights lie as the tiles
want them: in panels, groups of the reduction beside each other. The last block of rows begins early
enough to be whole. Where lanes do not divide evenly, the register tile of vectors remains.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from farrier.intrinsics import TileProduct
from farrier.ir.dim import typical
from farrier.ir.expr import Binary, Cast, MemoryScope, Reduce, Var
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.ir.types import Layout, PhysicalDim
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Ints, Machine
from farrier.space.space import Columns, Decisions, Estimate, Floats, Knob, Space
from farrier.targets import Target
from farrier.targets.cpu.space import microkernel
from farrier.targets.cpu.space.contraction import (
    Contraction,
    extent_of,
    find_contraction,
    group_size,
    innermost_axis,
    is_constant,
    volume,
    window_along,
)
from farrier.targets.cpu.space.dot_products import neighbours
from farrier.targets.cpu.space.epilogue import inline_once, keep_values, operations
from farrier.targets.cpu.space.nests import loop_extents, run_parallel
from farrier.targets.cpu.space.operands import accumulate, by_first_use, without_halos
from farrier.targets.cpu.space.tile_unit import TileUnit, panels_cover, row_counts, unit_of

RULE = RuleId("matrix_tile", version=7)
# Of the shorter of arithmetic and memory traffic, where the next panel is fetched ahead:
_EXPOSED_AHEAD = 0.2


def space(program: TensorProgram, target: Target, threads: int) -> Space | None:
    """The space of products of rows, or of an image's windows, with constant lanes; None for any
    other program, and for a target without tiles of such operands."""
    if program.dims:
        return None
    program = by_first_use(without_halos(program))
    found = find_contraction(program)
    unit = None if found is None else _unit(found, target)
    if found is None or unit is None:
        return None
    machine = Machine.of(target, threads)
    width = max(unit.product.lanes, machine.lanes)
    if not _fits(found, unit.product, width):
        return None
    program = accumulate(program)
    sums = (isinstance(stage.body, Reduce) for stage in program.stages)
    program = accumulate(program, list(sums).index(True))
    made = find_contraction(program)
    assert made is not None  # what rewrites a contraction leaves a contraction
    kernel = _Kernel(program, made, unit, width, machine)
    return Space.of(RULE, kernel) if kernel.rows and kernel.wide else None


def _unit(found: Contraction, target: Target) -> TileUnit | None:
    """What multiplies tiles of the operands; None where the target has nothing for them."""
    operands = found.broadcast_load.buffer.dtype, found.vector_load.buffer.dtype
    unit = unit_of(*operands, target)
    return unit if unit and found.stage.buffer.dtype is unit.product.total else None


def _fits(found: Contraction, product: TileProduct, width: int) -> bool:
    """Whether tiles of both operands are rows in memory, or can be made so, and the lanes whole
    vectors of `width`."""
    point, lane = found.broadcast_load, found.vector_load
    body = found.stage.body
    assert isinstance(body, Reduce)
    if found.padded or found.depthwise or not is_constant(lane):
        return False
    if not _tiled(found)[1] or not _depth(found, product)[1]:
        return False
    is_left = isinstance(body.body, Binary) and body.body.left == Cast(product.total, point)
    whole = extent_of(found.stage, found.lane) % width == 0
    return is_left and whole and group_size(point, found.lane) % width == 0


def _tiled(found: Contraction) -> tuple[str, str]:
    """The axes along which blocks have lines of tiles, and tiles their rows; "" where none will
    do."""
    points = [axis for axis in found.points if extent_of(found.stage, axis) > 1]
    *others, row = points or [""]
    return (others or [""])[-1], row if window_along(found, row) else ""


def _depth(found: Contraction, product: TileProduct) -> tuple[str, int]:
    """The reduced axis along which products go deep, and how many at once; ("", 0) where its
    elements do not lie together."""
    for depth in product.depths:
        axis = neighbours(found, found.broadcast_load, depth)
        if axis is not None and extent_of(found.stage, axis) % depth == 0:
            return axis, depth if Var(axis) in found.vector_load.indices else 0
    return "", 0


@dataclasses.dataclass(frozen=True)
class _Kernel:
    """One product: the sum in registers, its copy in memory, what follows."""

    program: TensorProgram
    contraction: Contraction
    unit: TileUnit
    width: int  # lanes of a vector of results: one tile's, or several tiles'
    machine: Machine

    @functools.cached_property
    def function(self) -> Function:
        return to_loops(self.program)

    @property
    def product(self) -> TileProduct:
        return self.unit.product

    @functools.cached_property
    def tiled(self) -> tuple[str, str]:
        """The axes of lines ("" for none) and rows."""
        return _tiled(self.contraction)

    @functools.cached_property
    def group(self) -> int:
        """Neighbours on the lane axis that read the same points; 0: all do."""
        return group_size(self.contraction.broadcast_load, self.contraction.lane)

    @functools.cached_property
    def depth(self) -> tuple[str, int]:
        """The reduced axis that instructions run along, and how far."""
        return _depth(self.contraction, self.product)

    @property
    def rows(self) -> tuple[int, ...]:
        """The counts of rows that a tile may have."""
        return row_counts(self.product, self._extent(self.tiled[1]))

    @property
    def wide(self) -> tuple[int, ...]:
        """The counts of vectors that a panel of the weights may have."""
        outputs, sides = self._extent(self.contraction.lane), np.array(self.unit.sides)
        panels = sides * self.width
        fits = panels_cover(panels, outputs, self._lanes) & (self.group % panels == 0)
        return tuple(map(int, sides[fits]))

    def _extent(self, axis: str) -> int:
        return extent_of(self.contraction.stage, axis) if axis else 1

    @functools.cached_property
    def _lanes(self) -> int:
        """What the loop over lanes covers: whole blocks where the layout has blocks."""
        stage, lane = self.contraction.stage, self.contraction.lane
        return loop_extents(self.function)[f"{stage.buffer.name}_{lane}"]

    # -- decisions ------------------------------------------------------------------------------

    def knobs(self) -> tuple[Knob, ...]:
        return (
            Knob("rows", self.rows),
            Knob("high", self.unit.sides),
            Knob("lines", self.unit.sides if self.tiled[0] else (1,)),
            Knob("wide", self.wide),
            Knob("order", (0, 1)),  # 1: all panels of a block of rows follow one another
            Knob("prefetch", (0, 1)),
        )

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """The totals and one step's operands are registers."""
        high, lines = columns["high"], columns["lines"]
        lanes = self.width * columns["wide"]
        fits = self._registers(columns) <= self.unit.registers
        fits &= columns["rows"] * high <= self._extent(self.tiled[1])
        fits &= lines <= self._extent(self.tiled[0])
        ahead = (columns["order"] == 0) & (lanes < self._lanes)
        fits &= (columns["prefetch"] == 0) | ahead
        return np.asarray(fits)

    @property
    def _tiles(self) -> int:
        """Tiles of a vector of results."""
        return self.width // self.product.lanes

    @property
    def _row_bytes(self) -> int:
        """Of a row that one product reduces."""
        return self.depth[1] * self.product.left.nbytes

    def _registers(self, columns: Columns) -> Ints:
        """Of a block's totals and of the operands of a step."""
        points, lanes = columns["high"] * columns["lines"], columns["wide"] * self._tiles
        return self.unit.taken(columns["rows"], self._row_bytes, points, lanes)

    def estimate(self, columns: Columns) -> Estimate:
        machine, found, unit = self.machine, self.contraction, self.unit
        names = ("high", "lines", "wide", "rows")
        high, lines, wide, rows = (columns[name].astype(np.float64) for name in names)
        tiles, lanes = high * lines, self._lanes
        depth, reduced = self.depth[1], volume(found.stage, found.reduction)
        others = volume(found.stage, tuple(a for a in found.points if a not in self.tiled))
        blocks = lanes / (self.width * wide) * others
        for axis, size in zip(self.tiled, (lines, rows * high), strict=True):
            blocks = blocks * np.ceil(self._extent(axis) / size)
        row_bytes = self._row_bytes
        multiply = wide * self._tiles * unit.cycles(rows, row_bytes) + unit.join_cycles * row_bytes
        multiply = reduced / depth * tiles * multiply
        lane_rows = wide * self._tiles * depth / self.product.group
        point_rows = tiles * rows * -(-row_bytes // unit.load_bytes)
        loads = reduced / depth * (point_rows + lane_rows) * unit.load_cycles
        panel_bytes = reduced * self.width * wide * float(self.product.right.nbytes)
        point_bytes = self._point_bytes(lines, rows * high)
        near = panel_bytes + point_bytes <= 0.6 * machine.l1_bytes
        again = np.where(columns["order"] == 1, panel_bytes, point_bytes)
        l2 = np.where(near, again, panel_bytes + point_bytes) / unit.l2_bytes
        vector = unit.finish_cycles + 0.5 * operations(found.epilogue)
        finish = tiles * wide * (self._tiles * unit.store_cycles + rows * vector)
        finish += unit.block_cycles
        cycles = np.maximum(np.maximum(multiply, loads), l2) + 0.1 * (loads + l2) + finish
        balance = np.ceil(blocks / machine.threads) / (blocks / machine.threads)
        busy = blocks * cycles * balance / machine.threads / machine.hertz
        cold = found.vector_load.buffer.scope is MemoryScope.CONSTANT
        lane_bytes = lanes * reduced * self.product.right.nbytes
        memory = np.full(len(high), lane_bytes / machine.memory_bandwidth * cold)
        exposed = np.where(columns["prefetch"] > 0, _EXPOSED_AHEAD, machine.exposed)
        seconds = np.maximum(busy, memory) + exposed * np.minimum(busy, memory)
        seconds += microkernel.shared(
            typical(found.broadcast_load.buffer.nbytes),
            lane_bytes,
            columns["prefetch"] > 0,
            columns["order"] == 0,
            machine,
        )
        terms = {
            "compute": blocks * multiply / machine.hertz,
            "load": blocks * loads / machine.hertz,
            "l2": blocks * l2 / machine.hertz,
            "memory": memory,
            "overhead": machine.fork_join + blocks * finish / machine.hertz,
            "tiles": blocks * tiles * wide * self._tiles,
            "balance": balance,
            "registers": self._registers(columns) / unit.registers,
        }
        return Estimate(seconds + machine.fork_join, terms)

    def _point_bytes(self, lines: Floats, rows: Floats) -> Floats:
        """What a block reads of the points, each element once: the windows overlap."""
        found = self.contraction
        channels = self._extent(self.depth[0])
        sides = []
        for count, axis in zip((lines, rows), self.tiled, strict=True):
            taps, stride = window_along(found, axis) or (1, 1)
            sides.append((count - 1) * stride + taps)
        return self.product.left.nbytes * channels * sides[0] * sides[1]

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        """Tiles the output; computes a block's sum in registers, copies it, and applies what
        follows to the copy."""
        schedule = Schedule(self.function)
        found = self.contraction
        total, copy = found.stage.buffer.name, found.epilogue[0].buffer.name
        rows, depth = decisions["rows"], self.depth[1]
        self._lay_out_weights(schedule, self.width * decisions["wide"])
        kept = inline_once(schedule, found.epilogue[1:])
        outer = self._tile_output(schedule, decisions)
        keep_values(schedule, kept, "vector", innermost_axis(found.stage))
        for name in (copy, total):
            schedule.compute_whole_at(name, outer[-1])
            self._lay_out_lanes(schedule, name)
        schedule.set_scope(total, MemoryScope.REGISTER)
        steps, product = self._order_reduction(schedule, depth)
        calls = {
            self.product.zero_name(rows): self._tile(schedule, f"{total}_init", "zero", rows),
            self.product.product_name(rows, depth): self._tile(
                schedule, total, "sum", rows, steps, product
            ),
            self.product.store_name(rows): self._tile(schedule, copy, "copy", rows),
        }
        if decisions["prefetch"]:
            schedule.prefetch(found.vector_load.buffer.name, "panel", steps[-1])
        for intrinsic, loop in calls.items():
            schedule.tensorize(loop, intrinsic)
        run_parallel(schedule, outer)
        return schedule

    def _lay_out_weights(self, schedule: Schedule, panel: int) -> None:
        """Panels of lanes, in each the order in which the reduction reads them."""
        load = self.contraction.vector_load
        places = {index.name: at for at, index in enumerate(load.indices) if isinstance(index, Var)}
        lane, depth = places[self.contraction.lane], places[self.depth[0]]
        taps = [places[axis] for axis in self.contraction.reduction if places[axis] != depth]
        rest = [at for at in range(len(load.indices)) if at not in (lane, depth, *taps)]
        step, group = self.depth[1], self.product.group
        groups = (PhysicalDim(depth, group, step // group),) if step > group else ()
        neighbours = (PhysicalDim(depth, 1, group),) if group > 1 else ()
        layout = Layout(
            (
                *map(PhysicalDim, rest),
                PhysicalDim(lane, panel),
                PhysicalDim(depth, step),
                *map(PhysicalDim, taps),
                *groups,
                PhysicalDim(lane, 1, panel),
                *neighbours,
            )
        )
        schedule.transform_layout(load.buffer.name, layout)

    def _lay_out_lanes(self, schedule: Schedule, buffer: str) -> None:
        """Lets the vectors of a block's results be rows in memory."""
        lane, rank = innermost_axis(self.contraction.stage), len(self.contraction.stage.axes)
        if lane != rank - 1:
            schedule.transform_layout(buffer, Layout.blocked(rank, lane, self.width))

    def _tile_output(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        """Splits the nest that writes the output; gives the loops around a block."""
        found = self.contraction
        prefix = found.output.buffer.name
        loops = {
            inner.name: f"{prefix}_{outer.name}"
            for inner, outer in zip(found.stage.axes, found.output.axes, strict=True)
        }
        line, row = self.tiled
        schedule.split(loops[found.lane], self.width * decisions["wide"], "panel", "in_panel")
        schedule.split("in_panel", self.width, "vector", "lane")
        schedule.split(loops[row], decisions["rows"] * decisions["high"], "block", "in_block")
        outer = [loops[axis] for axis in loops if axis not in (found.lane, *self.tiled)]
        blocks, inner = ["block"], ["in_block"]
        if line:
            schedule.split(loops[line], decisions["lines"], "lines", "line")
            blocks.insert(0, "lines")
            inner.insert(0, "line")
        outer += [*blocks, "panel"] if decisions["order"] else ["panel", *blocks]
        schedule.reorder(*outer, *inner, "vector", "lane")
        schedule.vectorize("lane")
        schedule.unroll("vector")
        return outer

    def _order_reduction(self, schedule: Schedule, depth: int) -> tuple[list[str], str]:
        """Splits the reduction; gives the loops over its steps, outermost first, and that within an
        instruction."""
        prefix, axis = self.contraction.stage.buffer.name, self.depth[0]
        step, product = schedule.split(f"{prefix}_{axis}", depth, "step", "product")
        taps = [f"{prefix}_{tap}" for tap in self.contraction.reduction if tap != axis]
        return [step, *taps], product

    def _tile(
        self,
        schedule: Schedule,
        prefix: str,
        short: str,
        rows: int,
        steps: Sequence[str] = (),
        product: str = "",
    ) -> str:
        """Splits one of the block's nests into tiles, with the loops `steps` around them and
        `product` within; gives the loop that is a whole tile."""
        found = self.contraction
        line, row = self.tiled
        axes = (axis.name for axis in found.stage.axes)
        others = [f"{prefix}_{axis}" for axis in axes if axis not in (*self.tiled, found.lane)]
        tiles = [f"{prefix}_{line}"] if line else []
        split, in_tile = schedule.split(f"{prefix}_{row}", rows, f"{short}_tile", f"{short}_row")
        vector, lane = schedule.split(
            f"{prefix}_{found.lane}", self.product.lanes, f"{short}_vector", f"{short}_lane"
        )
        tiles = [vector, *tiles, split] if self.unit.by_lanes else [*tiles, split, vector]
        within = [in_tile, lane, product] if product else [in_tile, lane]
        schedule.reorder(*others, *steps, *tiles, *within)
        for tile in tiles:
            schedule.unroll(tile)
        return in_tile
