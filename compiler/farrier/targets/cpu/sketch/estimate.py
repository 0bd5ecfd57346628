"""The cost estimate of a tiled nest in seconds, from its loads, stores and arithmetic.

One iteration of a sum loads the operands of its tile, by vector where elements are adjacent and
lane by lane otherwise. It takes as long as the slowest of the execution ports, the chain of
dependent additions, and instruction issue. In addition, the working sets of growing blocks of loops
are compared with each cache: the data of the largest block that fits in a cache is fetched from
beyond it once for each run of the block.

The estimate is computed for all candidates at once in numpy, in about a millisecond for a thousand
candidates.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from farrier.ir.dim import typical
from farrier.ir.expr import Select
from farrier.ir.substitute import variables
from farrier.ir.tensor import Stage
from farrier.ir.walk import walk
from farrier.space.machine import Machine
from farrier.space.operations import JOIN_CYCLES, operations
from farrier.space.rewrites import conjuncts
from farrier.space.space import Estimate, Floats
from farrier.targets.cpu.sketch.access import Access, lane_costs, moves_with
from farrier.targets.cpu.sketch.nest import Nest
from farrier.targets.cpu.sketch.tiling import Tiling

# Cycles to begin and end the loops of one tile, estimated from the assembly of small tiles.
_TILE = 12.0
_STEP = 2.0  # Loop overhead in instructions: counter and branch.
# Operations that a guard adds to each multiply-add, in loops of tiles at the edge: the other
# branch, and the choice between both.
_GUARD = 2.0
_EDGES = 2  # The tiles of a line that extend beyond one of its ends; loops are split there.


@dataclasses.dataclass(frozen=True)
class NestCost:
    """The cost model of one nest. The lanes of `machine` are those for the nest's element type."""

    nest: Nest
    machine: Machine

    def seconds(self, tiling: Tiling) -> Estimate:
        """Return the seconds of each candidate, with the terms that the learned cost model takes as
        features."""
        machine = self.machine
        tiles = self._tiles(tiling)
        cycles = tiles * self._edge(tiling)
        for total in self.nest.sums:
            cycles += self._sum_cycles(total, tiling, tiles)
        moved = self._traffic(tiling)
        hidden = np.minimum(cycles, moved)
        busy = np.maximum(cycles, moved) + machine.exposed * hidden
        # If the tiles do not divide evenly, the busiest thread determines the time.
        share = np.ceil(tiles / machine.threads) / np.maximum(tiles, 1)
        share = np.where(tiling.parallel > 0, share, 1.0)
        seconds = busy * share / machine.hertz + machine.fork_join * (tiling.parallel > 0)
        peak = self.nest.work / (machine.lanes * machine.fma_ports * machine.hertz)
        terms = {
            "compute": np.full(len(tiles), peak),
            "l2": moved / machine.hertz,
            "tiles": tiles,
            "balance": share * machine.threads,
            "registers": (tiling.vectors * tiling.rows * max(len(self.nest.sums), 1)).astype(float),
        }
        return Estimate(seconds, terms)

    @functools.cached_property
    def _operands(self) -> list[tuple[Stage, list[Access], Floats]]:
        """The sums of the nest, each with its loads, and the extents of its axes [axes]."""
        operands = []
        for total in self.nest.sums:
            axes = total.all_axes
            extents = np.array([max(typical(axis.extent), 1) for axis in axes], np.float64)
            operands.append((total, self.nest.operands[total.buffer.name], extents))
        return operands

    def _tiles(self, tiling: Tiling) -> Floats:
        extents = np.maximum(np.array(self.nest.extents, np.float64), 1).reshape(-1, 1)
        tiles: Floats = np.ceil(extents / tiling.tile(len(extents))).prod(axis=0)
        return tiles

    def _edge(self, tiling: Tiling) -> Floats:
        """Return the cycles that a tile takes apart from its sums: for loop overhead, the epilogue,
        and stores."""
        machine = self.machine
        points = (tiling.vectors * tiling.rows).astype(np.float64)
        is_vector = (tiling.lanes >= 0) & (tiling.lanes < len(self.nest.extents))
        points = np.where(is_vector, points, tiling.rows)
        loads = sum(
            (lane_costs(access, tiling.lanes, tiling.width) for access in self.nest.consumed),
            np.zeros(len(points)),
        )
        arithmetic = operations([self.nest.stage]) / machine.fma_ports
        busy: Floats = _TILE / 4 + points * np.maximum(arithmetic, loads / machine.load_ports)
        return busy + (_TILE if self.nest.sums else 0.0)

    def _sum_cycles(self, total: Stage, tiling: Tiling, tiles: Floats) -> Floats:
        """Return the cycles that all tiles of the nest together take for the sum `total`."""
        machine = self.machine
        _, operands, extents = next(part for part in self._operands if part[0] is total)
        axes, spatial = len(extents), len(total.axes)
        sizes = tiling.tile(axes)
        steps = np.ceil(extents[:, None] / sizes)[spatial:].prod(axis=0)
        vectors = np.where(tiling.lanes >= 0, tiling.vectors, 1)
        loads = np.zeros(len(tiles))
        for access in operands:
            count = np.where(moves_with(access, tiling.lanes), vectors, 1.0)
            count = count * np.where(moves_with(access, tiling.row), tiling.rows, 1)
            loads += count * lane_costs(access, tiling.lanes, tiling.width)
        points = vectors * tiling.rows
        # A multiply-add is one operation, and its operands were counted as loads.
        work = max(operations([total]) - len(operands), 1.0) * points
        work = work + _GUARD * points * self._guarded(total, tiling)
        step = np.maximum(work / machine.fma_ports, loads / machine.load_ports)
        step = np.maximum(step, machine.fma_latency)
        step = np.maximum(step, (work + loads + _STEP) / machine.issue)
        joins = np.where(
            tiling.lanes >= spatial, JOIN_CYCLES * vectors + machine.fma_latency * 4, 0.0
        )
        cycles: Floats = tiles * (steps * step + joins)
        return cycles

    @functools.cached_property
    def _guards(self) -> dict[str, list[list[int]]]:
        """The conditions in the Selects of each sum, each as a list of the axes that it depends on,
        by the buffer of the sum."""
        guards = {}
        for total in self.nest.sums:
            places = {axis.name: at for at, axis in enumerate(total.all_axes)}
            conditions = dict.fromkeys(
                condition
                for node in walk(total.body)
                if isinstance(node, Select)
                for condition in conjuncts(node.condition)
            )
            axes = [
                [places[name] for name in variables(each) if name in places] for each in conditions
            ]
            guards[total.buffer.name] = axes
        return guards

    def _guarded(self, total: Stage, tiling: Tiling) -> Floats:
        """Return the fraction of a sum's iterations in which a guard along the lanes or rows of the
        tile is evaluated. Tiles in the interior do not evaluate a guard that depends on no other
        axis."""
        extents = np.array([*self.nest.extents, 1.0])
        spatial = len(self.nest.extents)
        share = np.zeros(len(tiling.lanes))
        for axes in self._guards[total.buffer.name]:
            points = [axis for axis in axes if axis < spatial]
            for axis, size in (
                (tiling.lanes, tiling.vectors * tiling.width),
                (tiling.row, tiling.rows),
            ):
                edge = np.minimum(
                    _EDGES * size / np.maximum(extents[np.minimum(axis, spatial)], 1), 1
                )
                own = edge if len(points) == 1 else 1.0
                share = np.maximum(share, np.where(np.isin(axis, points), own, 0.0))
        return share

    def _traffic(self, tiling: Tiling) -> Floats:
        """Return the cycles for fetching data from beyond the first-level cache."""
        machine = self.machine
        memory = machine.memory_bandwidth / machine.hertz
        levels = (
            (machine.l1_bytes, machine.l2_bandwidth),
            (machine.l2_bytes, machine.l3_bandwidth),
            (machine.l3_bytes, memory),
        )
        blocks = self._blocks(tiling)
        return sum(
            (_beyond(blocks, size) / bandwidth for size, bandwidth in levels),
            np.zeros(len(tiling.lanes)),
        )

    def _blocks(self, tiling: Tiling) -> list[tuple[Floats, Floats]]:
        """Return four pairs, for four blocks of loops that contain each other: the number of bytes
        that a block accesses, and the number of times that it runs. The blocks are one tile, all
        tiles along the lane axis, all tiles along the lane and row axes, and the whole nest."""
        extents = np.array([max(extent, 1) for extent in self.nest.extents], np.float64)
        spatial = len(extents)
        whole = np.repeat(extents[:, None], len(tiling.lanes), axis=1)
        number = np.arange(spatial)[:, None]
        tile = np.minimum(tiling.tile(spatial), whole)
        line = np.where(number == tiling.lanes, whole, tile)
        plane = np.where(number == tiling.row, whole, line)
        return [
            (self._touched(block), np.ceil(whole / np.maximum(block, 1)).prod(axis=0))
            for block in (tile, line, plane, whole)
        ]

    def _touched(self, block: Floats) -> Floats:
        touched = sum((a.footprint(block) for a in self.nest.consumed), np.zeros(block.shape[1]))
        for total, operands, extents in self._operands:
            reduced = extents[len(total.axes) :, None]
            inner = np.repeat(reduced, block.shape[1], axis=1)
            around = np.concatenate([block, inner])
            touched = touched + sum(access.footprint(around) for access in operands)
        return touched


def _beyond(blocks: Sequence[tuple[Floats, Floats]], size: float) -> Floats:
    """Return the bytes fetched from beyond a cache of `size` bytes: the data of the largest block
    that fits (of the smallest if none fits), times the number of its runs. It is 0 if the data of
    the whole nest fits."""
    touched, runs = blocks[0]
    beyond = touched * runs
    for touched, runs in blocks[1:]:
        beyond = np.where(touched <= size, touched * runs, beyond)
    # Data that fits completely is still in the cache from the preceding kernel.
    return np.where(touched <= size, 0.0, beyond)
