"""Rule: inverted bottlenecks, which are a pointwise convolution that expands the channels, a
depthwise convolution, and optionally a pointwise convolution that projects to few channels. For an
image of few channels, as at the start of networks, the first convolution may have larger kernels.

    for strip in parallel:                   lines of the output; of open height, even shares
        for panel:                           vectors of channels of the expanded image
            for line: for tile: expand       the lines that the strip reads, within their padding
            for vector: for tile: filter, epilogue
        for panel, tile: project, epilogue

Without a projection, threads share both strips and panels. The expanded image of one strip and
panel, and the filtered image of a strip, are stored in memory of the thread, so the large images
never leave its caches. Input lines that two strips read are expanded twice.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from farrier.ir.affine import Simplifier
from farrier.ir.dim import Dim, Extent, maximum, number, typical
from farrier.ir.expr import Load, MemoryScope, Reduce, Select, Var
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType, Layout
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.space.operations import operations, reads_of
from farrier.space.rewrites import accumulate, without_halos
from farrier.space.space import Columns, Decisions, Estimate, Floats, Knob, Space
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units import microkernel
from farrier.targets.cpu.units.contraction import (
    Contraction,
    contraction_of,
    extent_of,
    group_size,
    innermost_axis,
    is_elementwise,
    volume,
)
from farrier.targets.cpu.units.dot_products import Grouping, find_grouping
from farrier.targets.cpu.units.epilogue import inline_once, keep_values
from farrier.targets.cpu.units.microkernel import LoopOrder
from farrier.targets.cpu.units.nests import run_parallel
from farrier.targets.cpu.units.operands import PADDED, by_first_use, hoist_padding
from farrier.targets.cpu.units.program_kernel import ProgramKernel
from farrier.targets.cpu.units.shortlist import Tile, parts, shortlist, tile_extents, tiles_of
from farrier.targets.cpu.units.tiled_sum import TiledSum

RULE = RuleId("bottleneck", version=7)
_VECTORS = (1, 2, 3, 4, 6)
_ROWS = (1, 2, 3, 4)
_COLUMNS = range(1, 33)
_TILES = 6  # The most tiles of each kind in a space.
_ROOM = 0.7  # The share of the second-level cache for the data of a strip.
_TAIL = 0.02  # A separate tile for the last lines must save at least this share of the time.
_SIDES = {2: ("below", "bottom"), 3: ("inside", "right")}  # The loops beyond the padding, by axis.
_SOURCE = "source"  # The stage of the first image with its padding, if the image has no halo.
_SUMS = (DType.F32, DType.I32)
_TIMES = ("compute", "latency", "load", "l2", "memory", "late")


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space | None:
    """Return the schedule space of an inverted bottleneck; None for any other program, and if the
    padding depends on open (dynamic) sizes."""
    kernel = _kernel(by_first_use(without_halos(program)), target.machine(threads), target)
    return None if kernel is None else Space.of(RULE, kernel)


def _kernel(program: TensorProgram, machine: Machine, target: CpuTarget) -> BottleneckKernel | None:
    """Return the program's stages as a BottleneckKernel, or None if the rule does not apply."""
    contractions = _contractions(program)
    if len(program.outputs) != 1 or not all(map(_convolves, contractions)):
        return None
    if not all(part.depthwise or _is_pointwise(part) for part in contractions[1:]):
        return None
    if [part.depthwise for part in contractions] not in ([False, True], [False, True, False]):
        return None
    for before, after in itertools.pairwise(contractions):
        image = before.output.buffer.name
        if after.broadcast_load.buffer.name != image or reads_of(image, program.stages) != 1:
            return None
    if not all(is_elementwise(stage, program) for part in contractions for stage in part.epilogue):
        return None
    for part in contractions[1:]:
        if not part.epilogue:
            program = accumulate(program, program.stages.index(part.stage))
    program = hoist_padding(program, _contractions(program)[1])
    if contractions[0].padded:
        program = hoist_padding(program, _contractions(program)[0], _SOURCE)
    expand, window, *project = _contractions(program)
    padded = program.stages[program.stages.index(window.stage) - 1]
    padding = [end for axis in _SIDES for end in _padding(padded, expand, axis)]
    if any(isinstance(end, Dim) for end in padding):
        return None
    groupings = {part.stage.buffer.name: find_grouping(part, target) for part in (expand, *project)}
    return BottleneckKernel(
        program, expand, window, next(iter(project), None), padded, machine, groupings
    )


def _convolves(contraction: Contraction) -> bool:
    """Check whether a sum of products is a convolution with constant weights whose result is in the
    blocked layout."""
    stage, load = contraction.stage, contraction.vector_load
    image = len(stage.axes) == 4 and contraction.lane == stage.axes[1].name
    if not image or contraction.reduction[-2:] != ("kh", "kw") or stage.buffer.dtype not in _SUMS:
        return False
    grouped = (
        not contraction.depthwise and group_size(contraction.broadcast_load, contraction.lane) > 0
    )
    return load.buffer.scope is MemoryScope.CONSTANT and not grouped


def _is_pointwise(contraction: Contraction) -> bool:
    """Check whether a convolution has a 1 × 1 kernel with stride 1."""
    same = contraction.broadcast_load.buffer.shape[2:] == contraction.stage.buffer.shape[2:]
    return same and volume(contraction.stage, ("kh", "kw")) == 1


def _contractions(program: TensorProgram) -> list[Contraction]:
    """Return the sums of products in a program, each with its epilogue (the stages up to the next
    sum). Return an empty list if some sum is not a sum of products, or if other stages precede the
    first image."""
    stages = tuple(stage for stage in program.stages if stage.buffer.name != _SOURCE)
    starts = [at for at, stage in enumerate(stages) if isinstance(stage.body, Reduce)]
    if not starts or starts[0] != 0:
        return []
    candidates = []
    for start, end in zip(starts, [*starts[1:], len(stages)], strict=True):
        rest = tuple(stage for stage in stages[start + 1 : end] if stage.buffer.name != PADDED)
        candidates.append(contraction_of(stages[start], rest))
    contractions = [contraction for contraction in candidates if contraction is not None]
    return contractions if len(contractions) == len(candidates) else []


@dataclasses.dataclass(frozen=True)
class BottleneckKernel(ProgramKernel):
    """The stages of one inverted bottleneck: `expand`, `window` (depthwise) and, optionally,
    `project`."""

    program: TensorProgram
    expand: Contraction
    window: Contraction
    project: Contraction | None
    padded: Stage  # The expanded image [n, c, y, x] within its padding.
    machine: Machine
    # The dot-product grouping of each pointwise sum, by the name of the sum.
    groupings: Mapping[str, Grouping | None]

    @functools.cached_property
    def _filtered(self) -> tuple[int, int, int, int]:
        """The typical extents [n, c, y, x] of the depthwise convolution's result."""
        n, c, y, x = (typical(axis.extent) for axis in self.window.stage.axes)
        return n, c, y, x

    @functools.cached_property
    def _is_static(self) -> bool:
        """Check whether the number of output lines is constant."""
        return isinstance(self.window.stage.axes[2].extent, int)

    @property
    def _stride(self) -> int:
        """The vertical stride of the depthwise convolution, in lines of the expanded image."""
        return _stride(self.window)

    @property
    def _has_source(self) -> bool:
        return self.expand.broadcast_load.buffer.name == _SOURCE

    # -- decisions ------------------------------------------------------------------------------

    def knobs(self) -> tuple[Knob, ...]:
        summed = [part for part in (self.expand, self.project) if part is not None]
        knobs = [
            Knob("lines", self._heights()),
            Knob("expand", self._expansions(), tile_extents),
            Knob("unroll", tuple(sorted({u for part in summed for u in self._unrolls(part)}))),
            Knob("window", self._tiles(self.window, (1,), self._rows), tile_extents),
        ]
        if self.project is not None:
            tiles = self._tiles(self.project, _VECTORS, self._rows)
            knobs.append(Knob("project", tiles, tile_extents))
        return tuple(knobs)

    @property
    def _rows(self) -> tuple[int, ...]:
        """The possible numbers of rows of a register tile; only 1 if the number of lines in a strip
        is open (dynamic)."""
        return _ROWS if self._is_static else (1,)

    @property
    def _parts(self) -> int:
        """The minimum number of strips for an image of open (dynamic) height: one for each thread
        if threads share only strips, else 1."""
        return 1 if self.project is None else self.machine.threads

    def _heights(self) -> tuple[int, ...]:
        """Return the possible numbers of lines in a strip: the divisors of a constant height; for
        an open (dynamic) height, upper limits that result in different numbers of strips at the
        typical height."""
        rows = self._filtered[2]
        if self._is_static:
            return tuple(n for n in range(1, rows + 1) if rows % n == 0)
        return tuple(sorted({-(-rows // (self._parts * n)) for n in range(1, rows + 1)}))

    def _unrolls(self, contraction: Contraction) -> tuple[int, ...]:
        return self._sum(contraction).unrolls(self.machine.unroll)

    def _expansions(self) -> tuple[int, ...]:
        """Return the register tiles that the search may choose from for the expansion, as knob
        values. For each number of vectors, these are the fastest tiles of one row, and the fastest
        tiles of any number of rows."""
        rows = typical(self.expand.stage.axes[2].extent)
        tiles: dict[int, None] = {}
        for vectors in _VECTORS:
            for allowed in ((1,), tuple(r for r in self._rows if r <= rows)):
                tiles |= dict.fromkeys(self._tiles(self.expand, (vectors,), allowed))
        return tuple(tiles)

    def _tiles(
        self, contraction: Contraction, vectors: Sequence[int], rows: Sequence[int]
    ) -> tuple[int, ...]:
        _, lanes, *extents = (typical(axis.extent) for axis in contraction.stage.axes)
        blocks = -(-lanes // self.machine.lanes)
        choices = (
            tuple(v for v in vectors if v <= blocks),
            tuple(r for r in rows if r <= extents[0]),
            tuple(c for c in _COLUMNS if c <= extents[1]),
        )
        return shortlist(self._problem(contraction), self.machine, choices, _TILES)

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Check for each candidate that the rows of an output tile divide the lines of a strip.
        Also check that tiles of the expanded image have a single row, unless the strip is the whole
        image: other tiles would include lines of padding."""
        lines, output = columns["lines"], "window" if self.project is None else "project"
        fits: npt.NDArray[np.bool_] = lines % parts(columns[output])[1] == 0
        fits &= parts(columns["expand"])[1] == 1
        if self._is_static:
            fits |= lines == self._filtered[2]
        return fits

    def estimate(self, columns: Columns) -> Estimate:
        """Estimate the time of each candidate: each convolution by the cost model of register
        tiles, the expansion for all lines that strips read, and the traffic that exceeds the
        second-level cache."""
        machine, ones = self.machine, np.ones(len(columns["lines"]))
        lines, unroll = columns["lines"].astype(np.float64), columns["unroll"].astype(np.float64)
        whole = (lines == self._filtered[2]) & (self.project is None)
        order = np.where(whole, float(LoopOrder.PANELS), float(LoopOrder.PARTS))
        tiles = tiles_of(columns["expand"], unroll, order, prefetch=True)
        expand = microkernel.estimate(self._problem(self.expand), tiles, machine)
        others = []
        for name, contraction in (("window", self.window), ("project", self.project)):
            if contraction is not None:
                tiles = tiles_of(columns[name], unroll, order, prefetch=False)
                others.append(microkernel.estimate(self._problem(contraction), tiles, machine))
        batch, channels, rows, width = self._filtered
        panel = parts(columns["expand"])[0] * machine.lanes
        if not self._is_static:  # These are the sizes that `split_evenly` chooses.
            lines = np.ceil(rows / (self._parts * np.ceil(rows / (self._parts * lines))))
        strips, panels = batch * rows / lines, np.ceil(channels / panel)
        read = (lines - 1) * self._stride + extent_of(self.window.stage, "kh")
        again = read * strips / (batch * typical(self.expand.stage.axes[2].extent))
        expanded = read * typical(self.padded.axes[3].extent) * panel
        expanded = expanded * float(self.padded.buffer.dtype.nbytes)
        size = 0 if self.project is None else self.project.broadcast_load.buffer.dtype.nbytes
        filtered = lines * width * channels * size
        room = _ROOM * machine.l2_bytes
        spilt = np.where(expanded > room, 2 * expanded * panels * strips, 0.0)
        spilt += np.where(expanded + filtered > room, 2 * filtered * strips, 0.0)
        spilt /= machine.l3_bandwidth * machine.hertz
        units = strips * (panels if self.project is None else 1)
        share = microkernel.vectors_of(channels, machine) / parts(columns["expand"])[0]
        whole = strips * (share if self.project is None else 1)
        balance = microkernel.busiest(units, whole, machine.threads)
        seconds = (expand.seconds - machine.fork_join) * again + spilt / machine.threads
        seconds += sum(other.seconds - machine.fork_join for other in others)
        terms = {
            name: expand.terms[name] * again + sum(other.terms[name] for other in others)
            for name in _TIMES
        }
        terms["l2"] = terms["l2"] + spilt
        terms["overhead"] = machine.fork_join * ones
        terms["tiles"], terms["balance"], terms["waste"] = units, balance, again
        seconds *= 1 + _TAIL * self._tails(columns)
        return Estimate(seconds * balance + machine.fork_join, terms)

    def _tails(self, columns: Columns) -> Floats:
        """Return the number of additional tiles in the code, of smaller height, for the last lines
        of a strip."""
        lines, count = columns["lines"], np.zeros(len(columns["lines"]))
        for name in ("window", *(() if self.project is None else ("project",))):
            count += lines % parts(columns[name])[1] > 0
        return count

    def _problem(self, contraction: Contraction) -> microkernel.Problem:
        batch, lanes, rows, columns = (typical(axis.extent) for axis in contraction.stage.axes)
        window, stride = contraction is self.window, _stride(contraction)
        taps = tuple(extent_of(contraction.stage, axis) for axis in ("kh", "kw"))
        return microkernel.Problem(
            batch=batch,
            lanes=lanes,
            points=(rows, columns),
            steps=volume(contraction.stage, contraction.reduction) // self._sum(contraction).group,
            group=self._sum(contraction).group,
            taps=(taps[0], taps[1]),
            strides=(stride, stride),
            lane_bytes=typical(contraction.vector_load.buffer.nbytes),
            # The depthwise convolution reads data that was just written.
            point_bytes=0 if window else typical(contraction.broadcast_load.buffer.nbytes),
            cold=True,
            common=True,
            depthwise=window,
            epilogue=operations(contraction.epilogue),
            by_lane=self._sum(contraction).by_lane,
        )

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        """Tile the output by strips and panels. The operands of each strip are computed before its
        first use in the strip, those of each panel in the panel."""
        schedule = Schedule(self.function)
        lanes, expand = self.machine.lanes, Tile.of(decisions["expand"])
        for contraction in (self.expand, self.window):
            self._sum(contraction).lay_out_weights(schedule, expand.vectors * lanes)
        first = inline_once(schedule, (*self.expand.epilogue, self.padded))
        second = inline_once(schedule, self.window.epilogue)
        image = self.window.output.buffer.name
        loops = [f"{image}_{axis.name}" for axis in self.window.output.axes]
        if self.project is None:
            around = self._split_strips(schedule, loops, decisions)
            shared = [*around, "panel"]
        else:
            shared = around = self._tile_projection(schedule, decisions)
            schedule.compute_at(image, "strip")
            around = loops[:1]
        self._tile_window(schedule, [*around, *loops[1:]], decisions)
        keep_values(schedule, second, "in_column", innermost_axis(self.window.stage))
        self._place_sum(schedule, self.window, "column", 1)
        schedule.compute_at(PADDED, "panel")
        self._tile_expansion(schedule, decisions, first)
        if self._has_source:
            schedule.compute_at(_SOURCE, "panel" if self.project is None else "strip")
            column = f"{_SOURCE}_{self.program.stage(_SOURCE).axes[-1].name}"
            schedule.vectorize(schedule.split(column, lanes)[1])
        if self._filtered[1] > expand.vectors * lanes:
            schedule.prefetch(self.expand.vector_load.buffer.name, "panel", "point")
        run_parallel(schedule, shared)
        for buffer in (PADDED, *([] if self.project is None else [image])):
            schedule.transform_layout(buffer, Layout.blocked(4, 1, lanes))
        return schedule

    def _sum(self, contraction: Contraction) -> TiledSum:
        rows, columns = contraction.stage.axes[2:]
        tiled = (rows.name, columns.name)
        name = contraction.stage.buffer.name
        grouping = self.groupings.get(name)
        return TiledSum.of(contraction, self.machine, tiled, f"{name}_", grouping)

    def _place_sum(
        self, schedule: Schedule, contraction: Contraction, loop: str, unroll: int
    ) -> None:
        """Compute the sum of a tile in registers within each iteration of `loop`."""
        name = contraction.stage.buffer.name
        schedule.compute_at(name, loop)
        schedule.set_scope(name, MemoryScope.REGISTER)
        self._sum(contraction).order(
            schedule, max(u for u in self._unrolls(contraction) if u <= unroll)
        )

    def _split_strips(
        self, schedule: Schedule, loops: list[str], decisions: Decisions
    ) -> list[str]:
        """Split the loop over output lines into a loop over strips and a loop over the lines of a
        strip. `loops` are the loops [n, c, y, x], in which the loop over y is replaced by the loop
        within a strip. Return the loops around a strip."""
        lines = decisions["lines"]
        if self._is_static:
            schedule.split(loops[2], lines, "strip", "in_strip")
        else:
            schedule.split_evenly(loops[2], self._parts, lines, 1, "strip", "in_strip")
        batch, loops[2] = loops[0], "in_strip"
        return [batch, "strip"]

    def _tile_projection(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        """Tile the loop nest that writes the projection's output by strips. Return the loops within
        which the panels of a strip are computed."""
        assert self.project is not None
        tile, lanes = Tile.of(decisions["project"]), self.machine.lanes
        output = self.project.output
        kept = inline_once(schedule, self.project.epilogue)
        self._sum(self.project).lay_out_weights(schedule, tile.vectors * lanes)
        loops = [f"{output.buffer.name}_{axis.name}" for axis in output.axes]
        around = self._split_strips(schedule, loops, decisions)
        _, channels, y, x = loops
        schedule.split(channels, tile.vectors * lanes, "out_panel", "in_out_panel")
        schedule.split("in_out_panel", lanes, "out_vector", "out_lane")
        schedule.split(y, tile.rows, "out_row", "in_out_row")
        schedule.split(x, tile.columns, "out_column", "in_out_column")
        inner = ("in_out_row", "in_out_column", "out_vector")
        schedule.reorder(*around, "out_panel", "out_row", "out_column", *inner, "out_lane")
        schedule.vectorize("out_lane")
        for loop in inner:
            schedule.unroll(loop)
        keep_values(schedule, kept, "out_vector", innermost_axis(self.project.stage))
        self._place_sum(schedule, self.project, "out_column", decisions["unroll"])
        return around

    def _tile_window(self, schedule: Schedule, loops: list[str], decisions: Decisions) -> None:
        """Divide the loop nest of the depthwise convolution into panels of channels, and each panel
        into register tiles with one vector of channels. `loops` are its outer loops, followed by
        the loops over c, y and x."""
        *around, channels, y, x = loops
        tile, lanes = Tile.of(decisions["window"]), self.machine.lanes
        panel = Tile.of(decisions["expand"]).vectors * lanes
        schedule.split(channels, panel, "panel", "in_panel")
        schedule.split("in_panel", lanes, "vector", "lane")
        schedule.split(y, tile.rows, "row", "in_row")
        schedule.split(x, tile.columns, "column", "in_column")
        tiled = ("vector", "row", "column", "in_row", "in_column")
        schedule.reorder(*around, "panel", *tiled, "lane")
        schedule.vectorize("lane")
        schedule.unroll("in_row")
        schedule.unroll("in_column")

    def _tile_expansion(self, schedule: Schedule, decisions: Decisions, kept: list[Stage]) -> None:
        """Tile the loop nest that writes the expanded image, and let separate nests write the zeros
        of its padding. `kept` are the epilogue stages of the expansion that are computed in
        registers."""
        tile = Tile.of(decisions["expand"])
        loops = [f"{PADDED}_{axis.name}" for axis in self.padded.axes]
        loops = self._between_padding(schedule, loops, 3)
        if self._is_static and decisions["lines"] == self._filtered[2]:
            loops = self._between_padding(schedule, loops, 2)
        batch, channels, y, x = loops
        schedule.split(channels, self.machine.lanes, "point_vector", "point_lane")
        schedule.split(y, tile.rows, "line", "in_line")
        schedule.split(x, tile.columns, "point", "in_point")
        inner = ("in_line", "in_point", "point_vector")
        schedule.reorder(batch, "line", "point", *inner, "point_lane")
        schedule.vectorize("point_lane")
        for loop in inner:
            schedule.unroll(loop)
        keep_values(schedule, kept, "point_vector", innermost_axis(self.expand.stage))
        self._place_sum(schedule, self.expand, "point", decisions["unroll"])

    def _between_padding(self, schedule: Schedule, loops: list[str], axis: int) -> list[str]:
        """Split the loop over `axis` so that separate loop nests write the zeros before and after
        the image. Return the loops of the nest that writes the image between these."""
        before, after = map(number, _padding(self.padded, self.expand, axis))
        inside, beyond = _SIDES[axis]
        sides: list[list[str]] = []
        if before:
            sides.append(loops)
            loops = self._cut(schedule, loops, axis, before, inside)
        if after:
            sides.append(self._cut(schedule, loops, axis, -after, beyond))
        for batch, channels, y, x in sides:
            block, lane = schedule.split(channels, self.machine.lanes)
            schedule.reorder(batch, block, y, x, lane)
            schedule.vectorize(lane)
        return loops

    def _cut(
        self, schedule: Schedule, loops: list[str], axis: int, at: int, name: str
    ) -> list[str]:
        """Split a nest along an axis at an index into two nests; return the loops of the second
        one."""
        others = loops[:axis] + loops[axis + 1 :]
        schedule.reorder(loops[axis], *others)
        schedule.cut(loops[axis], at, name)
        return [name if loop == loops[axis] else f"{name}_{loop}" for loop in loops]


def _padding(padded: Stage, expand: Contraction, axis: int) -> tuple[Extent, Extent]:
    """Return the numbers of zeros before and after the expanded image along an axis, as the
    depthwise convolution reads it."""
    body = padded.body
    load = body.then if isinstance(body, Select) else body
    assert isinstance(load, Load)
    simplifier = Simplifier({a.name: a.extent for a in padded.axes})
    low, high = simplifier.bounds(load.indices[axis])
    after = high - expand.stage.axes[axis].extent + 1
    return maximum(-low, 0), maximum(after, 0)


def _stride(contraction: Contraction) -> int:
    """Return the vertical stride of a convolution, in input lines."""
    simplifier = Simplifier({axis.name: axis.extent for axis in contraction.stage.axes})
    row = Var(contraction.stage.axes[2].name)
    return number(simplifier.linear(contraction.broadcast_load.indices[2]).terms.get(row, 1))
