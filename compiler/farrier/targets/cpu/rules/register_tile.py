"""Rule: contractions with a tile of accumulators in registers, which are updated by one broadcast
and one multiply-add at a time.

It covers matrix products, and convolutions with any kernel and stride, depthwise and grouped.
Vectors run along the output's contiguous axis. A tile of `rows` x `columns` points and `vectors`
vectors stays in registers during the whole reduction, and the epilogue is applied to it there.

    for panel, row in parallel:          a panel of `vectors` vectors of the lane axis
        for column:                      a tile
            for the reduction:           sum[point, vector] += broadcast[point] * lanes[vector]
            epilogue, store

A long reduction may be divided into slices: all tiles of a panel compute one slice before the next
slice begins (`cpu/units/tiled_sum.py`).
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from farrier.ir.blocks import coverage
from farrier.ir.dim import Dim, product, typical
from farrier.ir.expr import MemoryScope, Var
from farrier.ir.substitute import variables
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import Layout
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.space.operations import operations
from farrier.space.rewrites import accumulate, without_halos
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units import microkernel
from farrier.targets.cpu.units.contraction import (
    Contraction,
    find_contraction,
    group_size,
    innermost_axis,
    is_constant,
    is_direct,
    is_permuted,
    volume,
    whole_panels,
    window_along,
)
from farrier.targets.cpu.units.dot_products import Grouping, find_grouping
from farrier.targets.cpu.units.epilogue import inline_once, keep_values
from farrier.targets.cpu.units.microkernel import LoopOrder
from farrier.targets.cpu.units.nests import exact_extents, loop_extents, run_parallel
from farrier.targets.cpu.units.operands import (
    PACKED,
    PADDED,
    by_first_use,
    hoist_padding,
    lay_out_copy,
    lay_out_packed,
    pack,
    pack_groups,
    pack_lane_operand,
    window_copy,
)
from farrier.targets.cpu.units.phase_axes import INTERLEAVED, PhaseAxis, find_phase_axes, take_apart
from farrier.targets.cpu.units.program_kernel import ProgramKernel
from farrier.targets.cpu.units.tiled_sum import UNROLLED, TiledSum

RULE = RuleId("register_tile", version=7)
_VECTORS = (1, 2, 3, 4, 6, 8, 12)
_COPY = 0.02  # One more copy of the tile must save at least this share of the kernel's time.
# The approximate number of widths of a tile along an open extent (`lower/narrow_tiles.py`).
_WIDTHS = 3.0
_ROWS = 8  # The limit for a tile that also has columns.
_ADDRESSES = 4  # Registers for two addresses, a counter and a temporary value.
# The least number of steps of a sum that is cut into slices, and of a slice.
_LONG_SUM, _SLICE_STEPS = 1024, 256


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space | None:
    """Return the schedule space of a contraction whose lanes divide into vectors; None for any
    other program."""
    machine = target.machine(threads)
    kernel = _kernel(by_first_use(without_halos(program)), machine, target)
    return None if kernel is None else Space.of(RULE, kernel)


def _kernel(
    program: TensorProgram, machine: Machine, target: CpuTarget
) -> RegisterTileKernel | None:
    """Return the program prepared for tiling as a RegisterTileKernel, or None if the rule does not
    apply."""
    copied = window_copy(program)
    contraction = find_contraction(program, leading=(copied,))
    if contraction is None:
        return None
    machine = machine.for_elements(contraction.stage.buffer.dtype)
    if 2 * _lane_extent(contraction) < machine.lanes:
        return None
    group = 0 if contraction.depthwise else group_size(contraction.broadcast_load, contraction.lane)
    if group % machine.lanes:
        return None
    turns = () if contraction.depthwise else find_phase_axes(contraction.stage)
    if turns:
        program = accumulate(program)
        program = take_apart(program, _again(program, copied).stage, turns)
        contraction = find_contraction(program, leading=(copied,))
        # In a plain image, the lanes themselves alternate between phases.
        if contraction is None:
            return None
    grouping = find_grouping(contraction, target) if is_permuted(contraction.vector_load) else None
    # A group of the vector operand is contiguous if its layout is chosen here, or in its copy.
    packs = not (
        is_direct(contraction) if grouping is None else is_constant(contraction.vector_load)
    )
    if packs and not is_permuted(contraction.vector_load):
        return None
    program = accumulate(program)
    hoists = contraction.padded and not contraction.depthwise
    for wanted, rewrite in ((hoists, hoist_padding), (packs, pack_lane_operand)):
        if wanted:
            program = rewrite(program, _again(program, copied))
    contraction = _again(program, copied)
    copied = PADDED if hoists else copied
    return RegisterTileKernel(
        program, contraction, machine, turns, group, copied, packs, grouping, target.code_weight
    )


def _again(program: TensorProgram, copied: str) -> Contraction:
    contraction = find_contraction(program, leading=(PADDED, PACKED, copied))
    assert contraction is not None  # A rewritten contraction is still a contraction.
    return contraction


@dataclasses.dataclass(frozen=True)
class RegisterTileKernel(ProgramKernel):
    """The kernel of the rule: a contraction, rewritten so that its innermost loop contains no
    bounds checks and no strided loads."""

    program: TensorProgram
    contraction: Contraction
    machine: Machine
    turns: tuple[PhaseAxis, ...]  # The axes of the output that are split into phases.
    group: int  # The number of adjacent lanes that read the same input channels; 0 if all lanes do.
    # The name of the stage that copies the padded input for each row of tiles, or "".
    copied: str
    packs: bool  # Set if the vector operand is packed in a separate stage, for each panel.
    # The dot-product grouping of the sum; None if products are computed one by one.
    grouping: Grouping | None
    code_weight: float  # `CpuTarget.code_weight`.

    @functools.cached_property
    def extents(self) -> dict[str, int]:
        """The typical extents of the contraction's loops, rounded up to whole blocks if the layout
        is blocked."""
        stage = self.contraction.stage
        names = (*(axis.name for axis in stage.axes), *self.contraction.reduction)
        ranges = loop_extents(self.function)
        return {name: ranges[f"{stage.buffer.name}_{name}"] for name in names}

    @functools.cached_property
    def tiled(self) -> tuple[str, str]:
        """The axes of a tile's rows and columns; "" for a missing axis."""
        points = [axis for axis in self.contraction.points if self.extents[axis] > 1]
        return (points[-2], points[-1]) if len(points) > 1 else ("".join(points), "")

    @functools.cached_property
    def _sum(self) -> TiledSum:
        return TiledSum.of(self.contraction, self.machine, self.tiled, grouping=self.grouping)

    @property
    def _outer_points(self) -> tuple[str, ...]:
        """The point axes of the contraction that are not tiled."""
        return tuple(axis for axis in self.contraction.points if axis not in self.tiled)

    @functools.cached_property
    def _is_scattered(self) -> bool:
        """Check whether the sum moves every few steps to another block of the broadcast operand,
        far away in memory. Convolutions with larger kernels do not count, as they read the same
        block repeatedly."""
        return self._problem.scattered and self._problem.taps == (1, 1)

    def extent(self, axis: str) -> int:
        return self.extents[axis] if axis else 1

    @property
    def _outputs(self) -> int:
        """The typical extent of the lane axis, without the padding of its last block."""
        stage = self.contraction.stage
        axis = next(axis for axis in stage.axes if axis.name == self.contraction.lane)
        return typical(axis.extent)

    # -- decisions ------------------------------------------------------------------------------

    def knobs(self) -> tuple[Knob, ...]:
        limit = self.machine.registers
        rows, columns = (self.extent(axis) for axis in self.tiled)
        orders = [LoopOrder.PANELS]
        if rows > 1 and not self.packs:
            orders += (
                [LoopOrder.ROWS, LoopOrder.PARTS] if self.machine.threads > 1 else [LoopOrder.ROWS]
            )
        return (
            Knob("vectors", self._vectors),
            Knob("rows", tuple(range(1, min(rows, _ROWS if columns > 1 else limit) + 1))),
            Knob("columns", tuple(range(1, min(columns, limit) + 1))),
            Knob("unroll", self._sum.unrolls(self.machine.unroll)),
            Knob("order", tuple(map(int, orders))),
            Knob("prefetch", (0, 1) if self._prefetches else (0,)),
            Knob("ahead", (0, 1) if self._is_scattered and not self._sum.parts else (0,)),
            Knob("slices", self._slices),
        )

    @property
    def _prefetches(self) -> bool:
        """True if weights may be prefetched: they are constant, and the machine has caches."""
        return is_constant(self.contraction.vector_load) and self.machine.has_caches

    @functools.cached_property
    def _vectors(self) -> tuple[int, ...]:
        """The possible widths of a panel, in vectors."""
        loop = f"{self.contraction.stage.buffer.name}_{self.contraction.lane}"
        extent = exact_extents(self.function)[loop]
        return whole_panels(extent, self.machine.lanes, _VECTORS)

    @functools.cached_property
    def _slices(self) -> tuple[int, ...]:
        """The possible numbers of slices of the reduction; only 1 unless it is a long, plain sum
        whose tiles have constant sizes."""
        contraction = self.contraction
        is_plain = not (self.turns or self.copied or self.packs or contraction.depthwise)
        is_long = self._problem.steps >= _LONG_SUM
        whole = not (is_plain and is_long and not self._open)
        return (1,) if whole else self._sum.slice_choices(_SLICE_STEPS)

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Check for each candidate that four conditions hold. The registers hold the accumulators,
        the vectors of one step and a broadcast element. No panel spans two groups of a grouped
        convolution. Panels of weights cover the blocks of the output. Prefetching and slices are
        used only where they are useful."""
        vectors = columns["vectors"]
        points, dtype = columns["rows"] * columns["columns"], self.contraction.stage.buffer.dtype
        held = np.where((columns["unroll"] > 1) & self._sum.by_lane, points, 1)
        fits = self.machine.fits(vectors, points, dtype, held)
        if self._sum.parts:
            # With a single point, each vector is used up before the next one is loaded.
            unpacked = self._sum.parts * (np.where(points > 1, vectors, 1) + 1)
            taken = vectors * points + unpacked + _ADDRESSES
            fits &= (taken <= self.machine.registers) | (vectors * points == 1)
            if self.copied:  # Copying several lines takes more memory than it saves time.
                fits &= columns["rows"] == 1
        lanes = vectors * self.machine.lanes
        if self.group:
            fits &= self.group % lanes == 0
        if not self.packs:
            fits &= np.ceil(self._outputs / lanes) * lanes >= self.extents[self.contraction.lane]
        # Prefetching needs panels that follow one another, and takes the time of several tiles on
        # one panel.
        rows = np.ceil(self.extent(self.tiled[0]) / columns["rows"])
        parts = columns["order"] == LoopOrder.PARTS
        fits &= ~parts | (rows >= self.machine.threads)
        rows = np.where(parts, rows // self.machine.threads, rows)
        tiles = rows * np.ceil(self.extent(self.tiled[1]) / columns["columns"])
        follows = (lanes < self.extents[self.contraction.lane]) & (
            columns["order"] != LoopOrder.ROWS
        )
        fits &= (columns["prefetch"] == 0) | (follows & (tiles > 1))
        # The next block of the broadcast operand is prefetched unless an iteration covers the whole
        # block.
        fits &= (columns["ahead"] == 0) | (columns["unroll"] < self.extent(self._sum.blocked))
        # Every tile of a panel reads a slice again.
        fits &= (columns["slices"] == 1) | ((columns["order"] != LoopOrder.ROWS) & (tiles > 1))
        return fits

    def estimate(self, columns: Columns) -> Estimate:
        estimate = microkernel.estimate(self._problem, _tiles(columns), self.machine)
        if self._open:
            code = _COPY * self._copies(columns) + UNROLLED * np.log2(columns["unroll"])
        elif self.code_weight:
            code = self.code_weight * microkernel.code_size(
                self._problem, _tiles(columns), self.machine
            )
        else:
            return estimate
        return dataclasses.replace(estimate, seconds=estimate.seconds * (1 + code))

    def _copies(self, columns: Columns) -> npt.NDArray[np.float64]:
        """Return the number of additional tiles in the code: partial tiles at the end of the panels
        and of axes whose extent is dynamic. They cost compile time, and it is unknown at compile
        time which of them will be executed."""
        panel = columns["vectors"] * self.machine.lanes
        tiles = np.where(self.extents[self.contraction.lane] % panel, 2.0, 1.0)
        for name in self._open:
            tiles *= np.where(columns[name] > 1, _WIDTHS, 1.0)
        return tiles - 1

    @functools.cached_property
    def _open(self) -> tuple[str, ...]:
        """The knobs of the tiled axes whose extents are open (dynamic)."""
        sizes = {axis.name: axis.extent for axis in self.contraction.stage.axes}
        tiled = zip(self.tiled, ("rows", "columns"), strict=True)
        return tuple(name for axis, name in tiled if isinstance(sizes.get(axis), Dim))

    @functools.cached_property
    def _problem(self) -> microkernel.Problem:
        contraction, stage = self.contraction, self.contraction.stage
        rows, columns = (window_along(contraction, axis) or (1, 1) for axis in self.tiled)
        return microkernel.Problem(
            batch=volume(stage, (*contraction.batch, *self._outer_points)),
            lanes=self.extents[contraction.lane],
            points=(self.extent(self.tiled[0]), self.extent(self.tiled[1])),
            steps=volume(stage, contraction.reduction) // self._sum.group,
            group=self._sum.group,
            parts=self._sum.parts,
            taps=(rows[0], columns[0]),
            strides=(rows[1], columns[1]),
            lane_bytes=typical(contraction.vector_load.buffer.nbytes),
            point_bytes=typical(contraction.broadcast_load.buffer.nbytes),
            cold=contraction.vector_load.buffer.scope is MemoryScope.CONSTANT,
            common=not self._vector_operand_varies,
            depthwise=contraction.depthwise,
            packs=self.packs,
            padded=self._copied_line(),
            epilogue=operations(contraction.epilogue),
            row_bytes=0 if self.tiled[1] else self._row_bytes(),
            scattered=bool(self._sum.blocked) and not contraction.depthwise,
            by_lane=self._sum.by_lane,
        )

    @property
    def _vector_operand_varies(self) -> bool:
        """Check whether the vector operand depends on an axis of points or batches that is not
        tiled, so that different tiles read different vectors."""
        axes = {name for index in self.contraction.vector_load.indices for name in variables(index)}
        return bool(axes & {*self.contraction.batch, *self._outer_points})

    def _row_bytes(self) -> int:
        """Return the distance in bytes between the elements of the broadcast operand for adjacent
        rows of the tile; 0 if the rows do not index the operand directly."""
        load = self.contraction.broadcast_load
        if not self.tiled[0] or Var(self.tiled[0]) not in load.indices:
            return 0
        axis, buffer = load.indices.index(Var(self.tiled[0])), load.buffer
        layout = buffer.layout or Layout.plain(len(buffer.shape))
        at = next(place for place, dim in enumerate(layout.dims) if dim.axis == axis)
        return typical(product(layout.physical_shape(buffer.shape)[at + 1 :])) * buffer.dtype.nbytes

    def _copied_line(self) -> int:
        """Return the cost of copying one line of the padded input, as a number of copied elements;
        0 if the input is not copied."""
        if not self.copied or self.contraction.depthwise:
            return 0
        return self._padded_line() // (self._sum.group if self._sum.parts else 1)

    def _padded_line(self) -> int:
        """Return the number of elements in one line of the padded operand, which are those with the
        same index along the tile's rows."""
        row = self.tiled[0]
        load = self.contraction.broadcast_load
        return typical(
            product(
                extent
                for index, extent in zip(load.indices, load.buffer.shape, strict=True)
                if row not in variables(index) and not variables(index) & set(self._outer_points)
            )
        )

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        """Tile the output, compute the sum in the tile's registers and the epilogue on its vectors,
        and share panels and rows among the threads."""
        schedule = Schedule(self.function)
        if is_constant(self.contraction.vector_load):
            self._sum.lay_out_weights(schedule, decisions["vectors"] * self.machine.lanes)
        kept = inline_once(schedule, self.contraction.epilogue)
        outer = self._tile_output(schedule, decisions)
        keep_values(schedule, kept, "vector", innermost_axis(self.contraction.stage))
        sliced = dataclasses.replace(self._sum, slices=decisions["slices"])
        sizes = decisions["rows"], decisions["columns"]
        tile = sliced.compute_at(schedule, outer[-1], "panel", sizes)
        step = sliced.order(schedule, decisions["unroll"])
        # The innermost shared loop. Computations placed in one of its iterations belong to one
        # thread.
        last = "row" if "row" in outer else "panel"
        if self.copied:
            # In a depthwise convolution, each panel reads different channels.
            if self.contraction.depthwise and self.machine.lanes == 1:
                last = "panel"
            schedule.compute_at(self.copied, last)
            self._copy_window(schedule, self.program.stage(self.copied))
        if self.packs:
            last = "panel"
            schedule.compute_at(PACKED, last)
            self._pack_panel(schedule, self.program.stage(PACKED))
        if sliced.slices > 1:
            last = "panel"
        elif not (self.copied or self.packs):
            last = max("panel", last, key=outer.index)
        if decisions["prefetch"]:
            ahead = sliced.slice_loop if sliced.slices > 1 else "panel"
            at = step if step and self._is_paced(decisions) else tile
            schedule.prefetch(self.contraction.vector_load.buffer.name, ahead, at)
        if decisions["ahead"]:
            blocks = self._sum.block_loop
            schedule.prefetch(self.contraction.broadcast_load.buffer.name, blocks, blocks, level=1)
        shared = outer[: outer.index(last) + 1]
        run_parallel(schedule, shared)
        return schedule

    def _pack_panel(self, schedule: Schedule, stage: Stage) -> None:
        """Vectorize the stage that packs a panel of the vector operand."""
        if self.grouping is None:
            pack(schedule, stage, self.machine.lanes)
        else:
            pack_groups(schedule, stage, self.machine.lanes, self.grouping)
            lay_out_packed(schedule, stage, 0, self.grouping)

    def _copy_window(self, schedule: Schedule, stage: Stage) -> None:
        """Vectorize the stage that copies the padded input, by vectors or by groups of adjacent
        channels."""
        layout, lanes = stage.buffer.layout, self.machine.lanes
        if layout is not None and self.grouping is not None:
            schedule.group(lay_out_copy(schedule, stage, layout, self.grouping.group))
            return
        if lanes == 1:
            layout = None
        elif layout is not None and self.contraction.depthwise:
            # A panel's copy has the channels of the panel alone.
            layout = Layout.blocked(len(stage.axes), layout.dims[-1].axis, lanes)
        schedule.vectorize(lay_out_copy(schedule, stage, layout, lanes))

    def _is_paced(self, decisions: Decisions) -> bool:
        """Check whether a prefetch in every step of a sum would fetch each cache line of the next
        panel at most `PACED` times on average. If not, fewer prefetches are emitted."""
        columns = {name: np.array([value]) for name, value in decisions.items()}
        tiles, threads = _tiles(columns), self.machine.threads
        hints = microkernel.hints_a_line(self._problem.points, tiles, threads)
        return bool(hints[0] <= microkernel.PACED)

    def _tile_output(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        """Tile the loop nest that writes the output; return the names of the loops around a tile,
        outermost first."""
        contraction = self.contraction
        loops = self._output_loops(schedule)
        rows, columns = self.tiled
        width = self.machine.lanes
        schedule.split(loops[contraction.lane], decisions["vectors"] * width, "panel", "in_panel")
        schedule.split("in_panel", width, "vector", "lane")
        outer = [loops[axis] for axis in loops if axis not in (contraction.lane, rows, columns)]
        inner = []
        middle = ["panel"]
        if rows:
            middle = self._divide_rows(schedule, loops[rows], decisions)
            inner.append("in_row")
        outer += middle
        if columns:
            schedule.split(loops[columns], decisions["columns"], "column", "in_column")
            outer.append("column")
            inner.append("in_column")
        schedule.reorder(*outer, *inner, "vector", "lane")
        schedule.vectorize("lane")
        for loop in ("vector", *inner):
            schedule.unroll(loop)
        return outer

    def _divide_rows(self, schedule: Schedule, loop: str, decisions: Decisions) -> list[str]:
        """Split the loop over rows into tiles; return the loops over panels and over tiles of rows
        in their order of nesting."""
        if decisions["order"] != LoopOrder.PARTS:
            schedule.split(loop, decisions["rows"], "row", "in_row")
            return ["panel", "row"] if decisions["order"] == LoopOrder.PANELS else ["row", "panel"]
        tiles = -(-self.extent(self.tiled[0]) // decisions["rows"])
        schedule.split(loop, decisions["rows"], "any_row", "in_row")
        schedule.split("any_row", -(-tiles // self.machine.threads), "part", "row")
        return ["part", "panel", "row"]

    def _output_loops(self, schedule: Schedule) -> dict[str, str]:
        """Return the loop over the output for each non-reduced axis of the contraction."""
        contraction = self.contraction
        prefix = contraction.output.buffer.name
        whole = self.program.stage(INTERLEAVED) if self.turns else contraction.stage
        loops = {
            inner.name: f"{prefix}_{outer.name}"
            for inner, outer in zip(whole.axes, contraction.output.axes, strict=True)
        }
        for turn in self.turns:
            loops[turn.step], loops[turn.tap] = schedule.split(loops[turn.axis], turn.stride)
        return {axis.name: loops[axis.name] for axis in contraction.stage.axes}


def _lane_extent(contraction: Contraction) -> int:
    """Return the extent of the lane axis, rounded up to whole blocks if the layout is blocked."""
    axis = innermost_axis(contraction.stage)
    return typical(coverage(contraction.stage.buffer, axis))


def _tiles(columns: Columns) -> microkernel.Tiles:
    names = (field.name for field in dataclasses.fields(microkernel.Tiles))
    return microkernel.Tiles(*(columns[name].astype(np.float64) for name in names))
