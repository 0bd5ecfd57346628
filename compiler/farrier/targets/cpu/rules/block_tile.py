"""Rule: products with weights that are quantized in blocks, where codes (the quantized integers)
are unpacked in the innermost loop.

    sums of the rows, by block
    for panel, row in parallel:              a panel of `vectors` vectors of columns, a tile of rows
        total[row, vector] = 0
        for a block:
            part[row, vector] = 0
            for the steps of half a block:   a vector of bytes is two vectors of codes
                part[row, vector] += broadcast[row] * codes[vector], twice
            total[row, vector] += (part - zeros * sums[row]) * scales[vector]
        epilogue, store

The weights are stored in panels in the order of reading, so that a panel is one sequential stream.
Element `i` of a block shares its byte with the element half a block later. A tile is as wide as a
panel, half of it or a quarter.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from farrier.intrinsics.dot import held_as
from farrier.ir.expr import MemoryScope
from farrier.ir.tensor import TensorProgram
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.space.operations import operations
from farrier.space.rewrites import accumulate, without_halos
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units.block_layout import BlockLayout
from farrier.targets.cpu.units.block_products import BlockProduct, find_block_product
from farrier.targets.cpu.units.contraction import extent_of, innermost_axis
from farrier.targets.cpu.units.epilogue import inline_once, keep_values
from farrier.targets.cpu.units.nests import run_parallel
from farrier.targets.cpu.units.operands import by_first_use
from farrier.targets.cpu.units.partials import reduce_on_lanes
from farrier.targets.cpu.units.program_kernel import ProgramKernel

RULE = RuleId("block_tile", version=1)
_ROWS = 8
_UNROLL = (1, 2, 4)
# Instructions that turn codes into a vector of floats: shift, mask, widen, convert.
_UNPACK = 3.0


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space | None:
    """Return the schedule space of a product with block-quantized weights; None for any other
    program."""
    program = by_first_use(without_halos(program))
    product = find_block_product(program)
    machine = target.machine(threads)
    if product is None or 2 * extent_of(product.total, product.lane) < machine.lanes:
        return None
    program = accumulate(program)
    product = find_block_product(program)
    # The copy of the sum became an epilogue, so this is still a product.
    assert product is not None
    layout = BlockLayout(product, machine.lanes, _group(product, target))
    return Space.of(RULE, BlockTileKernel(program, product, machine, layout))


def _group(product: BlockProduct, target: CpuTarget) -> int:
    """Return the number of codes (quantized integers) that a dot product of the target multiplies
    in each lane; 1 if no dot product fits."""
    loads = product.part.broadcast_load, product.part.vector_load
    rows, codes = (load.buffer.dtype for load in loads)
    kind = product.part.stage.buffer.dtype
    dots = (target.dot_of(held, rows, kind) for held in held_as(codes))
    return next((dot.group for dot in dots if dot is not None), 1)


@dataclasses.dataclass(frozen=True)
class BlockTileKernel(ProgramKernel):
    program: TensorProgram
    product: BlockProduct
    machine: Machine
    layout: BlockLayout

    @property
    def _row(self) -> str:
        """The axis of a tile's rows: the innermost axis of points with several points, or "" if
        there is only one point."""
        total, points = self.product.total, self.product.points
        return next((axis for axis in reversed(points) if extent_of(total, axis) > 1), "")

    @property
    def _rows(self) -> int:
        return extent_of(self.product.total, self._row) if self._row else 1

    @property
    def _columns(self) -> int:
        return extent_of(self.product.total, self.product.lane)

    @property
    def _blocks(self) -> int:
        return extent_of(self.product.part.stage, self.product.block_axis)

    # -- decisions ------------------------------------------------------------------------------

    def knobs(self) -> tuple[Knob, ...]:
        steps = self.layout.block // self.layout.per_byte // self.layout.group
        return (
            Knob("vectors", self.layout.widths),
            Knob("rows", tuple(range(1, min(self._rows, _ROWS) + 1))),
            Knob("unroll", tuple(count for count in _UNROLL if steps % count == 0)),
        )

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Check for each candidate that the registers hold a block's sums, the total sums, a vector
        of codes and a broadcast element."""
        tile = columns["vectors"] * columns["rows"]
        fits: npt.NDArray[np.bool_] = 2 * tile + 3 <= max(self.machine.registers, 5)
        return fits

    def estimate(self, columns: Columns) -> Estimate:
        machine = self.machine
        vectors, rows = (columns[name].astype(np.float64) for name in ("vectors", "rows"))
        panels = np.ceil(self._columns / (vectors * machine.lanes))
        others = np.prod([extent_of(self.product.total, axis) for axis in self.product.points])
        tiles = np.ceil(self._rows / rows) * others / self._rows
        steps = float(self._blocks * self.layout.block)
        issue = vectors * (_UNPACK + rows) / machine.fma_ports + rows / machine.load_ports
        step = np.maximum(issue, machine.fma_latency)
        step += 1.0 / (columns["unroll"] * self.layout.per_byte)
        finish = self._blocks * vectors * rows * 3.0
        finish += vectors * rows * (2.0 + operations(self.product.epilogue)) + 20.0
        units = panels * tiles
        balance = np.ceil(units / machine.threads) / (units / machine.threads)
        cycles = units * (steps * step + finish)
        busy = cycles / machine.hertz * balance / machine.threads
        nbytes = steps * self._columns / self.layout.per_byte
        memory = machine.memory_seconds(nbytes, 1 / np.minimum(panels, machine.threads))
        seconds = np.maximum(busy, memory) + machine.exposed * np.minimum(busy, memory)
        terms = {
            "compute": np.full(len(busy), 2.0 * steps * self._columns * others / machine.peak),
            "memory": memory,
            "overhead": np.full(len(busy), machine.fork_join),
            "tiles": units,
            "balance": balance,
            "registers": (2 * vectors * rows + 3) / machine.registers,
            "code": columns["unroll"] * vectors * rows,
        }
        return Estimate(seconds + machine.fork_join, terms)

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = Schedule(self.function)
        product, total = self.product, self.product.total.buffer.name
        self.layout.apply(schedule)
        kept = inline_once(schedule, product.epilogue)
        outer = self._tile_output(schedule, decisions)
        keep_values(schedule, kept, "vector", innermost_axis(product.total))
        schedule.compute_at(total, outer[-1])
        schedule.set_scope(total, MemoryScope.REGISTER)
        blocks = self._order_total(schedule)
        self._compute_part(schedule, blocks, decisions["unroll"])
        if product.sums is not None:
            self._sum_rows(schedule)
        run_parallel(schedule, outer)
        return schedule

    def _tile_output(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        """Tile the loop nest that writes the output; return the names of the loops around a
        tile."""
        output, row = self.product.output, self._row
        loops = {
            inner.name: f"{output.buffer.name}_{outer.name}"
            for inner, outer in zip(self.product.total.axes, output.axes, strict=True)
        }
        width = self.machine.lanes
        schedule.split(loops[self.product.lane], decisions["vectors"] * width, "panel", "in_panel")
        schedule.split("in_panel", width, "vector", "lane")
        outer = [loops[axis] for axis in self.product.points if axis != row]
        outer.append("panel")
        inner = []
        if row:
            schedule.split(loops[row], decisions["rows"], "row", "in_row")
            outer.append("row")
            inner.append("in_row")
        schedule.reorder(*outer, *inner, "vector", "lane")
        schedule.vectorize("lane")
        for loop in (*inner, "vector"):
            schedule.unroll(loop)
        return outer

    def _order_total(self, schedule: Schedule) -> str:
        """Order the loops of the sum over blocks, and return the loop over the blocks."""
        product, name = self.product, self.product.total.buffer.name
        blocks = f"{name}_{product.block_axis}"
        for prefix, around in ((f"{name}_init", []), (name, [blocks])):
            points = [f"{prefix}_{axis}" for axis in product.points]
            vector, lane = schedule.split(f"{prefix}_{product.lane}", self.machine.lanes)
            schedule.reorder(*around, *points, vector, lane)
            schedule.vectorize(lane)
            for loop in (*points, vector):
                schedule.unroll(loop)
        return blocks

    def _compute_part(self, schedule: Schedule, blocks: str, unroll: int) -> None:
        """Compute the products with one block of weights in registers, within each iteration of the
        loop `blocks`. Its loops run over the bytes of the block, and inside over the codes that
        share a byte. `unroll` is the number of steps in one unrolled iteration."""
        product, name = self.product, self.product.part.stage.buffer.name
        schedule.compute_at(name, blocks)
        schedule.set_scope(name, MemoryScope.REGISTER)
        step, steps, unrolled = f"{name}_{product.within}", [], []
        if self.layout.per_byte > 1:
            place, step = schedule.split(step, self.layout.block // self.layout.per_byte)
            unrolled.append(place)
        groups: list[str] = []
        if self.layout.group > 1:
            step, one_group = schedule.split(step, self.layout.group)
            groups.append(one_group)
        if unroll > 1:
            step, some = schedule.split(step, unroll)
            unrolled.insert(0, some)
        steps = [step, *unrolled]
        nests: tuple[tuple[str, list[str], list[str]], ...]
        nests = ((f"{name}_init", [], []), (name, steps, groups))
        for prefix, around, inner in nests:
            points = [f"{prefix}_{axis}" for axis in (*product.points, product.block_axis)]
            vector, lane = schedule.split(f"{prefix}_{product.lane}", self.machine.lanes)
            schedule.reorder(*around, *points, vector, lane, *inner)
            for loop in inner:
                schedule.dot(loop)
            schedule.vectorize(lane)
            for loop in (*points, vector):
                schedule.unroll(loop)
        for loop in unrolled:
            schedule.unroll(loop)

    def _sum_rows(self, schedule: Schedule) -> None:
        """Compute the sums of each row's elements by block, before the loop over panels."""
        sums = self.product.sums
        assert sums is not None
        reduce_on_lanes(schedule, sums, self.machine.lanes, 1)
