"""Rule: products computed in tile registers, by blocks of several tiles.

    for panel, block in parallel:        `wide` vectors of lanes, `lines` × `high` tiles of rows
        for a step of the reduction:     sum[tile] += rows[k] x lanes[k], for each tile
        for each tile:                   from its register to memory of the thread's own
        epilogue, store                  on vectors, from there

The target declares the dtypes of the operands and the depth of one instruction
(`CpuTarget.tile_units`). For AMX, a row of the left operand has 64 bytes along the reduction: 32
elements of bf16 or 64 of u8; for NEON it has up to 16 bytes of bf16 or integers, and up to 64 of
f16. The rows are those of a matrix product, or the points along a line of an image, spaced by a
convolution's stride; the reduction then also runs over the kernel. An instruction reads only
contiguous channels; those of AMX take as long for 16 channels of bf16 as for 32. The weights are
laid out in panels, with groups of neighbours along the reduction, as the tiles require. If rows do
not divide evenly, the last block overlaps the one before it. If lanes do not divide evenly, the
rule of register tiles applies instead.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from farrier.intrinsics import TileProduct
from farrier.ir.dim import typical
from farrier.ir.expr import MemoryScope, Reduce, Var
from farrier.ir.tensor import TensorProgram
from farrier.ir.types import Layout, PhysicalDim
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Ints, Machine
from farrier.space.rewrites import accumulate, without_halos
from farrier.space.space import Columns, Decisions, Estimate, Floats, Knob, Space
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units import microkernel
from farrier.targets.cpu.units.contraction import (
    Contraction,
    extent_of,
    find_contraction,
    group_size,
    innermost_axis,
    is_constant,
    volume,
    window_along,
)
from farrier.targets.cpu.units.epilogue import inline_once, keep_values
from farrier.targets.cpu.units.nests import loop_extents, run_parallel
from farrier.targets.cpu.units.operands import by_first_use, lay_out_copy, window_copy
from farrier.targets.cpu.units.program_kernel import ProgramKernel
from farrier.targets.cpu.units.tile_unit import TileUnit, panels_cover
from farrier.targets.cpu.units.tiled_product import TiledProduct, find_unit

RULE = RuleId("matrix_tile", version=8)
# The share of the shorter of arithmetic and memory traffic that does not overlap if the next panel
# is prefetched.
_EXPOSED_AHEAD = 0.2


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space | None:
    """Return the schedule space of a matrix product or convolution of constant sizes and weights.
    Return None for any other program, if no tile unit of the target can multiply the dtypes of its
    operands, or if the vectors of results do not divide the axis of lanes evenly."""
    if program.dims:
        return None
    program = by_first_use(without_halos(program))
    copied = window_copy(program)
    contraction = find_contraction(program, leading=(copied,))
    unit = None if contraction is None else find_unit(contraction, target)
    if contraction is None or unit is None:
        return None
    machine = target.machine(threads)
    width = max(unit.product.lanes, machine.lanes)
    if not _fits(contraction, width):
        return None
    program = accumulate(program)
    sums = (isinstance(stage.body, Reduce) for stage in program.stages)
    program = accumulate(program, list(sums).index(True))
    accumulated = find_contraction(program, leading=(copied,))
    assert accumulated is not None  # A rewritten contraction is still a contraction.
    product, has_pool = TiledProduct(accumulated, unit), target.instructions.has_pool
    kernel = MatrixTileKernel(program, product, width, machine, has_pool, copied)
    return Space.of(RULE, kernel) if kernel.tiled_product.rows and kernel.wide else None


def _fits(contraction: Contraction, width: int) -> bool:
    """Check whether the weights can have the layout that tiles require, and the lanes divide into
    vectors of `width`."""
    whole = extent_of(contraction.stage, contraction.lane) % width == 0
    fits_group = group_size(contraction.broadcast_load, contraction.lane) % width == 0
    return is_constant(contraction.vector_load) and whole and fits_group


@dataclasses.dataclass(frozen=True)
class MatrixTileKernel(ProgramKernel):
    """The kernel of one product: the sum in tile registers, its copy to memory, and its
    epilogue."""

    program: TensorProgram
    tiled_product: TiledProduct
    width: int  # The lanes of a vector of results, which spans one tile or several.
    machine: Machine
    has_pool: bool  # The same as `Instructions.has_pool`.
    # The name of the stage that copies the padded input for each line of tiles, or "".
    copied: str

    @property
    def contraction(self) -> Contraction:
        return self.tiled_product.contraction

    @property
    def unit(self) -> TileUnit:
        return self.tiled_product.unit

    @property
    def product(self) -> TileProduct:
        return self.unit.product

    @property
    def tiled(self) -> tuple[str, str]:
        """The axis along which a block has several lines of tiles ("" if there is none), and the
        axis of a tile's rows."""
        return self.tiled_product.tiled

    @property
    def depth(self) -> tuple[str, int]:
        """The reduced axis along which an instruction sums, and the number of elements that it
        sums."""
        return self.tiled_product.depth

    @functools.cached_property
    def group(self) -> int:
        """The number of adjacent lanes (output channels of a group) that read the same input
        channels; 0 if all lanes do."""
        return group_size(self.contraction.broadcast_load, self.contraction.lane)

    @property
    def wide(self) -> tuple[int, ...]:
        """The possible widths of a panel of weights, in vectors."""
        outputs, sides = self._extent(self.contraction.lane), np.array(self.unit.sides)
        panels = sides * self.width
        fits = panels_cover(panels, outputs, self._lanes) & (self.group % panels == 0)
        return tuple(map(int, sides[fits]))

    def _extent(self, axis: str) -> int:
        return extent_of(self.contraction.stage, axis) if axis else 1

    @functools.cached_property
    def _lanes(self) -> int:
        """The extent of the loop over lanes, rounded up to whole blocks if the layout is
        blocked."""
        stage, lane = self.contraction.stage, self.contraction.lane
        return loop_extents(self.function)[f"{stage.buffer.name}_{lane}"]

    # -- decisions ------------------------------------------------------------------------------

    def knobs(self) -> tuple[Knob, ...]:
        return (
            Knob("rows", self.tiled_product.rows),
            Knob("high", self.unit.sides),
            Knob("lines", self.unit.sides if self.tiled[0] else (1,)),
            Knob("wide", self.wide),
            # With 1, all panels of a block of rows are computed in succession.
            Knob("order", (0, 1)),
            Knob("prefetch", (0, 1) if self.machine.has_caches else (0,)),
        )

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Check for each candidate that there are enough tile registers for the sums of a block and
        for the operands of one step."""
        high, lines = columns["high"], columns["lines"]
        lanes = self.width * columns["wide"]
        fits = self._registers(columns) <= self.unit.registers
        fits &= columns["rows"] * high <= self._extent(self.tiled[1])
        fits &= lines <= self._extent(self.tiled[0])
        if self.copied:  # Another order would copy a line again for each panel.
            fits &= columns["order"] == 1
        ahead = (columns["order"] == 0) & (lanes < self._lanes)
        fits &= (columns["prefetch"] == 0) | ahead
        return np.asarray(fits)

    @property
    def _tiles(self) -> int:
        """The number of tiles that one vector of results spans."""
        return self.width // self.product.lanes

    def _registers(self, columns: Columns) -> Ints:
        """Return the number of tile registers for a block's sums and the operands of one step."""
        points, lanes = columns["high"] * columns["lines"], columns["wide"] * self._tiles
        return self.unit.taken(columns["rows"], self.tiled_product.row_bytes, points, lanes)

    def estimate(self, columns: Columns) -> Estimate:
        machine, contraction, unit = self.machine, self.contraction, self.unit
        names = ("high", "lines", "wide", "rows")
        high, lines, wide, rows = (columns[name].astype(np.float64) for name in names)
        tiles, lanes = high * lines, self._lanes
        reduced = volume(contraction.stage, contraction.reduction)
        others = volume(
            contraction.stage, tuple(a for a in contraction.points if a not in self.tiled)
        )
        blocks = lanes / (self.width * wide) * others
        for axis, size in zip(self.tiled, (lines, rows * high), strict=True):
            blocks = blocks * np.ceil(self._extent(axis) / size)
        multiply, loads, finish = self.tiled_product.cycles(tiles, rows, wide, self._tiles)
        panel_bytes = reduced * self.width * wide * float(self.product.right.nbytes)
        point_bytes = self._point_bytes(lines, rows * high)
        near = panel_bytes + point_bytes <= 0.6 * machine.l1_bytes
        again = np.where(columns["order"] == 1, panel_bytes, point_bytes)
        l2 = np.where(near, again, panel_bytes + point_bytes) / unit.l2_bytes
        cycles = np.maximum(np.maximum(multiply, loads), l2) + 0.1 * (loads + l2) + finish
        balance = np.ceil(blocks / machine.threads) / (blocks / machine.threads)
        busy = blocks * cycles * balance / machine.threads / machine.hertz
        cold = contraction.vector_load.buffer.scope is MemoryScope.CONSTANT
        lane_bytes = lanes * reduced * self.product.right.nbytes
        # A thread's share of the lanes, and of the points.
        own, by_lanes = 1 / machine.threads, columns["order"] == 0
        panels = np.ceil(lanes / (self.width * wide))
        divided, whole = 1 / np.minimum(panels, machine.threads), np.minimum(panels * own, 1.0)
        lane_share = np.where(by_lanes, divided, 1.0)
        point_share = np.where(by_lanes, whole, own)
        memory = cold * machine.memory_seconds(lane_bytes, lane_share)
        exposed = np.where(columns["prefetch"] > 0, _EXPOSED_AHEAD, machine.exposed)
        seconds = np.maximum(busy, memory) + exposed * np.minimum(busy, memory)
        beside = microkernel.shared(
            typical(contraction.broadcast_load.buffer.nbytes) * (point_share - own),
            lane_bytes * (lane_share - own),
            columns["prefetch"] > 0,
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
        return Estimate(seconds + machine.fork_join + beside, terms, beside)

    def _point_bytes(self, lines: Floats, rows: Floats) -> Floats:
        """Return the number of bytes of input that a block reads. An element that several windows
        of a convolution contain is counted once."""
        contraction = self.contraction
        channels = self._extent(self.depth[0])
        sides = []
        for count, axis in zip((lines, rows), self.tiled, strict=True):
            taps, stride = window_along(contraction, axis) or (1, 1)
            sides.append((count - 1) * stride + taps)
        return self.product.left.nbytes * channels * sides[0] * sides[1]

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        """Tile the output; compute a block's sum in tile registers, copy it to memory, and apply
        the epilogue to the copy."""
        schedule = Schedule(self.function)
        contraction = self.contraction
        self._lay_out_weights(schedule, self.width * decisions["wide"])
        kept = inline_once(schedule, contraction.epilogue[1:])
        outer = self._tile_output(schedule, decisions)
        keep_values(schedule, kept, "vector", innermost_axis(contraction.stage))
        rows = decisions["rows"]
        steps = self.tiled_product.place(schedule, outer[-1], rows, self.width)
        if decisions["prefetch"]:
            schedule.prefetch(contraction.vector_load.buffer.name, "panel", steps[-1])
        if self.copied:
            self._copy_window(schedule, outer)
        self.tiled_product.tensorize(schedule, rows)
        if self.has_pool:
            run_parallel(schedule, outer)
        return schedule

    def _copy_window(self, schedule: Schedule, outer: Sequence[str]) -> None:
        """Copy the padded input that a line of tiles reads, by vectors."""
        stage = self.program.stage(self.copied)
        schedule.compute_at(self.copied, outer[-3] if self.tiled[0] else outer[-2])
        layout, width = stage.buffer.layout, self.product.group
        schedule.vectorize(lay_out_copy(schedule, stage, layout, width))

    def _lay_out_weights(self, schedule: Schedule, panel: int) -> None:
        """Lay out the weights in panels of lanes, each in the order in which the reduction reads
        it."""
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

    def _tile_output(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        """Tile the loop nest that writes the output by blocks; return the names of the loops around
        a block."""
        contraction = self.contraction
        prefix = contraction.output.buffer.name
        loops = {
            inner.name: f"{prefix}_{outer.name}"
            for inner, outer in zip(contraction.stage.axes, contraction.output.axes, strict=True)
        }
        line, row = self.tiled
        schedule.split(loops[contraction.lane], self.width * decisions["wide"], "panel", "in_panel")
        schedule.split("in_panel", self.width, "vector", "lane")
        schedule.split(loops[row], decisions["rows"] * decisions["high"], "block", "in_block")
        outer = [loops[axis] for axis in loops if axis not in (contraction.lane, *self.tiled)]
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
