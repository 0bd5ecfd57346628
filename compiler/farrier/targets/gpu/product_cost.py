"""The analytic cost model of a matrix product that blocks of threads compute tile by tile."""

from __future__ import annotations

import dataclasses

import numpy as np

from farrier.ir.dim import Extent, typical
from farrier.ir.expr import dtype_of
from farrier.schedule.product import Factor, Product
from farrier.schedule.tiling_parts import product_of
from farrier.space import Columns, Estimate
from farrier.space.operations import operations_of
from farrier.space.space import Floats
from farrier.targets.gpu.device import Device
from farrier.targets.gpu.occupancy import occupancy

KNOBS = ("threads_y", "threads_x", "each_y", "each_x", "depth", "stages")
# From ptxas for tiles of 4x4 to 8x8 elements, within a tenth: the base registers of a thread, and
# the registers for each element of its tile.
_REGISTERS, _REGISTERS_EACH = 33, 1.27
INDEX_OPERATIONS = 6  # The operations of a division by a constant, about six.
_OFTEN = 16  # Statements of a loop's body beyond which a compiler takes long.


@dataclasses.dataclass(frozen=True)
class Shape:
    """The extents of a product; open (dynamic) dims have their typical sizes.

    For each factor, `element_bytes` is the size of an element, and `digits` the number of integer
    divisions that convert a row or column number and a term number to indices. `epilogue` counts
    the operations on a result.
    """

    batch: int
    rows: int
    columns: int
    terms: int
    element_bytes: tuple[int, int]
    digits: tuple[int, int]
    epilogue: int

    @classmethod
    def of(cls, product: Product) -> Shape:
        rows, columns = product.rows, product.columns
        long_sums = sum(extent != 1 for _, extent in product.sums) - 1
        return cls(
            _size(product_of(extent for _, extent in product.batch)),
            _size(rows.extent),
            _size(columns.extent),
            _size(product_of(extent for _, extent in product.sums)),
            (dtype_of(rows.value).nbytes, dtype_of(columns.value).nbytes),
            (_digits(rows) + long_sums, _digits(columns) + long_sums),
            operations_of(product.store.value),
        )

    @property
    def work(self) -> float:
        """The number of multiplications."""
        return float(self.batch) * self.rows * self.columns * self.terms


def _digits(factor: Factor) -> int:
    """Return the number of divisions that convert a row or column number of a factor to indices."""
    return sum(extent != 1 for _, extent in factor.axes) - 1


def _size(extent: Extent) -> int:
    return max(1, typical(extent))


def workgroup_bytes(shape: Shape, columns: Columns, element_bytes: int = 1) -> Floats:
    """Return an upper bound of the workgroup memory of a block in bytes, float [candidates]. An
    element takes at least `element_bytes`."""
    total = np.zeros(len(columns["depth"]))
    for side, (axis, other) in enumerate((("y", "x"), ("x", "y"))):
        width = columns[f"threads_{axis}"] * columns[f"each_{axis}"] + 1
        is_staged = columns[f"threads_{other}"] > 1
        nbytes = max(element_bytes, shape.element_bytes[side])
        total += is_staged * width * columns["depth"] * nbytes
    return total * columns["stages"]


def copied_each(columns: Columns) -> Floats:
    """Return the number of elements, of both factors together, that a thread copies in one
    iteration of the main loop, float [candidates]."""
    total = np.zeros(len(columns["depth"]))
    threads = columns["threads_y"] * columns["threads_x"]
    for axis, other in (("y", "x"), ("x", "y")):
        size = columns[f"threads_{axis}"] * columns[f"each_{axis}"]
        is_staged = columns[f"threads_{other}"] > 1
        total += is_staged * np.ceil(size * columns["depth"] / threads)
    return total


def cost(shape: Shape, device: Device, columns: Columns) -> Estimate:
    """Return the estimated seconds of a product for each candidate."""
    knobs = {name: columns[name].astype(np.float64) for name in KNOBS}
    each = knobs["each_y"] * knobs["each_x"]
    threads = knobs["threads_y"] * knobs["threads_x"]
    size_y, size_x = knobs["threads_y"] * knobs["each_y"], knobs["threads_x"] * knobs["each_x"]
    tiles = np.ceil(shape.rows / size_y) * np.ceil(shape.columns / size_x)
    blocks = shape.batch * tiles
    turns = np.ceil(shape.terms / knobs["depth"])

    groups = np.ceil(threads / device.group)
    # With two stages a thread keeps what it copies for the next turn, and stores it by a place of
    # its own.
    kept = (knobs["stages"] - 1) * copied_each(columns)
    registers = _REGISTERS + _REGISTERS_EACH * (each + knobs["each_y"] + knobs["each_x"]) + kept
    nbytes = workgroup_bytes(shape, columns)
    rounds, at_once = occupancy(device, blocks, groups * device.group, registers, nbytes)

    # Cycles in which a unit begins the operations of one block.
    issue = groups * device.group / device.lanes
    copied = kept * INDEX_OPERATIONS
    direct = np.zeros(len(each))
    lines = np.zeros(len(each))
    for side, (size, other) in enumerate(((size_y, "x"), (size_x, "y"))):
        moved = INDEX_OPERATIONS * (1 + shape.digits[side])
        is_staged = knobs[f"threads_{other}"] > 1
        own = knobs["each_y" if side == 0 else "each_x"]
        copied += is_staged * moved * np.ceil(size * knobs["depth"] / threads)
        direct += np.where(is_staged, own, own * moved)
        lines += size * shape.element_bytes[side]
    operations = turns * (knobs["depth"] * (each + direct + 2) + copied)
    operations += each * (shape.epilogue + 4)
    # What dependent operations take is hidden by other groups and by a thread's other sums.
    hiding = at_once * groups * np.minimum(each, 4.0) / device.lanes * device.group
    exposed = np.maximum(1.0, device.latency / np.maximum(hiding, 1e-9))
    compute = rounds * issue * operations * exposed / device.clock
    # A turn of one stage waits for its loads, and twice for its block. With two it waits once, and
    # its loads have the time of the turn before.
    turn = issue * exposed * knobs["depth"] * (each + direct + 2)
    overlapped = np.maximum(0.0, device.memory_latency - turn) + device.barrier
    alone = device.memory_latency + 2.0 * device.barrier
    waits = np.where(knobs["stages"] > 1, overlapped, alone)
    stalls = rounds / at_once * turns * waits / device.clock
    through_cache = blocks * turns * knobs["depth"] * lines / device.cache_bandwidth
    least = (
        shape.batch
        * shape.terms
        * (shape.rows * shape.element_bytes[0] + shape.columns * shape.element_bytes[1])
    )
    memory = np.full(len(each), least / device.bandwidth)
    long = np.maximum(0.0, each * shape.epilogue / _OFTEN - each) * 1e-9
    overhead = device.launch_s + stalls + long
    seconds = np.maximum.reduce([compute, through_cache, memory]) + overhead
    terms = {"compute": compute, "l2": through_cache, "memory": memory, "overhead": overhead}
    return Estimate(seconds, terms | {"tiles": blocks, "registers": registers})
