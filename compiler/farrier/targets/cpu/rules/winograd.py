"""Rule: Winograd convolutions, with vectorized transforms and products in register tiles.

In the schedule `apart`, the whole input is transformed first, by all threads; in the schedule
`fused`, each thread transforms its own tiles, which never leave its caches:

    apart                                          fused
    for tile in parallel: input transform          for tiles in parallel:
    for channels, tiles in parallel:                   for tile in tiles: input transform
        for point: products of the chunk               for channels:
        for tile: output transform, epilogue               for point: products of the chunk
                                                           for tile: output transform, epilogue

`channels` is a chunk of output channels and `tiles` a chunk of the image's tiles; the products of a
chunk at all points stay in the second-level cache. The fused schedule is better if the transformed
weights fit there as well, and the image is larger than the weights.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import numpy as np
import numpy.typing as npt

from farrier.ir.dim import Dim, typical
from farrier.ir.expr import MemoryScope
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import Layout, PhysicalDim
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.space.operations import operations, reads_of
from farrier.space.rewrites import without_halos
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units import microkernel
from farrier.targets.cpu.units.contraction import (
    Contraction,
    axis_extent,
    contraction_of,
    extent_of,
    factor_of,
    innermost_axis,
    is_elementwise,
    whole_panels,
)
from farrier.targets.cpu.units.dot_products import Grouping, find_grouping
from farrier.targets.cpu.units.epilogue import inline_once, keep_values
from farrier.targets.cpu.units.microkernel import LoopOrder
from farrier.targets.cpu.units.nests import exact_extents, run_parallel
from farrier.targets.cpu.units.operands import by_first_use
from farrier.targets.cpu.units.program_kernel import ProgramKernel
from farrier.targets.cpu.units.tiled_sum import UNROLLED, TiledSum

RULE = RuleId("winograd", version=7)
_VECTORS = (1, 2, 3, 4)
_PANELS = (1, 2, 4, 8, 16)
_CHUNKS = (1, 2, 3, 4, 6, 7, 8, 14, 16, 28, 32)
# The sizes of chunks, for images with at least `_CHUNK_TILES` tiles in each chunk.
_MANY_CHUNKS = (48, 64, 96, 128, 192, 256, 384, 512)
_CHUNK_TILES = 24
_SUM = "winograd_sum"
_TILES = ("t", "")
_ROOM = 0.9  # The share of a cache that one chunk's products and their operands may fill.
# From this share of the second-level cache up to _ROOM, chunks lose more and more of their data.
_WHOLE = 0.25
_CACHE_WAY = 4096  # The bytes of one way of a first-level cache.
_WAYS = 6  # The ways that elements of one tile may occupy.
_SPREAD = 8  # The additional tiles to try.
_LATE = 0.3  # The share of the time of weight transfers that does not overlap without prefetching.
# Cycles for each element of a tile, as a vector: to load it, its sums, to store it.
_TRANSFORM_CYCLES = 4.0


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space | None:
    """Return the schedule space of a Winograd convolution and its epilogue; None for any other
    program."""
    machine = target.machine(threads)
    kernel = _kernel(program, machine, target)
    return None if kernel is None else Space.of(RULE, kernel)


def _kernel(program: TensorProgram, machine: Machine, target: CpuTarget) -> WinogradKernel | None:
    """Return the program's stages as a WinogradKernel, or None if the rule does not apply."""
    program = by_first_use(without_halos(program))
    if len(program.stages) < 5 or len(program.outputs) != 1:
        return None
    rows, columns, product, half, result, *epilogue = program.stages
    chain = (rows, columns, product, half, result)
    if [len(stage.axes) for stage in chain] != [5, 5, 5, 5, 4]:
        return None
    if any(not reads_of(a.buffer.name, [b]) for a, b in itertools.pairwise(chain)):
        return None
    contraction = contraction_of(product)
    if contraction is None or contraction.batch != ("i", "j") or contraction.points != ("n", "t"):
        return None
    if not all(is_elementwise(stage, program) for stage in epilogue):
        return None
    if contraction.vector_load.buffer.scope is not MemoryScope.CONSTANT:
        return None
    grouping = find_grouping(contraction, target)
    return WinogradKernel(
        program, contraction, rows, columns, half, (result, *epilogue), machine, grouping
    )


@dataclasses.dataclass(frozen=True)
class WinogradKernel(ProgramKernel):
    """The stages of one Winograd convolution: transforms of input and output, the products, and the
    epilogue."""

    program: TensorProgram
    products: Contraction
    rows: Stage
    columns: Stage
    half: Stage
    outputs: tuple[Stage, ...]  # The outputs' stage and the epilogue.
    machine: Machine
    # The grouping of the sums in dot products; None: their products one by one.
    grouping: Grouping | None

    @functools.cached_property
    def _sum(self) -> TiledSum:
        """The sum of the products, as a tiled sum in registers."""
        stage = self.products.stage
        buffer = dataclasses.replace(stage.buffer, name=_SUM)
        renamed = dataclasses.replace(self.products, stage=Stage(buffer, stage.axes, stage.body))
        return TiledSum.of(renamed, self.machine, _TILES, grouping=self.grouping)

    @property
    def tile(self) -> int:
        """The number of outputs of a tile along one axis."""
        return extent_of(self.half, "r")

    @property
    def points(self) -> int:
        """The number of points of a transformed tile along one axis."""
        return extent_of(self.half, "j")

    def extent(self, axis: str) -> int:
        return extent_of(self.products.stage, axis)

    # -- decisions ------------------------------------------------------------------------------

    @functools.cached_property
    def _vectors(self) -> tuple[int, ...]:
        """The possible widths of a panel, in vectors."""
        loop = f"{self.products.stage.buffer.name}_oc"
        return whole_panels(exact_extents(self.function)[loop], self.machine.lanes, _VECTORS)

    @property
    def _blocks(self) -> int:
        """The number of vectors of output channels."""
        return -(-factor_of(self.products.stage, "oc") // self.machine.lanes)

    def knobs(self) -> tuple[Knob, ...]:
        blocks = -(-self.extent("oc") // self.machine.lanes)
        tiles = self.extent("t")
        chunks = _CHUNKS + tuple(c for c in _MANY_CHUNKS if tiles >= c * _CHUNK_TILES)
        return (
            Knob("vectors", self._vectors),
            Knob("rows", tuple(range(1, min(tiles, self.machine.registers) + 1))),
            Knob("unroll", self._sum.unrolls(self.machine.unroll)),
            Knob("panels", tuple(p for p in _PANELS if p <= blocks)),
            Knob("chunks", tuple(c for c in chunks if -(-tiles // -(-tiles // c)) == c)),
            Knob("fused", (0, 1)),
            Knob("prefetch", (0, 1)),
            Knob("ahead", (0, 1) if self._sum.blocked else (0,)),
        )

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Check for each candidate that three conditions hold. The registers hold the accumulators,
        the vectors of one step and a broadcast element. The rows of a register tile fit in the
        chunk of tiles. Chunks of channels contain whole panels."""
        vectors = columns["vectors"]
        held = np.where((columns["unroll"] > 1) & self._sum.by_lane, columns["rows"], 1)
        fits = self.machine.fits(vectors, columns["rows"], held=held)
        fits &= columns["rows"] <= np.ceil(self.extent("t") / columns["chunks"])
        fits &= (columns["panels"] == 1) | (self._blocks % (vectors * columns["panels"]) == 0)
        return fits

    def estimate(self, columns: Columns) -> Estimate:
        """Estimate the time of each candidate: the products by the cost model of register tiles,
        the transforms, and the traffic that exceeds the second-level cache."""
        decided = {name: column.astype(np.float64) for name, column in columns.items()}
        fused, machine = decided["fused"] > 0, self.machine
        products = microkernel.estimate(self._problem, _tiles(columns), machine)
        squared, batch = self.points**2, self.extent("n")
        tiles, ic, oc = self.extent("t"), self.extent("ic"), self.extent("oc")
        channels = np.minimum(decided["vectors"] * machine.lanes * decided["panels"], oc)
        chunks, groups = np.ceil(oc / channels), batch * decided["chunks"]
        chunk = np.ceil(tiles / decided["chunks"])
        transforms = squared * batch * tiles * (ic + oc) / machine.lanes * _TRANSFORM_CYCLES
        # The bytes of one chunk: the transformed input, the products, the weights.
        width = self.columns.buffer.dtype.nbytes
        inputs = 1.0 * width * squared * chunk * ic
        scratch = 4.0 * squared * chunk * channels
        weights = 1.0 * width * squared * ic * channels
        room, last = _ROOM * machine.l2_bytes, _ROOM * machine.l3_bytes
        held = (scratch + np.where(fused, inputs, 0.0)) / machine.l2_bytes
        lost = np.clip((held - _WHOLE) / (_ROOM - _WHOLE), 0.0, 1.0)
        spilt = lost * 2 * scratch * groups * chunks
        again = chunks * (groups - 1)
        kept = np.where(fused, inputs + scratch + weights * chunks, scratch + weights) <= room
        spilt += np.where(kept, 0.0, weights * again)
        spilt += np.where(fused, 0.0, inputs * groups * (chunks + 1))
        # Tiles that no cache holds are written to memory, and read again.
        tiled = np.where(fused, inputs * machine.threads, inputs * groups)
        far = tiled + scratch * machine.threads > last
        streamed = np.where(far, (inputs * (chunks + 1) + 2 * scratch * chunks) * groups, 0.0)
        units = np.where(fused, groups, groups * chunks)
        # All chunks except the last have the same size, and threads wait for each other.
        even = np.where(fused, batch * tiles / chunk, units)
        balance = np.ceil(units / machine.threads) * machine.threads / even
        # A thread reads tiles that the others have transformed, all of them if threads divide only
        # the channels, and the others fetch them back to write them again. A thread seldom
        # multiplies tiles that it has transformed itself, so its reads are counted twice.
        written = 2 * 1.0 * width * squared * batch * tiles * ic * (1 - 1 / machine.threads)
        read = np.minimum(2 * chunks / machine.threads, 1.0)
        remote = np.where(fused, 0.0, written * read / machine.remote_bandwidth)
        # A thread waits for all weights that it reads, even if other threads read them as well.
        share = np.where(fused, 1.0, 1 / np.minimum(chunks, machine.threads))
        late_weights = machine.memory_seconds(self._problem.lane_bytes, share)
        late_weights = late_weights - products.terms["memory"]
        # At the last panel of a chunk, the first panel of the next point is not prefetched.
        late = np.where(decided["panels"] > 1, decided["prefetch"] / decided["panels"], 0.0)
        extra = (transforms + spilt / machine.l3_bandwidth) / machine.threads
        seconds = (products.seconds + extra / machine.hertz) * balance
        seconds += remote / machine.hertz + machine.fork_join
        seconds += streamed / machine.memory_bandwidth
        seconds += _LATE * late * products.terms["memory"] + late_weights
        if self._is_open:
            seconds *= 1 + UNROLLED * np.log2(decided["unroll"])
        terms = dict(products.terms)
        terms["memory"] = terms["memory"] + late_weights
        terms["l2"] = terms["l2"] + spilt / machine.l3_bandwidth / machine.hertz
        terms["overhead"] = terms["overhead"] + transforms / machine.hertz
        terms["tiles"], terms["balance"] = units, balance
        return Estimate(seconds, terms, products.beside * balance)

    @property
    def _is_open(self) -> bool:
        """Check whether the number of tiles is open (dynamic), so that the last chunk may have any
        length."""
        return isinstance(axis_extent(self.products.stage, "t"), Dim)

    @functools.cached_property
    def _problem(self) -> microkernel.Problem:
        contraction = self.products
        return microkernel.Problem(
            batch=self.extent("n") * self.points**2,
            lanes=self.extent("oc"),
            points=(self.extent("t"), 1),
            steps=self.extent("ic") // self._sum.group,
            group=self._sum.group,
            lane_bytes=typical(contraction.vector_load.buffer.nbytes),
            point_bytes=typical(contraction.broadcast_load.buffer.nbytes),
            cold=True,
            epilogue=operations(self.outputs[1:]),
            scattered=bool(self._sum.blocked),
        )

    # -- the schedule ---------------------------------------------------------------------------

    def schedule(self, decisions: Decisions) -> Schedule:
        """Tile the outputs by chunks, and compute the operands of each chunk where the chunk uses
        them."""
        schedule = Schedule(self.function)
        panel = decisions["vectors"] * self.machine.lanes
        self._sum.lay_out_weights(schedule, panel, panel * decisions["panels"])
        shared = self._tile_outputs(schedule, decisions)
        step = self._tile_products(schedule, decisions, shared[-1])
        self._tile_inputs(schedule, "tiles" if decisions["fused"] else "")
        if decisions["prefetch"]:
            several = decisions["panels"] > 1
            ahead = "panel" if several else f"{self.products.stage.buffer.name}_j"
            at = step if step and self._is_paced(decisions) else "row"
            schedule.prefetch(self.products.vector_load.buffer.name, ahead, at)
        run_parallel(schedule, shared[: shared.index("tiles") + 1])
        self._lay_out_tiles(schedule, decisions)
        if decisions["ahead"]:
            blocks = self._sum.block_loop
            schedule.prefetch(self.columns.buffer.name, blocks, blocks, level=1)
        return schedule

    def _is_paced(self, decisions: Decisions) -> bool:
        """Check whether a prefetch in every step of a sum would fetch each cache line of the next
        panel at most `PACED` times on average. If not, fewer prefetches are emitted."""
        tiles = _tiles({name: np.array([value]) for name, value in decisions.items()})
        points = (self._chunk(decisions), 1)
        hints = microkernel.hints_a_line(points, tiles, self.machine.threads)
        return bool(hints[0] <= microkernel.PACED)

    def _chunk(self, decisions: Decisions) -> int:
        """Return the number of tiles in a chunk; the last chunk of an image may have fewer. For an
        image of open (dynamic) size, the number is a multiple of the rows of a register tile,
        because a partial register tile takes as long as a full one."""
        chunk = -(-self.extent("t") // decisions["chunks"])
        return chunk if self._is_static else -(-chunk // decisions["rows"]) * decisions["rows"]

    @functools.cached_property
    def _is_static(self) -> bool:
        """Check whether the number of tiles of an image is constant."""
        return all(isinstance(axis.extent, int) for axis in self.products.stage.axes)

    def _tile_outputs(self, schedule: Schedule, decisions: Decisions) -> list[str]:
        """Tile the outputs by chunks of tiles and channels, and each chunk by tiles of one vector;
        return the loops over chunks, outermost first."""
        width, last = self.machine.lanes, self.outputs[-1]
        kept = inline_once(schedule, self.outputs)
        batch, channels, y, x = (f"{last.buffer.name}_{axis.name}" for axis in last.axes)
        chunk = decisions["vectors"] * width * decisions["panels"]
        schedule.split(channels, chunk, "channels", "in_channels")
        schedule.split("in_channels", width, "vector", "lane")
        schedule.split(y, self.tile, "tile_y", "in_y")
        schedule.split(x, self.tile, "tile_x", "in_x")
        schedule.reorder(batch, "channels", "tile_y", "tile_x", "vector", "in_y", "in_x", "lane")
        schedule.fuse("tile_y", "tile_x", "any_tile")
        if self._is_static:
            schedule.split("any_tile", self._chunk(decisions), "tiles", "tile")
        else:
            most, rows = self._chunk(decisions), decisions["rows"]
            schedule.split_evenly("any_tile", decisions["chunks"], most, rows, "tiles", "tile")
        outer = ["tiles", "channels"] if decisions["fused"] else ["channels", "tiles"]
        schedule.reorder(batch, *outer, "tile")
        schedule.vectorize("lane")
        schedule.unroll("in_y")
        schedule.unroll("in_x")
        keep_values(schedule, kept, "in_x", innermost_axis(self.products.stage))
        self._keep_tile(schedule, self.half, "vector", ("j", "r"))
        return [batch, *outer]

    def _keep_tile(
        self, schedule: Schedule, stage: Stage, loop: str, order: tuple[str, str]
    ) -> None:
        """Compute `stage`, the first half of a tile's transform, within each iteration of `loop`,
        in registers and for one vector of channels. `order` are the axes that are unrolled."""
        name = stage.buffer.name
        schedule.compute_at(name, loop)
        schedule.set_scope(name, MemoryScope.REGISTER)
        loops = [f"{name}_{axis}" for axis in order]
        rest = [f"{name}_{axis.name}" for axis in stage.axes if axis.name not in order]
        lane = rest.pop(1)
        schedule.reorder(*rest, *loops, lane)
        schedule.vectorize(lane)
        for unrolled in loops:
            schedule.unroll(unrolled)

    def _tile_products(self, schedule: Schedule, decisions: Decisions, chunk: str) -> str:
        """Compute the products of one chunk in register tiles, one point after the other, and store
        them in scratch memory. Return the innermost loop of the sum, or "" if all its loops are
        unrolled."""
        name, width = self.products.stage.buffer.name, self.machine.lanes
        schedule.cache_write(name, _SUM)
        schedule.compute_at(name, chunk)
        schedule.split(f"{name}_oc", decisions["vectors"] * width, "panel", "in_panel")
        schedule.split("in_panel", width, "panel_vector", "panel_lane")
        schedule.split(f"{name}_t", decisions["rows"], "row", "in_row")
        inner = ("in_row", "panel_vector")
        around = (f"{name}_{axis}" for axis in ("n", "i", "j"))
        schedule.reorder(*around, "panel", "row", *inner, "panel_lane")
        schedule.vectorize("panel_lane")
        for loop in inner:
            schedule.unroll(loop)
        schedule.compute_at(_SUM, "row")
        schedule.set_scope(_SUM, MemoryScope.REGISTER)
        return self._sum.order(schedule, decisions["unroll"])

    def _lay_out_tiles(self, schedule: Schedule, decisions: Decisions) -> None:
        """Change the layouts of the transformed inputs and of the products, both [n, c, t, i, j],
        so that for each point (i, j) the elements of all tiles are contiguous."""
        width, chunk = self.machine.lanes, self._chunk(decisions)
        channels = decisions["vectors"] * decisions["panels"]
        batch = 1 if decisions["fused"] else self.extent("n")
        blocks = batch * -(-self.extent("ic") // width)
        for buffer, count, is_chunk in (
            (self.products.stage.buffer, channels, True),
            (self.columns.buffer, blocks, decisions["fused"] == 1),
        ):
            tiles = chunk if is_chunk else self.extent("t")
            spread = _spread(tiles, buffer.dtype.nbytes * width * count, self.points**2)
            # Memory is reserved for the largest chunk, so that strides are constant.
            if (spread > tiles) if self._is_static else is_chunk:
                schedule.pad_axis(buffer.name, 2, spread)
            order = (PhysicalDim(3), PhysicalDim(4), PhysicalDim(0), PhysicalDim(1, width))
            rest = (PhysicalDim(2), PhysicalDim(1, 1, width))
            schedule.transform_layout(buffer.name, Layout((*order, *rest)))

    def _tile_inputs(self, schedule: Schedule, loop: str) -> None:
        """Transform the input at the start of each iteration of `loop`; if `loop` is "", transform
        the whole input first, in parallel."""
        name, width = self.columns.buffer.name, self.machine.lanes
        if loop:
            schedule.compute_at(name, loop)
        schedule.split(f"{name}_ic", width, "input_vector", "input_lane")
        around = [f"{name}_n", f"{name}_t", "input_vector"]
        points = [f"{name}_i", f"{name}_j"]
        schedule.reorder(*around, *points, "input_lane")
        schedule.vectorize("input_lane")
        for unrolled in points:
            schedule.unroll(unrolled)
        self._keep_tile(schedule, self.rows, "input_vector", ("c", "i"))
        if not loop:
            run_parallel(schedule, around)


def _tiles(columns: Columns) -> microkernel.Tiles:
    """Return the candidates' register tiles for the products, in the form of the cost model."""
    floats = {name: column.astype(np.float64) for name, column in columns.items()}
    chosen = {name: floats[name] for name in ("vectors", "rows", "unroll", "prefetch", "ahead")}
    single = np.ones(len(floats["vectors"]))
    order = np.full(len(single), float(LoopOrder.PANELS))
    return microkernel.Tiles(**chosen, columns=single, order=order, slices=single)


def _spread(tiles: int, block_bytes: int, points: int) -> int:
    """Return the number of tiles, at least `tiles`, for which to reserve memory in a chunk. The
    elements of a tile at successive points are that number times `block_bytes` apart. The number is
    chosen such that they do not compete for the same cache sets."""

    def competing(count: int) -> float:
        return points / (_CACHE_WAY / math.gcd(count * block_bytes, _CACHE_WAY))

    enough = (count for count in range(tiles, tiles + _SPREAD) if competing(count) <= _WAYS)
    return next(enough, min(range(tiles, tiles + _SPREAD), key=competing))
