"""The schedule of one register tile of a contraction: the layout of its weights, and the order of
its sum.

The accumulators are kept in registers. Each step of the reduction loads the vectors of one operand
once, and broadcasts the elements of the other operand one after the other; with dot products, these
are groups of adjacent elements.

A long reduction may be divided into slices: all tiles of a panel compute one slice of the weights
before the next begins. The slice is then read repeatedly from the first-level or second-level
cache, whereas a whole panel would come from the third; in return, the sums of all tiles of the
panel are stored in memory between slices.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from farrier.ir.blocks import block_of
from farrier.ir.expr import MemoryScope, Var
from farrier.ir.substitute import variables
from farrier.ir.types import Layout, PhysicalDim
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.targets.cpu.units.contraction import (
    Contraction,
    extent_of,
    factor_of,
    innermost_axis,
    volume,
)
from farrier.targets.cpu.units.dot_products import Grouping, neighbours

# The least share of a kernel's time that twice the unrolled steps must gain if sizes are open.
UNROLLED = 0.02
_WINDOW = 49  # A depthwise window of at most this number of taps is unrolled whole.
_SMALLEST_BLOCK = 4  # The smallest block of channels that is worth its own loop.
_UNROLL = (1, 2, 4)  # The steps in one iteration.
_SHORT_LOOP = 8  # Up to this number of steps may be one iteration, without a loop.
_SHORT_TAPS = 4  # A loop of at most this number of steps is unrolled if groups are unpacked.
_PART = "part"  # The part of a sum that one slice of the reduction adds.
_SLICE = "slice"


@dataclasses.dataclass(frozen=True, slots=True)
class _Steps:
    """The reduction loops of a sum, the outermost first. `products` are the loops over the groups
    of a dot product, within them, and `unrolled` those of `loops` that are unrolled."""

    loops: list[str]
    products: list[str]
    unrolled: list[str]


@dataclasses.dataclass(frozen=True, slots=True)
class TiledSum:
    """The sum of a contraction over a tile of points along the axes `tiled` ("" for none) and
    vectors of `width` lanes. The names of new loops begin with `prefix`."""

    contraction: Contraction
    width: int
    tiled: tuple[str, str]
    blocked: str  # The reduced axis that the point operand's layout splits, "" if it splits none.
    block: int
    prefix: str
    grouping: Grouping | None  # The grouping in dot products; None: products one by one.
    lanes_are_factors: bool = False  # The same as `Machine.by_lane`.
    folds_loads: bool = True  # The same as `Machine.folds_loads`.
    # The parts of the reduction that are summed one after the other, for all tiles.
    slices: int = 1

    @classmethod
    def of(
        cls,
        contraction: Contraction,
        machine: Machine,
        tiled: tuple[str, str],
        prefix: str = "",
        grouping: Grouping | None = None,
    ) -> TiledSum:
        blocked = reduced_block(contraction)
        return cls(
            *(contraction, machine.lanes, tiled, *blocked, prefix, grouping),
            lanes_are_factors=machine.by_lane,
            folds_loads=machine.folds_loads,
        )

    @property
    def _inner(self) -> str:
        """The reduced axis of the innermost reduction loop."""
        axes = self.contraction.reduction
        long = [axis for axis in axes if extent_of(self.contraction.stage, axis) > 1]
        return self.blocked or [*axes, *long][-1]

    @property
    def inner_steps(self) -> int:
        """The extent of the innermost reduction loop."""
        return (self.block or extent_of(self.contraction.stage, self._inner)) // self._inner_group

    @property
    def _inner_group(self) -> int:
        """The number of products that one iteration of the innermost reduction loop adds to each
        lane."""
        grouped = self.grouping is not None and self.grouping.axis == self._inner
        return self.group if grouped else 1

    def unrolls(self, limit: int) -> tuple[int, ...]:
        """Return the possible numbers of steps in one unrolled iteration of the innermost loop, in
        ascending order, of at most `limit`. They include all steps of a short loop. If the operand
        is stored in short blocks, they may include the steps of two blocks. For depthwise
        convolutions the result is (1,), as the loops over the convolution kernel are unrolled
        separately."""
        if self.contraction.depthwise:
            return (1,)
        inner = self.inner_steps
        choices = _UNROLL if self.blocked else (*_UNROLL, limit)
        whole = self.block or factor_of(self.contraction.stage, self._inner)
        whole //= self._inner_group
        choices_that_divide = {steps for steps in choices if whole % steps == 0 and steps <= limit}
        two, stage = 2 * self.block, self.contraction.stage
        if self.by_lane and two and factor_of(stage, self.blocked) % two == 0:
            choices_that_divide |= {2 * inner} if 2 * inner <= limit else set()
        is_short = inner <= _SHORT_LOOP and whole % inner == 0
        return tuple(sorted(choices_that_divide | ({inner} if is_short else set())))

    @property
    def block_loop(self) -> str:
        """The name of the loop over blocks of the reduced axis, into which the layout of the
        broadcast operand divides it."""
        return f"{self.prefix}block"

    @property
    def group(self) -> int:
        """The number of products that one step adds to each lane: the group size of the dot
        product, or 1."""
        return 1 if self.grouping is None else self.grouping.dot.group

    @property
    def parts(self) -> int:
        """The number of registers into which a dot product unpacks each group of adjacent elements;
        0 if groups are not unpacked."""
        return 0 if self.grouping is None else self.grouping.dot.parts

    @property
    def slice_loop(self) -> str:
        """The name of the loop over the slices of the reduction, if there are several."""
        return f"{_PART}_{_SLICE}"

    @property
    def sliced(self) -> str:
        """The reduced axis that is divided into slices: the outermost in the order of the
        weights."""
        return self.blocked or self.contraction.reduction[0]

    def slice_choices(self, shortest: int) -> tuple[int, ...]:
        """Return the possible numbers of slices: 1, and powers of two that divide the axis into
        equal slices of whole blocks and groups with at least `shortest` steps."""
        extent = factor_of(self.contraction.stage, self.sliced)
        whole = self.block or self.group
        steps = volume(self.contraction.stage, self.contraction.reduction) // self.group
        powers = (1 << power for power in range(1, (steps // shortest).bit_length()))
        return (1, *(count for count in powers if extent % (count * whole) == 0))

    def lay_out_weights(self, schedule: Schedule, panel: int, chunk: int = 0) -> None:
        """Change the layout of the weights to panels of `panel` lanes, each in the order in
        which the reduction reads it. Unless `chunk` is 0, panels are grouped in chunks of
        `chunk` lanes."""
        load = self.contraction.vector_load
        places = {index.name: at for at, index in enumerate(load.indices) if isinstance(index, Var)}
        lane = places[self.contraction.lane]
        order = [places[axis] for axis in self.contraction.reduction if axis in places]
        rest = [at for at in range(len(load.indices)) if at not in (lane, *order)]
        inner: list[PhysicalDim] = []
        dims = [PhysicalDim(lane, chunk)] if chunk > panel else []
        dims += [PhysicalDim(at) for at in rest]
        dims.append(PhysicalDim(lane, panel, chunk // panel if chunk > panel else 0))
        grouped = -1 if self.grouping is None else places[self.grouping.axis]
        if self.blocked in places:
            split = places[self.blocked]
            order.remove(split)
            step = self.group if split == grouped else 1
            dims.append(PhysicalDim(split, self.block))
            if self.block > step:
                inner.append(PhysicalDim(split, step, self.block // step))
        dims += [PhysicalDim(at, self.group if at == grouped else 1) for at in order]
        inner.append(PhysicalDim(lane, 1, panel))
        inner += [] if self.grouping is None else [PhysicalDim(grouped, 1, self.group)]
        layout = Layout((*dims, *inner))
        schedule.transform_layout(load.buffer.name, layout)

    def compute_at(self, schedule: Schedule, tile: str, panel: str, sizes: tuple[int, int]) -> str:
        """Place the sum: each tile's sum within the loop `tile`, in registers; or, with slices, the
        sums of all tiles of `sizes` rows and columns at the start of the loop `panel`, in memory.
        Return the loop around one tile's sum.

        with slices:  for panel:
                          sum[all tiles] = 0
                          for slice: for row: for column:
                              part[tile] = the slice's products
                              sum[tile] += part[tile]
                          for row: for column: the epilogue of sum[tile]
        """
        contraction, name = self.contraction, self.contraction.stage.buffer.name
        if self.slices == 1:
            schedule.compute_at(name, tile)
            schedule.set_scope(name, MemoryScope.REGISTER)
            return tile
        schedule.compute_at(name, panel)
        lanes = innermost_axis(contraction.stage)
        schedule.transform_layout(
            name, Layout.blocked(len(contraction.stage.axes), lanes, self.width)
        )
        factor = extent_of(contraction.stage, self.sliced) // self.slices
        schedule.split(f"{name}_{self.sliced}", factor, _SLICE, f"in_{_SLICE}")
        schedule.rfactor(_SLICE, _PART)
        tiles, points = [self.slice_loop], []
        for axis, size in zip(self.tiled, sizes, strict=True):
            if axis:
                loops = schedule.split(f"{_PART}_{name}_{axis}", size)
                tiles.append(loops[0])
                points.append(loops[1])
        vector, lane = schedule.split(f"{_PART}_{name}_{contraction.lane}", self.width)
        schedule.reorder(*tiles, *points, vector, lane)
        schedule.vectorize(lane)
        for loop in (*points, vector):
            schedule.unroll(loop)
        schedule.compute_at(_PART, tiles[-1])
        schedule.set_scope(_PART, MemoryScope.REGISTER)
        start = [
            f"{name}_init_{axis.name}"
            for axis in contraction.stage.axes
            if axis.name != contraction.lane
        ]
        vector, lane = schedule.split(f"{name}_init_{contraction.lane}", self.width)
        schedule.reorder(*start, vector, lane)
        schedule.vectorize(lane)
        return tiles[-1]

    def order(self, schedule: Schedule, unroll: int) -> str:
        """Reorder the loops of one tile's sum: reduction loops outside, accumulators and lanes
        inside. Return the innermost loop that is not unrolled, "" if all are."""
        contraction, name = self.contraction, self.contraction.stage.buffer.name
        points = [axis for axis in self.tiled if axis]
        single = [
            a.name for a in contraction.stage.axes if a.name not in (*points, contraction.lane)
        ]
        start, init = self._order_zeros(schedule, points, single)
        vector, lane = self._split(
            schedule, f"{name}_{contraction.lane}", self.width, "sum_vector", "sum_lane"
        )
        tile = [f"{name}_{axis}" for axis in points]
        is_sliced = self.slices > 1
        first = [*(f"{name}_{axis}" for axis in single), *([_SLICE] if is_sliced else [])]
        steps = self._steps(schedule, unroll)
        by_row = (
            contraction.depthwise
            and self._is_window
            and not self.folds_loads
            and len(steps.loops) == 2
        )
        if by_row:  # Elements of an image line that one row of the tile reads are loaded once.
            line, tap = steps.loops
            schedule.reorder(*first, line, *tile[:-1], vector, tap, *tile[-1:], lane)
        else:
            # Factors by lane are in registers already. Each of the others is used only once after
            # its load, so that two loads may be paired.
            places = (vector, *tile) if self.by_lane and unroll > 1 else (*tile, vector)
            schedule.reorder(*first, *steps.loops, *places, lane, *steps.products)
        for product in steps.products:
            schedule.dot(product)
        schedule.vectorize(init[1])
        schedule.vectorize(lane)
        for loop in (*start, init[0], *tile, vector, *steps.unrolled):
            schedule.unroll(loop)
        if by_row:
            self._read_line(schedule, vector)
        if self.by_lane and unroll > 1:
            self._read_by_lane(schedule, steps.loops[-2])
        unrolled = (*tile, vector, *steps.unrolled)
        return next((step for step in reversed(steps.loops) if step not in unrolled), "")

    def _order_zeros(
        self, schedule: Schedule, points: Sequence[str], single: Sequence[str]
    ) -> tuple[list[str], tuple[str, str]]:
        """Reorder the loops that clear a tile's sums, along the axes `points` of the tile and
        `single`, which have one iteration. Return the loops over the points, and the loops over
        vectors and lanes."""
        name = self.contraction.stage.buffer.name
        starts = f"{_PART}_init_{name}" if self.slices > 1 else f"{name}_init"
        init = self._split(
            schedule, f"{starts}_{self.contraction.lane}", self.width, "init_vector", "init_lane"
        )
        start = [f"{starts}_{axis}" for axis in points]
        is_sliced = self.slices > 1
        first = [f"{_PART}_init_{_SLICE}"] if is_sliced else [f"{starts}_{a}" for a in single]
        schedule.reorder(*first, *start, *init)
        return start, init

    def _steps(self, schedule: Schedule, unroll: int) -> _Steps:
        """Split the reduction loops into blocks, groups and `unroll` steps of an iteration."""
        name = self.contraction.stage.buffer.name
        loops = {axis: f"{name}_{axis}" for axis in self.contraction.reduction}
        if self.slices > 1:
            loops[self.sliced] = f"in_{_SLICE}"
        steps = list(loops.values())
        steps.remove(loops[self._inner])
        # The loop over parts of an iteration's steps, if the points of each are read separately.
        parts = ""
        if self.blocked:
            several = max(1, unroll // self.inner_steps)
            block, inner = self._split(
                schedule, loops[self.blocked], self.block * several, "block", "in_block"
            )
            steps.insert(0, block)
            if several > 1:
                parts, inner = self._split(schedule, inner, self.block, "parts", "in_part")
            loops[self.blocked] = inner
        steps.append(loops[self._inner])
        products = []
        if self.grouping is not None:
            at = steps.index(loops[self.grouping.axis])
            steps[at], product = self._split(schedule, steps[at], self.group, "groups", "product")
            products.append(product)
        unrolled = self._unrolled_steps(schedule, steps, parts, unroll)
        return _Steps(steps, products, unrolled)

    def _unrolled_steps(
        self, schedule: Schedule, steps: list[str], parts: str, unroll: int
    ) -> list[str]:
        """Split the innermost of the loops `steps` into iterations of `unroll` steps, and return
        the loops to unroll. `parts` is the loop over parts of an iteration, "" without one."""
        if self.contraction.depthwise:
            return list(steps) if self._is_window else []
        if unroll <= 1:
            return self._short_loop(schedule, steps) if self.parts else []
        held = self.inner_steps if parts else unroll
        step, in_step = self._split(schedule, steps[-1], held, "step", "in_step")
        if self.by_lane and not parts and unroll > self.width and unroll % self.width == 0:
            parts, in_step = self._split(schedule, in_step, self.width, "parts", "in_part")
        inside = [parts, in_step] if parts else [in_step]
        steps[-1:] = [step, *inside]
        return inside

    def _short_loop(self, schedule: Schedule, steps: list[str]) -> list[str]:
        """Return the loop to unroll, as a list: the innermost loop if it has few iterations, or
        else a new loop over two of its iterations. Unpacked groups occupy registers, so longer
        unrolled code would lack registers for addresses and counters."""
        at = max((n for n, step in enumerate(steps) if schedule.extent(step) != 1), default=-1)
        extent = schedule.extent(steps[at])
        if at < 0 or not isinstance(extent, int):
            return []
        if extent > _SHORT_TAPS:
            if extent % 2:
                return []
            steps[at : at + 1] = self._split(schedule, steps[at], 2, "pairs", "in_pair")
            at += 1
        return [steps[at]]

    @property
    def by_lane(self) -> bool:
        """Check whether successive steps of the innermost loop read adjacent elements of the
        broadcast operand. Several steps can then load them as one vector, of which each
        multiply-add uses one lane."""
        contraction = self.contraction
        if not self.lanes_are_factors or contraction.depthwise:
            return False
        points = contraction.broadcast_load.buffer.dtype
        if points.is_narrow_float:  # Registers hold these as f32.
            return False
        is_word = points.nbytes * self.group == contraction.stage.buffer.dtype.nbytes == 4
        return (
            is_word
            and neighbours(contraction, contraction.broadcast_load, 2 * self.group) == self._inner
        )

    def _read_by_lane(self, schedule: Schedule, step: str) -> None:
        """At the start of each iteration of `step`, load the elements of the broadcast operand for
        all its inner steps as vectors.

        before:  for step:
                     for in_step in 4: for row: for vector:
                         sum[row, vector] += x[row, 4*step + in_step] * w[…]
        after:   for step:
                     for row: points[row, 0:4] = x[row, 4*step:4*step + 4]
                     for in_step in 4: for row: for vector:
                         sum[row, vector] += points[row, in_step] * w[…]

        With dot products, each element is a group of adjacent elements.
        """
        self._read_into_registers(
            schedule, step, f"{self.prefix}points", self._inner, self.width * self.group
        )

    def _vectorize_all(self, schedule: Schedule, loop: str, lanes: int) -> None:
        """Vectorize a loop by `lanes` lanes, and the remaining iterations by narrower vectors,
        since a masked vector would be loaded element by element."""
        extent = schedule.extent(loop)
        assert isinstance(extent, int)
        width = min(lanes, 1 << (extent.bit_length() - 1))
        rest = extent % width
        if rest:
            rests = schedule.cut(loop, extent - rest, f"{loop}_rest")
            self._vectorize_all(schedule, rests, lanes)
        if extent - rest > width:
            outer, loop = schedule.split(loop, width)
            schedule.unroll(outer)
        schedule.vectorize(loop)

    def _read_line(self, schedule: Schedule, loop: str) -> None:
        """At the start of each iteration of `loop`, load a line of the input into registers: all
        elements that the iteration reads in its loops over taps (positions in the convolution
        kernel) and columns.

        before:  for row: for vector:
                     for tap in 3: for column in 7: s[row, column] += x[row, column + tap] * w[tap]
        after:   for row: for vector:
                     line[0:9] = x[row, 0:9]
                     for tap in 3: for column in 7: s[row, column] += line[column + tap] * w[tap]
        """
        self._read_into_registers(
            schedule, loop, f"{self.prefix}line", self.contraction.lane, self.width
        )

    def _read_into_registers(
        self, schedule: Schedule, loop: str, name: str, along: str, lanes: int
    ) -> None:
        """At the start of each iteration of `loop`, copy all elements of the broadcast operand that
        the iteration reads to registers, under the buffer name `name`. The copy uses vectors of
        `lanes` adjacent elements along the axis `along`."""
        load = self.contraction.broadcast_load
        lane = next(at for at, index in enumerate(load.indices) if along in variables(index))
        schedule.cache_read(load.buffer.name, loop, name)
        schedule.set_scope(name, MemoryScope.REGISTER)
        others = [f"{name}_{at}" for at in range(len(load.indices)) if at != lane]
        if others:
            schedule.reorder(*others, f"{name}_{lane}")
        self._vectorize_all(schedule, f"{name}_{lane}", lanes)
        for other in others:
            schedule.unroll(other)

    @property
    def _is_window(self) -> bool:
        """Check whether the reduction has a constant and small number of terms, as over the kernel
        of a depthwise convolution."""
        stage, names = self.contraction.stage, self.contraction.reduction
        is_known = all(isinstance(a.extent, int) for a in stage.reduced_axes if a.name in names)
        return is_known and volume(stage, names) <= _WINDOW

    def _split(
        self, schedule: Schedule, loop: str, factor: int, outer: str, inner: str
    ) -> tuple[str, str]:
        return schedule.split(loop, factor, self.prefix + outer, self.prefix + inner)


def reduced_block(contraction: Contraction) -> tuple[str, int]:
    """Return the reduced axis that the layout of the broadcast operand divides into blocks, and the
    size of a block; ("", 0) if no axis is divided into large enough blocks."""
    load = contraction.broadcast_load
    for position, index in enumerate(load.indices):
        block = block_of(load.buffer.layout, position)
        for axis in variables(index) & set(contraction.reduction):
            extent, factor = extent_of(contraction.stage, axis), factor_of(contraction.stage, axis)
            block = block if factor % block == 0 else math.gcd(factor, block)
            if block >= _SMALLEST_BLOCK and extent > block:
                return axis, block
    return "", 0
