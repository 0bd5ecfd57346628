"""The analytic cost model of a contraction with register tiles, by which tiles are chosen without
measurements.

One step of the reduction for a tile of v vectors by p points takes v vector loads, p broadcasts of
single elements and v·p multiply-adds. Its time is the longest of: the multiply-add ports; the load
ports; the latency of a multiply-add, since each accumulator depends on its previous value; and the
bandwidth of the caches that the operands come from. Further terms are partial tiles, whose smaller
size exposes the latency; weights that come from memory; data that another core wrote or reads as
well; and the imbalance of threads.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.space.machine import Machine
from farrier.space.space import Estimate, Floats
from farrier.targets.cpu.held_operands import FEWEST_HELD, SPARE_REGISTERS

Bools: TypeAlias = npt.NDArray[np.bool_]

# The constants without a unit are shares of the shorter of arithmetic and memory traffic that the
# longer does not hide.
# If the next panel is fetched ahead, and fits the cache together with this one.
_EXPOSED_AHEAD = 0.2
_EXPOSED_CROWDED = 0.3  # If it does not fit.
PACED = 2  # The most hints for each cache line of a panel if every step fetches one.
_HINTS = 0.01  # The cost of such hints, as a share of the arithmetic.
_BURST = 0.08  # The cost of hints in a burst before each tile, as a share of the arithmetic.
# The exposed share of the transfer of data that another core reads as well, if it is fetched ahead.
_SHARED_AHEAD = 0.25
_LOADS = 0.1  # The exposed share of the time of loads that are not the bottleneck.
_BEYOND = 0.06  # The same of the traffic beyond the first-level cache.
_LINE = 64  # The bytes of a cache line.
_OF_L1, _OF_L2 = 0.6, 0.7  # The share of a cache whose data is still there when it is used again.
_CACHE_WAY = 4096  # The bytes of one way of a first-level cache.
# The rows of a tile that may share lines of the first-level cache, in addition to a panel's.
_WAYS = 11
_COMPETING = 0.03  # The slowdown, as a share of the time, if more rows compete.
_JOIN_CYCLES = 1.0  # To add a vector of a slice's sums to those in memory.
_RESTART_CYCLES = 10.0  # Of a tile, for each slice after the first.
_COPY_CYCLES = 1.0  # To copy one element of a panel.
_PAD_CYCLES = 0.35  # To copy one element of a padded row, in masked vectors.
_WINDOW_LOADS = 0.5  # The exposed share of the time of a window's loads.
_PAIR = 0.5  # The additional operations of a vector loaded as one of a pair.
_LOOP = 7.0  # The operations of one iteration: its pointers, its counter, its hint.
_SPILL = 0.08  # The slowdown, as a share of the time, for each spilled value.
# The seconds until a window's weights arrive; they are too few for the hardware to detect a stream.
_MISS_S = 0.12e-6


class LoopOrder(enum.IntEnum):
    """The order of the loops over panels of the vector operand and over rows of tiles. Threads
    divide the outer loop."""

    PANELS = 0  # Panels, with all rows in each: a thread has its own lanes, and reads all points.
    ROWS = 1  # Rows, with all panels in each.
    PARTS = 2  # A part of the rows for each thread; in it panels, with the part's rows in each.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The sizes of one contraction, summed over all products of a batch in one kernel."""

    batch: int  # Independent products.
    lanes: int  # The extent of the lane axis.
    points: tuple[int, int]  # The extents of the two tiled point axes, outer first.
    # The steps of the whole reduction; a step adds one product, or one group, to each lane.
    steps: int
    taps: tuple[int, int] = (1, 1)  # The window's extents along the points, (1, 1) for a matmul.
    strides: tuple[int, int] = (1, 1)  # The strides of the points in the point operand.
    lane_bytes: int  # The bytes of the lane operand, for all products.
    point_bytes: int  # The bytes of the point operand, for all products.
    cold: bool  # Set if the lane operand comes from memory.
    common: bool = False  # Set if all products have the same lane operand.
    depthwise: bool = False  # The point operand is loaded as vectors, too.
    packs: bool = False  # The lane operand is copied panel by panel first.
    padded: int = 0  # The elements of one line of the point operand if lines are copied, else 0.
    epilogue: int  # The operations on each result.
    # The products that a step adds to each lane: an element of an operand is a group.
    group: int = 1
    parts: int = 0  # The registers that a group of either operand is unpacked into (`Dot.parts`).
    # The bytes from one row's points to the next's; 0 if a tile has columns as well.
    row_bytes: int = 0
    by_lane: bool = False  # The points of several steps are read as vectors, and used lane by lane.
    scattered: bool = False  # Blocks of the reduced axis lie apart, each a line of every point.


@dataclasses.dataclass(frozen=True, slots=True)
class Tiles:
    """The decisions of a number of candidates; each array is [candidates]."""

    vectors: Floats
    rows: Floats
    columns: Floats
    unroll: Floats
    order: Floats  # A LoopOrder.
    prefetch: Floats  # With 1, the next panel is fetched while this one is in use.
    ahead: Floats  # With 1, the points' next block is fetched while this one is in use.
    # The number of reduction slices; all tiles of a panel finish one slice before the next begins
    # (split-K).
    slices: Floats

    def at(self, places: npt.NDArray[np.intp]) -> Tiles:
        """Return the decisions of the candidates at these indices."""
        return Tiles(*(getattr(self, name)[places] for name in self.__slots__))


def estimate(problem: Problem, tiles: Tiles, machine: Machine) -> Estimate:
    """Return the predicted seconds of one call, and the terms of the prediction, for each
    candidate."""
    cycles, latency, load, l2 = _tile_cycles(problem, tiles, machine)
    cycles += _copy_cycles(problem, tiles, machine)
    units, balance = _shares(problem, tiles, machine)
    busy = cycles / machine.hertz * balance / machine.threads
    lane_share, point_share = _needs(problem, tiles, machine)
    memory = problem.cold * machine.memory_seconds(problem.lane_bytes, lane_share)
    first = _first_panels(problem, tiles, lane_share, machine) * memory
    ahead = tiles.prefetch > 0
    fetched = first + _overlapped(busy, memory - first, _exposed(problem, tiles, machine))
    late = np.maximum(memory, _late(problem, tiles, machine, lane_share))
    reach = busy / _visits(problem, tiles, machine)
    unfetched = busy - reach + _overlapped(reach, late, machine.exposed)
    seconds = np.where(ahead, fetched, unfetched)
    beside = np.zeros(len(busy))
    if not problem.depthwise and problem.batch < machine.threads:
        beside += shared(
            problem.point_bytes * (point_share - 1 / machine.threads),
            problem.lane_bytes * (lane_share - 1 / machine.threads),
            ahead,
            machine,
        )
    paced = hints_a_line(problem.points, tiles, machine.threads) <= PACED
    # Measured alone, hints hide behind arithmetic.
    beside += np.where(paced & (not problem.depthwise), _HINTS, _BURST) * ahead * busy
    seconds += machine.fork_join + beside
    if problem.depthwise and problem.cold:
        seconds += ~ahead * _panels(problem, tiles, machine) * _MISS_S / machine.threads
    results = problem.lanes * np.prod(problem.points)
    registers = tiles.vectors * tiles.rows * tiles.columns + tiles.vectors + 2
    terms = {
        "compute": np.full(len(busy), 2.0 * problem.batch * results * problem.steps / machine.peak),
        "latency": latency / machine.hertz,
        "load": load / machine.hertz,
        "l2": l2 / machine.hertz,
        "memory": memory,
        "late": np.where(ahead, 0.0, late),
        "overhead": np.full(len(busy), machine.fork_join),
        "tiles": units,
        "balance": balance,
        "registers": registers / machine.registers,
        "waste": _covered(problem, tiles, machine) / results,
        "code": tiles.unroll * registers,
    }
    return Estimate(seconds, terms, beside)


def code_size(problem: Problem, tiles: Tiles, machine: Machine) -> Floats:
    """Return the approximate number of instructions in the code of each candidate: one tile, and
    another for each combination of partial tiles at the edges."""
    points = tiles.rows * tiles.columns
    sums = tiles.vectors * points
    if problem.depthwise:  # All taps are unrolled.
        step = problem.steps * (sums + tiles.vectors + tiles.vectors * points / 2)
    else:
        loads = tiles.vectors + points
        step = tiles.unroll * (loads * (1 + problem.parts) + sums * max(problem.parts, 1))
    tile = step + sums * (2 + 0.5 * problem.epilogue)
    extents = (vectors_of(problem.lanes, machine), *problem.points)
    sizes = (tiles.vectors, tiles.rows, tiles.columns)
    for extent, size in zip(extents, sizes, strict=True):
        tile = tile * np.where(extent % size, 2.0, 1.0)
    return tile


def _copy_cycles(problem: Problem, tiles: Tiles, machine: Machine) -> Floats:
    """Return the cycles that one core takes to pack panels of the vector operand and to copy padded
    lines of the input."""
    row_tiles = _row_tiles(problem, tiles)
    lines = (tiles.rows - 1) * problem.strides[0] + problem.taps[0]
    copies = row_tiles * np.where(
        tiles.order == LoopOrder.ROWS, 1.0, _panels(problem, tiles, machine)
    )
    cycles: Floats = problem.batch * copies * lines * problem.padded * _PAD_CYCLES
    if problem.packs:
        elements = problem.batch * problem.lanes * problem.steps * problem.group
        cycles += elements * _COPY_CYCLES
    return cycles


def _shares(problem: Problem, tiles: Tiles, machine: Machine) -> tuple[Floats, Floats]:
    """Return two numbers for each candidate: the number of units of work that the threads divide
    among themselves, and the work of the busiest thread divided by the average work of a thread."""
    threads, row_tiles = machine.threads, _row_tiles(problem, tiles)
    panels = problem.batch * _panels(problem, tiles, machine)
    alone = problem.packs | (tiles.slices > 1)
    units = panels * np.where(alone, 1.0, row_tiles)
    longest = np.ceil(row_tiles / threads) * tiles.rows * threads / problem.points[0]
    whole = problem.batch * vectors_of(problem.lanes, machine) / tiles.vectors
    whole = whole * np.where(alone, 1.0, problem.points[0] / tiles.rows)
    parts, pieces = np.maximum(longest, 1.0), busiest(units, whole, threads)
    return units, np.where(tiles.order == LoopOrder.PARTS, parts, pieces)


def busiest(units: Floats, whole: Floats, threads: int) -> Floats:
    """Return the work of the busiest thread divided by the average work, when `threads` threads
    share `units` units of work. Some units may be smaller than others, and `whole` is the sum of
    all units in full units. The busiest thread has at least one full unit."""
    rounds: Floats = np.ceil(units / threads) / (units / threads)
    return np.maximum(rounds, threads / whole)


def _panel_bytes(problem: Problem, tiles: Tiles, machine: Machine) -> Floats:
    """Return the number of bytes in one slice of a panel of weights, for each candidate."""
    panel: Floats = tiles.vectors * machine.lanes * problem.steps / tiles.slices * 4
    return panel


def _first_panels(problem: Problem, tiles: Tiles, lane_share: Floats, machine: Machine) -> Floats:
    """Return the fraction of a thread's weights that must arrive before the thread can start to
    compute: its first panel. If several threads read the same panels, they wait for one another,
    and the fraction is larger."""
    if problem.depthwise:
        return np.zeros(len(tiles.vectors))
    first = _panel_bytes(problem, tiles, machine)
    # Threads that read the same panels wait for each other: two do not, 16 do.
    crowd = max(machine.threads / 2, 1.0)
    first = first * np.where(tiles.order == LoopOrder.PANELS, 1.0, crowd)
    share: Floats = np.minimum(first / (lane_share * problem.lane_bytes), 1.0)
    return share


def _exposed(problem: Problem, tiles: Tiles, machine: Machine) -> Floats:
    """Return the fraction of the shorter of two activities (arithmetic and the transfer of weights
    from memory) that is not hidden behind the longer one, if weights are prefetched. It is larger
    if the second-level cache cannot hold two panels of weights."""
    room = 2 * _panel_bytes(problem, tiles, machine) <= 0.8 * machine.l2_bytes
    return np.where(room, _EXPOSED_AHEAD, _EXPOSED_CROWDED)


def _overlapped(first: Floats, second: Floats, exposed: Floats | float) -> Floats:
    """Return the seconds of two activities that run at the same time: the longer time, plus the
    fraction `exposed` of the shorter."""
    seconds: Floats = np.maximum(first, second) + exposed * np.minimum(first, second)
    return seconds


def _late(problem: Problem, tiles: Tiles, machine: Machine, lane_share: Floats) -> Floats:
    """Return the seconds for which a thread waits for its weights from memory, without prefetching.
    The core loads all weights in its reorder window (`machine.window` instructions) at the same
    time. The more multiply-adds a step has, the fewer weights are in the window."""
    if problem.depthwise or not problem.cold:
        return np.zeros(len(tiles.vectors))
    points = tiles.rows * tiles.columns
    step = tiles.vectors + points + tiles.vectors * points  # instructions
    under_way = machine.window / step * tiles.vectors * machine.lanes * 4
    seconds: Floats = lane_share * problem.lane_bytes / under_way * machine.memory_latency
    return seconds


def _visits(problem: Problem, tiles: Tiles, machine: Machine) -> Floats:
    """Return how often a thread reads a panel of weights. Each tile of the panel reads it once: the
    first tile from memory, the others from a cache."""
    if problem.depthwise:
        return np.ones(len(tiles.vectors))
    count = _row_tiles(problem, tiles) * np.ceil(problem.points[1] / tiles.columns)
    own = np.maximum(np.ceil(count / machine.threads), 1.0)
    return np.where(tiles.order == LoopOrder.PANELS, count, own)


def _panels(problem: Problem, tiles: Tiles, machine: Machine) -> Floats:
    panels: Floats = np.ceil(vectors_of(problem.lanes, machine) / tiles.vectors)
    return panels


def vectors_of(lanes: int, machine: Machine) -> int:
    """Return the number of vectors that `lanes` lanes fill; a partial last vector counts as one."""
    return -(-lanes // machine.lanes)


def _row_tiles(problem: Problem, tiles: Tiles) -> Floats:
    count: Floats = np.ceil(problem.points[0] / tiles.rows)
    return count


def _covered(problem: Problem, tiles: Tiles, machine: Machine) -> Floats:
    """Return the number of results that the tiles of one product compute. It includes results
    beyond the edges of the product, which partial tiles compute in vain."""
    lanes = _panels(problem, tiles, machine) * tiles.vectors * machine.lanes
    rows = np.ceil(problem.points[0] / tiles.rows) * tiles.rows
    columns = np.ceil(problem.points[1] / tiles.columns) * tiles.columns
    covered: Floats = lanes * rows * columns
    return covered


def hints_a_line(points: tuple[int, int], tiles: Tiles, threads: int) -> Floats:
    """Return, for each candidate, the number of prefetches for each cache line of the next panel,
    if every step of a sum makes one. `points` are the numbers of rows and columns of the product's
    result."""
    rows = np.ceil(points[0] / tiles.rows)
    rows = np.where(tiles.order == LoopOrder.PARTS, np.ceil(rows / threads), rows)
    count: Floats = rows * np.ceil(points[1] / tiles.columns)
    return count / (tiles.unroll * tiles.vectors)


def shared(points: Floats, lanes: Floats, ahead: Bools, machine: Machine) -> Floats:
    """Return the seconds for fetching data that other cores have in their caches: `points` bytes
    that other cores wrote, and `lanes` bytes that other cores read as well. The latter are cheaper
    for candidates that prefetch them (`ahead`)."""
    again = np.where(ahead, _SHARED_AHEAD, 1.0)
    cycles: Floats = points / machine.remote_bandwidth + again * lanes / machine.shared_bandwidth
    return cycles / machine.hertz


def _needs(problem: Problem, tiles: Tiles, machine: Machine) -> tuple[Floats, Floats]:
    """Return the fractions of the vector operand and of the broadcast operand that one thread
    reads.

    Threads first divide the products of a batch, and then divide either the lanes or the points of
    a product. If they divide the lanes, each thread reads its own lanes, and the operands of all
    points; if there are fewer panels than threads, several threads share a panel and divide the
    points. If they divide the points, each thread reads the operands of its own points and all
    lanes. The products of a batch may share one vector operand.
    """
    products = min(problem.batch, machine.threads)
    threads = machine.threads / products  # for each product
    by_lanes = tiles.order == LoopOrder.PANELS
    panels = _panels(problem, tiles, machine)
    units = np.where(by_lanes, panels, _row_tiles(problem, tiles))
    units = np.where(tiles.order == LoopOrder.PARTS, machine.threads, units)
    divided, whole = 1 / np.minimum(units, threads), np.minimum(units / threads, 1.0)
    alone = by_lanes & (problem.packs | (tiles.slices > 1))  # Threads divide only panels.
    whole = np.where(alone, 1.0, whole)
    lanes, points = np.where(by_lanes, (divided, whole), (whole, divided))
    return lanes / (1 if problem.common else products), points / products


def _tile_cycles(
    problem: Problem, tiles: Tiles, machine: Machine
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return four numbers for each candidate: the cycles of all tiles on one core, and the cycles
    that they would take if the only limit were the latency, the load ports, or the second-level
    cache."""
    lanes = _parts(float(vectors_of(problem.lanes, machine)), tiles.vectors)
    rows = _parts(float(problem.points[0]), tiles.rows)
    columns = _parts(float(problem.points[1]), tiles.columns)
    pieces = []
    for (v, n_v), (r, n_r), (c, n_c) in itertools.product(lanes, rows, columns):
        count = problem.batch * n_v * n_r * n_c
        some = np.flatnonzero(count)  # Few candidates have tails.
        pieces.append((some, *(sizes[some] for sizes in (v, r, c, count))))
    places, *sizes, counts = map(np.concatenate, zip(*pieces, strict=True))
    parts = _one_tile(problem, tiles.at(places), machine, *sizes)
    totals = np.zeros((4, len(tiles.vectors)))
    for total, part in zip(totals, parts, strict=True):
        total += np.bincount(places, counts * part, len(total))
    return totals[0], totals[1], totals[2], totals[3]


def _parts(extent: Floats | float, tile: Floats) -> list[tuple[Floats, Floats]]:
    """Return (size, count) of the full tiles along an axis, and of the partial tile at its end if
    there is one."""
    whole = np.floor(extent / tile)
    rest = extent - whole * tile
    return [(np.minimum(tile, extent), whole), (rest, (rest > 0) * 1.0)]


def _one_tile(
    problem: Problem, tiles: Tiles, machine: Machine, v: Floats, r: Floats, c: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return four numbers of cycles for one tile of `v` vectors by `r` × `c` points: the total, and
    the cycles due to latency, to load ports, and to fetching from beyond the first-level cache."""
    steps = problem.steps / tiles.slices
    parts = (_window if problem.depthwise else _product)(problem, tiles, machine, v, r, c)
    panel_bytes = steps * v * machine.lanes * 4
    beyond, is_far = _traffic(problem, tiles, machine, panel_bytes, parts.point_bytes)
    # With hardly enough accumulators the next one is not always ready: powers of 4 fit 4 to 26 of
    # them within 2%, with vectors of 8 lanes and of 16.
    fourth = np.square(np.square(parts.multiply)) + parts.chain**4
    if not machine.folds_loads and not problem.depthwise:  # Loads alternate with arithmetic.
        fourth += np.square(np.square(parts.issue))
    core = np.maximum(np.sqrt(np.sqrt(fourth)), np.maximum(parts.loads, beyond))
    core = np.maximum(core, parts.issue)
    if problem.scattered:
        # The hardware does not predict the place of the next block; the taps of a window read it
        # again.
        near = np.where(tiles.ahead > 0, 1 / machine.issue, machine.miss)
        missed = near * (problem.taps == (1, 1)) + machine.miss * is_far
        core += parts.point_bytes / _LINE * missed
    # Resources other than the bottleneck still take issue slots and sometimes wait.
    core += parts.shown * parts.loads + _BEYOND * beyond
    if problem.row_bytes:
        sets = _CACHE_WAY // math.gcd(problem.row_bytes, _CACHE_WAY)
        core = core * np.where(r > _WAYS * sets, 1 + _COMPETING, 1.0)
    vector = 4.0 * machine.lanes
    moved = 2 * vector * _per_byte(np.prod(problem.points) * tiles.vectors * vector, machine)
    join = v * r * c * (_JOIN_CYCLES + moved) + _RESTART_CYCLES
    cycles = tiles.slices * (core + parts.loop) + (tiles.slices - 1) * join + parts.finish
    slices = tiles.slices
    return cycles, slices * parts.chain, slices * parts.loads, slices * beyond


@dataclasses.dataclass(frozen=True, slots=True)
class _Parts:
    """The cycles of one slice of a tile, by resource, and the bytes of the broadcast operand that
    it reads."""

    multiply: Floats  # The multiply-add ports.
    chain: Floats  # The latency of an accumulator's multiply-adds.
    loads: Floats
    issue: Floats
    shown: float  # The exposed share of the loads' time if they are not the bottleneck.
    loop: Floats | float  # Counters and branches.
    finish: Floats  # The epilogue, of the last slice.
    point_bytes: Floats


def _finish(problem: Problem, sums: Floats) -> Floats:
    """Return the cycles of a tile's epilogue, which does not overlap with other tiles. `sums` is
    the number of accumulators."""
    return sums * (1.5 + 0.5 * problem.epilogue) + 20.0


def _product(
    problem: Problem, tiles: Tiles, machine: Machine, v: Floats, r: Floats, c: Floats
) -> _Parts:
    """Return the cycles of a tile in a matrix product or a convolution over channels, where
    elements of one operand are broadcast."""
    points, steps = r * c, problem.steps / tiles.slices
    multiply = steps * v * points * max(problem.parts, 1) / machine.fma_ports
    broadcasts = points
    if problem.by_lane:
        lanes = np.minimum(tiles.unroll, machine.lanes)
        broadcasts = np.where(lanes > 1, points / lanes, points)
    # In a tile of one vector, each broadcast is folded into its multiply-add.
    folded = (v == 1) & machine.folds_loads
    operations = steps * (v + np.where(folded, 0, broadcasts) + v * points)
    if problem.parts:
        operations += steps * (problem.parts * (v + points) + (problem.parts - 1) * v * points)
    if not machine.folds_loads:
        operations += steps * (_PAIR * v + _LOOP / tiles.unroll)
    if machine.by_lane and problem.group == 1:  # Broadcasts use the arithmetic ports.
        multiply += steps * np.where(broadcasts < points, 0, points) / machine.fma_ports
    field = ((r - 1) * problem.strides[0] + problem.taps[0]) * (
        (c - 1) * problem.strides[1] + problem.taps[1]
    )
    return _Parts(
        multiply=multiply,
        chain=_wait(steps, operations, machine),
        loads=steps * (v + broadcasts) / machine.load_ports,
        issue=operations / machine.issue,
        shown=_LOADS,
        loop=steps / tiles.unroll * 0.5,
        finish=_finish(problem, v * points),
        point_bytes=field * steps / (problem.taps[0] * problem.taps[1]) * 4,
    )


def _wait(steps: Floats, operations: Floats, machine: Machine) -> Floats:
    """Return the cycles for which a sum of `steps` steps is stalled by the latency of its
    multiply-adds. An out-of-order core starts the next tile meanwhile, so a tile with few
    operations does not stall."""
    shown = 1 - np.minimum(machine.overlap / operations, 1.0)
    cycles: Floats = steps * machine.fma_latency * shown
    return cycles


def _window(
    problem: Problem, tiles: Tiles, machine: Machine, v: Floats, r: Floats, c: Floats
) -> _Parts:
    """Return the cycles of a tile in a depthwise convolution, where both operands are loaded as
    vectors."""
    points, steps = r * c, problem.steps / tiles.slices
    live = v * points
    if machine.folds_loads:
        reads = window_reads(problem, machine, v, r, c)
        # Its stores and the next tile's loads overlap.
        finish = v * points * (0.5 + 0.25 * problem.epilogue) + 4.0
    else:  # A line is read once for all taps of a row.
        line = (c - 1) * problem.strides[1] + problem.taps[1]
        reads = v * (problem.taps[0] * r * line + steps)
        live = live + line + 2
        finish = _finish(problem, v * points)
    spilt = 1 + _SPILL * np.maximum(live - machine.registers, 0)
    operations = steps * v * points + reads
    return _Parts(
        multiply=steps * v * points / machine.fma_ports * spilt,
        chain=_wait(steps, operations, machine),
        loads=reads / machine.load_ports,
        issue=operations / machine.issue,
        shown=_WINDOW_LOADS if machine.folds_loads else _LOADS,
        loop=0.0,
        finish=finish,
        point_bytes=v * points * np.prod(problem.strides) * machine.lanes * 4.0,
    )


def window_reads(problem: Problem, machine: Machine, v: Floats, r: Floats, c: Floats) -> Floats:
    """Return the number of vector loads in a tile of a depthwise convolution. The tile processes
    the elements of the convolution kernel one after the other, each for all accumulators. The
    remaining registers hold the vectors that were loaded most recently (`codegen.memory`). A
    vector is loaded again if, since its last use, more vectors were loaded than there are such
    registers."""
    (down, along), (down_stride, along_stride) = problem.taps, problem.strides
    sums, steps = v * r * c, problem.steps
    held = np.maximum(machine.registers - sums - SPARE_REGISTERS, FEWEST_HELD)
    line, lines = (c - 1) * along_stride + along, (r - 1) * down_stride + down
    # The column to the left uses a point `along_stride` taps later.
    by_columns = v * (along_stride * r * c + along_stride - 1) < held
    # The row above uses it in its own row of taps, after those of this row that use it.
    uses = c * along / line
    apart = down_stride * along - along_stride * (uses - 1)
    by_rows = by_columns & (v * apart * r * c < held)
    points = np.where(by_columns, v * down * r * line, sums * steps)
    points = np.where(by_rows, v * lines * line, points)
    weights = np.where(2 * v <= held, v, sums) * steps
    reads: Floats = np.minimum(points, sums * steps) + weights
    return reads


def _traffic(
    problem: Problem, tiles: Tiles, machine: Machine, panel_bytes: Floats, point_bytes: Floats
) -> tuple[Floats, Bools]:
    """Return two values for each candidate: the cycles for fetching the operands of one slice of a
    tile into the first-level cache, and a flag that is true if the broadcast operand is fetched
    from beyond the second-level cache."""
    if problem.depthwise:  # Each panel has its own points.
        is_far = problem.point_bytes / machine.threads > _OF_L2 * machine.l2_bytes
        streamed: Floats = point_bytes * (1 + 0.3 * (tiles.order == LoopOrder.ROWS))
        rate = machine.l3_bandwidth if is_far else machine.l2_bandwidth
        return streamed / rate, np.full(len(streamed), is_far)
    _, points = _needs(problem, tiles, machine)
    products = min(problem.batch, machine.threads)
    share = points * products / problem.batch * problem.point_bytes / tiles.slices
    share += tiles.prefetch * panel_bytes
    whole = problem.lane_bytes / (1 if problem.cold else problem.batch)
    rows_bytes = point_bytes * np.ceil(problem.points[1] / tiles.columns)

    outer = tiles.order == LoopOrder.ROWS
    lane_again = np.where(outer, whole, panel_bytes + point_bytes)
    point_again = np.where(outer, rows_bytes + panel_bytes, share + panel_bytes)
    traffic: Floats = panel_bytes * _per_byte(lane_again, machine)
    traffic += point_bytes * _per_byte(point_again, machine)
    return traffic, point_again > _OF_L2 * machine.l2_bytes


def _per_byte(footprint: Floats, machine: Machine) -> Floats:
    """Return the cycles per byte for fetching data that is reused after `footprint` bytes of other
    data were accessed."""
    far = footprint > _OF_L2 * machine.l2_bytes
    beyond = np.where(far, 1 / machine.l3_bandwidth, 1 / machine.l2_bandwidth)
    return np.where(footprint <= _OF_L1 * machine.l1_bytes, 0.0, beyond)
