"""The cost estimate of tilings, for many candidates at once: the scratchpad space that they need,
and the cycles that they take."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.space import Columns, Estimate
from farrier.targets.dae.anchor import Anchor, Method
from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.epilogue import Epilogue
from farrier.targets.dae.instructions import word_bits
from farrier.targets.dae.steps import Channels, Tensor
from farrier.targets.dae.tiles import Tiling
from farrier.targets.dae.tokens import bytes_of

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class Room:
    """The number of elements that each virtual thread needs in the scratchpads for `inputs`,
    `weights` and `sums`. `tile` is the number of sums in one tile of the result."""

    inputs: int
    weights: int
    sums: int
    tile: int


class Costs:
    """The costs of the tilings of an anchor. Each column has one value per candidate."""

    def __init__(self, anchor: Anchor, epilogue: Epilogue, accelerator: Accelerator) -> None:
        self.anchor = anchor
        self.epilogue = epilogue
        self.accelerator = accelerator
        self.tensors = [each for each in epilogue.operands if isinstance(each, Tensor)]
        self.vectors = [each for each in epilogue.operands if isinstance(each, Channels)]

    # -- room

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Check for each tiling that it fits in the scratchpads and its loop counts fit in the
        instruction fields."""
        accelerator, threads = self.accelerator, columns["threads"]
        most = (1 << accelerator.fields.count) - 1
        fits = self._inputs(columns) <= accelerator.inputs // threads
        fits &= self._weights(columns) <= accelerator.weights // threads
        fits &= self._sums(columns) <= accelerator.sums // threads
        fits &= columns["inputs"] * self.anchor.taps <= most
        counts: npt.NDArray[np.bool_] = fits & (self._window(1, columns["columns"]) <= most)
        return counts

    def room(self, tiling: Tiling) -> Room:
        """Return the scratchpad space that each virtual thread needs."""
        values = dataclasses.asdict(tiling).items()
        columns = {name: np.array([value]) for name, value in values}
        needs = (self._inputs, self._weights, self._sums, _tile)
        return Room(*(int(need(columns)[0]) for need in needs))

    def _inputs(self, columns: Columns) -> Ints:
        return self._image(columns) * int(self.anchor.method is Method.PRODUCTS)

    def _image(self, columns: Columns) -> Ints:
        """Return the number of input elements that one group of instructions loads, for each
        candidate. An element is a block of channels at one point."""
        points = self._window(0, columns["rows"]) * self._window(1, columns["columns"])
        if self.anchor.data is None:
            points = np.zeros_like(points)
        return columns["blocks" if self.anchor.is_on_sums else "inputs"] * points

    def _window(self, axis: int, points: Ints) -> Ints:
        """Return the number of input points along an axis that are read for `points` points of the
        result."""
        anchor = self.anchor
        reach = (anchor.kernel[axis] - 1) * anchor.dilations[axis] + 1
        return (points - 1) * anchor.strides[axis] + reach

    def _weights(self, columns: Columns) -> Ints:
        return self._taps(columns) * int(self.anchor.method is Method.PRODUCTS)

    def _taps(self, columns: Columns) -> Ints:
        taps = 0 if self.anchor.weights is None else self.anchor.taps
        return columns["inputs"] * columns["blocks"] * taps

    def _sums(self, columns: Columns) -> Ints:
        vectors = columns["blocks"] * len(self.vectors)
        sums = _tile(columns) * (1 + len(self.tensors)) + vectors
        if self.anchor.is_on_sums:
            sums = sums + self._image(columns) + self._taps(columns)
        return sums

    # -- cycles

    def estimate(self, columns: Columns) -> Estimate:
        """Return the predicted time of each tiling. With one virtual thread, the modules work one
        after the other, and the time is the sum of their cycles. With two, they overlap: the time
        is that of the busiest module, plus the first transfers and the last ones, which do not
        overlap with anything."""
        counts = _Counts.of(self.anchor, columns)
        transfers, starts = self._transfers(columns, counts)
        execute = self._execute(columns, counts)
        latency = self.accelerator.port.latency
        # The latency of stores overlaps with loads, so only about half of all latencies delay the
        # port.
        port = transfers + starts * latency / 2
        first = transfers / (counts.tiles * counts.groups)
        busiest = np.maximum(np.maximum(execute, port), self._fetch(columns, counts))
        hidden = busiest + first + self._last(columns)
        serial = transfers + starts * latency + execute
        cycles = np.where(columns["threads"] > 1, hidden, serial)
        hertz = self.accelerator.mhz * 1e6
        return Estimate(cycles / hertz, {"compute": execute / hertz, "memory": transfers / hertz})

    def _transfers(self, columns: Columns, counts: _Counts) -> tuple[Floats, Floats]:
        """Return the cycles in which the memory port transfers all bytes, and the number of
        transfers."""
        accelerator = self.accelerator
        threads, by_points = columns["threads"], columns["by_points"] == 1
        # If a tile has one group, data that successive tiles share stays in its part of the
        # scratchpad.
        is_kept = counts.groups == 1
        is_on_sums = self.anchor.is_on_sums
        every = counts.tiles * counts.groups
        images = np.where(
            is_kept & by_points & (not is_on_sums),
            np.minimum(threads, counts.blocks) * counts.points,
            every,
        )
        weights = np.where(
            is_kept & ~by_points, np.minimum(threads, counts.points) * counts.blocks, every
        )
        vectors = np.where(by_points, counts.tiles, counts.blocks * threads) * len(self.vectors)
        beside = sum(bytes_of(tensor.form, accelerator) for tensor in self.tensors)
        stored = accelerator.sum_bytes // (4 if self.epilogue.form else 1)
        weight_bytes = accelerator.sum_bytes if is_on_sums else accelerator.weight_bytes
        nbytes = (
            images * self._image(columns) * accelerator.input_bytes
            + weights * self._taps(columns) * weight_bytes
            + vectors * columns["blocks"] * accelerator.sum_bytes
            + counts.tiles * _tile(columns) * (beside + stored)
        )
        of_tiles = counts.tiles * columns["blocks"] * (len(self.tensors) + 1)
        blocks = columns["blocks" if is_on_sums else "inputs"]
        images = images * int(self.anchor.data is not None)
        weights = weights * int(self.anchor.weights is not None)
        starts = images * blocks + weights + vectors + of_tiles
        return nbytes / accelerator.port.bytes, starts.astype(np.float64)

    def _last(self, columns: Columns) -> Floats:
        """Return the cycles for storing the last tile, which do not overlap with anything."""
        accelerator = self.accelerator
        nbytes = accelerator.sum_bytes // (4 if self.epilogue.form else 1)
        cycles: Floats = _tile(columns) * nbytes / accelerator.port.bytes
        return cycles + accelerator.port.latency

    def _execute(self, columns: Columns, counts: _Counts) -> Floats:
        """Return the cycles of the compute module."""
        accelerator, tile = self.accelerator, _tile(columns)
        sums = accelerator.matrix.batch * accelerator.matrix.outer
        operations = 1 + len(self.epilogue.steps)
        step = -(-sums // accelerator.vector.lanes)
        match self.anchor.method:
            case Method.PRODUCTS:
                latency = accelerator.matrix.latency
                of_group = tile * columns["inputs"] * self.anchor.taps + latency
            case Method.DEPTHWISE:
                of_group = (tile * self.anchor.taps + self._image(columns)) * step
            case Method.MAXIMA | Method.SUMS:
                of_group = tile * self.anchor.taps * step
            case Method.NONE:
                of_group = np.zeros_like(tile)
        of_step = tile * step + accelerator.vector.latency
        cycles = counts.tiles * (counts.groups * of_group + operations * of_step)
        return cycles.astype(np.float64)

    def _fetch(self, columns: Columns, counts: _Counts) -> Floats:
        """Return the cycles for fetching the instructions."""
        word = -(-word_bits(self.accelerator) // 8 // self.accelerator.port.bytes)
        of_tile = 1 + len(self.epilogue.steps) + columns["blocks"] * (1 + len(self.tensors))
        cycles = word * counts.tiles * (counts.groups * (columns["inputs"] + 2) + of_tile)
        return cycles.astype(np.float64)


@dataclasses.dataclass(frozen=True, slots=True)
class _Counts:
    """The numbers of tiles along channels (`blocks`) and along points, the number of all tiles, and
    the number of instruction groups in each tile."""

    blocks: Ints
    points: Ints
    tiles: Ints
    groups: Ints

    @classmethod
    def of(cls, anchor: Anchor, columns: Columns) -> _Counts:
        blocks = -(-anchor.blocks_out // columns["blocks"])
        rows = -(-anchor.height // columns["rows"])
        points = rows * -(-anchor.width // columns["columns"])
        groups = -(-anchor.blocks_in // columns["inputs"])
        return cls(blocks, points, blocks * points, groups)


def _tile(columns: Columns) -> Ints:
    """Return the number of sums of a tile."""
    return columns["blocks"] * columns["rows"] * columns["columns"]
