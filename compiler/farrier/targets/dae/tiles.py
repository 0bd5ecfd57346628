"""Tiles of a product: how much of it a group of instructions computes, and what that takes.

A *tile* is a part of the results: blocks of channels, rows, columns. Its sums stay in the scratchpad
while *groups* of instructions add the products of some input blocks each: load, multiply. Two
virtual threads compute every other tile; the parts of each in the scratchpads are apart, so that one
loads while the other multiplies.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from farrier.records import RuleId
from farrier.space import Columns, Decisions, Estimate, Knob
from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.epilogue import Channels, Epilogue, Sums, Tensor
from farrier.targets.dae.instructions import Pad, word_bits
from farrier.targets.dae.products import Product
from farrier.targets.dae.tokens import bytes_of

RULE = RuleId("dae_product", version=1)
_COUNTS = 12  # Values of a knob at most.


@dataclasses.dataclass(frozen=True, slots=True)
class Tiling:
    """The extents of a tile, the input blocks of a group, and the virtual threads. The tiles that
    follow each other have the same weights, or `by_points` the same points."""

    blocks: int
    rows: int
    columns: int
    inputs: int
    threads: int
    by_points: bool

    @classmethod
    def of(cls, decisions: Decisions) -> Tiling:
        fields = {name: int(value) for name, value in decisions.items()}
        return cls(**{**fields, "by_points": bool(fields["by_points"])})


def knobs(product: Product) -> tuple[Knob, ...]:
    """Return the decisions of a tiling."""
    return (
        Knob("blocks", parts(product.blocks_out)),
        Knob("rows", parts(product.height)),
        Knob("columns", parts(product.width)),
        Knob("inputs", parts(product.blocks_in)),
        Knob("threads", (2, 1)),
        Knob("by_points", (0, 1)),
    )


@functools.cache
def parts(extent: int) -> tuple[int, ...]:
    """Return the sizes of even parts of an extent, the last of which may be smaller."""
    sizes = sorted({math.ceil(extent / count) for count in range(1, extent + 1)}, reverse=True)
    if len(sizes) > _COUNTS:
        dividing = [size for size in sizes if extent % size == 0]
        others = [size for size in sizes if extent % size]
        step = max(1, len(others) // max(1, _COUNTS - len(dividing)))
        sizes = sorted({*dividing, *others[::step]}, reverse=True)
    return tuple(sizes)


@dataclasses.dataclass(frozen=True, slots=True)
class Room:
    """The elements that a virtual thread holds in each scratchpad: inputs, weights, sums. Of the
    sums `tile` are those of each tile."""

    inputs: int
    weights: int
    sums: int
    tile: int


class Costs:
    """The room and the cycles of tilings, one or a whole population of them."""

    def __init__(self, product: Product, epilogue: Epilogue, accelerator: Accelerator) -> None:
        self.product = product
        self.epilogue = epilogue
        self.accelerator = accelerator
        self.tensors = [each for each in epilogue.operands if isinstance(each, Tensor)]
        self.vectors = [each for each in epilogue.operands if isinstance(each, Channels)]

    def window(self, axis: int, points: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        product = self.product
        reach = (product.kernel[axis] - 1) * product.dilations[axis] + 1
        return (points - 1) * product.strides[axis] + reach

    def image(self, columns: Columns) -> npt.NDArray[np.int64]:
        """Return the points of the image that a tile reads."""
        return self.window(0, columns["rows"]) * self.window(1, columns["columns"])

    def tile(self, columns: Columns) -> npt.NDArray[np.int64]:
        return columns["blocks"] * columns["rows"] * columns["columns"]

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Check which tilings fit the scratchpads and the fields."""
        accelerator, threads = self.accelerator, columns["threads"]
        taps = self.product.taps
        most = (1 << accelerator.fields.count) - 1
        inputs = columns["inputs"] * self.image(columns)
        weights = columns["inputs"] * columns["blocks"] * taps
        sums = self.tile(columns) * (1 + len(self.tensors)) + columns["blocks"] * len(self.vectors)
        fits = (inputs <= accelerator.inputs // threads) & (weights <= accelerator.weights // threads)
        fits &= sums <= accelerator.sums // threads
        return fits & (columns["inputs"] * taps <= most) & (self.window(1, columns["columns"]) <= most)

    def estimate(self, columns: Columns) -> Estimate:
        """Return the cycles of tilings as seconds: those of the modules one after the other, or
        with two threads of the busiest one, and what is not hidden of the first and last tile."""
        product, accelerator = self.product, self.accelerator
        port, latency = accelerator.port.bytes, accelerator.port.latency
        tiles_c = -(-product.blocks_out // columns["blocks"])
        tiles_p = -(-product.height // columns["rows"]) * -(-product.width // columns["columns"])
        groups = -(-product.blocks_in // columns["inputs"])
        tiles = tiles_c * tiles_p
        whole = groups == 1
        image = columns["inputs"] * self.image(columns) * accelerator.input_bytes
        weight = columns["inputs"] * columns["blocks"] * product.taps * accelerator.weight_bytes
        threads = columns["threads"]
        by_points = columns["by_points"] == 1
        image_loads = np.where(whole & by_points, np.minimum(threads, tiles_c) * tiles_p, tiles * groups)
        weight_loads = np.where(
            whole & ~by_points, np.minimum(threads, tiles_p) * tiles_c, tiles * groups
        )
        tile = self.tile(columns)
        beside = sum(bytes_of(tensor.form, accelerator) for tensor in self.tensors)
        load = (image_loads * image + weight_loads * weight + tiles * tile * beside) / port
        starts = image_loads * columns["inputs"] + weight_loads + tiles * columns["blocks"] * len(self.tensors)
        load = load + starts * latency
        vectors = len(self.vectors) * accelerator.sum_bytes * columns["blocks"]
        load = load + np.where(by_points, tiles, tiles_c * threads) * (vectors / port + latency * len(self.vectors))
        sums = accelerator.matrix.batch * accelerator.matrix.outer
        step = -(-sums // accelerator.vector.lanes)
        operations = 1 + len(self.epilogue.steps)
        steps = tile * columns["inputs"] * product.taps
        execute = tiles * (
            groups * (steps + accelerator.matrix.latency)
            + operations * (tile * step + accelerator.vector.latency)
        )
        nbytes = accelerator.sum_bytes // (4 if self.epilogue.form else 1)
        store = tiles * (tile * nbytes / port + columns["blocks"] * latency)
        word = -(-word_bits(accelerator) // 8 // port)
        fetch = tiles * word * (groups * (columns["inputs"] + 2) + operations + columns["blocks"])
        serial = load + execute + store
        hidden = np.maximum(np.maximum(execute, load + store - starts * latency * 0.5), fetch)
        first = (load + store) / np.maximum(1, tiles * groups)
        cycles = np.where(threads > 1, hidden + first, serial)
        seconds = cycles / (accelerator.mhz * 1e6)
        return Estimate(seconds, {"compute": execute / (accelerator.mhz * 1e6)})

    def room(self, tiling: Tiling) -> Room:
        """Return what a virtual thread holds."""
        columns = {
            name: np.array([int(value)])
            for name, value in dataclasses.asdict(tiling).items()
        }
        inputs = int((columns["inputs"] * self.image(columns))[0])
        tile = int(self.tile(columns)[0])
        sums = tile * (1 + len(self.tensors)) + tiling.blocks * len(self.vectors)
        weights = tiling.inputs * tiling.blocks * self.product.taps
        return Room(inputs, weights, sums, tile)


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A part of an axis."""

    first: int
    count: int


def spans(extent: int, size: int) -> list[Span]:
    return [Span(first, min(size, extent - first)) for first in range(0, extent, size)]


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    blocks: Span
    rows: Span
    columns: Span


def tiles(product: Product, tiling: Tiling) -> Iterator[Tile]:
    """Yield the tiles in the order in which they are computed."""
    blocks = spans(product.blocks_out, tiling.blocks)
    points = [
        (rows, columns)
        for rows in spans(product.height, tiling.rows)
        for columns in spans(product.width, tiling.columns)
    ]
    if tiling.by_points:
        yield from (Tile(each, *point) for point in points for each in blocks)
    else:
        yield from (Tile(each, *point) for each in blocks for point in points)


__all__ = ["RULE", "Costs", "Pad", "Room", "Span", "Sums", "Tile", "Tiling", "knobs", "tiles"]
