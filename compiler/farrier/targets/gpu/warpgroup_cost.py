"""The analytic cost model of a matrix product that warpgroups compute, with both factors in
workgroup memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from farrier.intrinsics.warpgroups import ROW_BYTES, ROWS, WarpgroupProduct
from farrier.ir.threads import WARPGROUP_SIZE
from farrier.space import Columns, Estimate
from farrier.space.space import Floats
from farrier.targets.gpu import product_cost
from farrier.targets.gpu.device import Device, Limits
from farrier.targets.gpu.fragment_cost import CHUNK
from farrier.targets.gpu.occupancy import occupancy

# The bytes of factors that a unit multiplies in a cycle. A unit of sm_90 starts 2048
# multiplications of 16 bits (NVIDIA H100 whitepaper: 989 TFLOPS).
_RATE = 2 * 2048
_READ = 128  # The bytes that a unit reads from workgroup memory in a cycle.
_PADDING = 8  # Elements of padding in a row of results.
_COPY = 8  # The operations of a copy, apart from its index computation.
# The registers of a thread apart from sums: ptxas, for one fragment of 32 to 256 columns, within a
# fifth.
_REGISTERS = 32
_MOST_REGISTERS = 255
_RESERVED = 1 << 10  # Bytes of workgroup memory that the driver takes for each block.
_AT_WORK = 2  # Warpgroups of a unit, of which one waits while the other one multiplies.


@dataclasses.dataclass(frozen=True)
class Shape:
    """The extents of a product, and the products of warpgroups that compute it, which differ in
    their columns. `across` are the factors whose memory has the terms of the sum as first axis."""

    product: product_cost.Shape
    declared: Sequence[WarpgroupProduct]
    across: tuple[bool, bool]

    def of_columns(self, columns: int) -> WarpgroupProduct:
        return next(each for each in self.declared if each.columns == columns)

    @property
    def nbytes(self) -> int:
        """The bytes of an element of a factor."""
        return self.declared[0].left.nbytes

    def tile(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        """Return the rows and columns that a block computes, and the number of terms that it adds
        in one iteration of its main loop."""
        rows = columns["groups_y"] * columns["each_y"] * ROWS
        width = columns["groups_x"] * columns["each_x"] * columns["columns"]
        depth = columns["steps"] * ROW_BYTES // self.nbytes
        return rows.astype(np.float64), width.astype(np.float64), depth.astype(np.float64)

    def workgroup_bytes(self, columns: Columns) -> Floats:
        """Return the bytes of workgroup memory of a block."""
        rows, width, depth = self.tile(columns)
        stored = np.minimum(columns["columns"], self.declared[-1].stored)
        results = columns["groups_y"] * ROWS * (columns["groups_x"] * stored + _PADDING)
        factors: Floats = (rows + width) * depth * self.nbytes * columns["stages"]
        return factors + results * self.declared[0].total.nbytes

    def registers(self, columns: Columns) -> Floats:
        """Return the approximate number of registers of a thread."""
        sums = columns["each_y"] * columns["each_x"] * columns["columns"] * ROWS / WARPGROUP_SIZE
        registers: Floats = _REGISTERS + sums
        return registers


def allowed(
    shape: Shape, columns: Columns, limits: Limits, device: Device
) -> npt.NDArray[np.bool_]:
    """Check for each candidate that it keeps the limits and its blocks are mostly filled."""
    threads = columns["groups_y"] * columns["groups_x"] * WARPGROUP_SIZE
    within: npt.NDArray[np.bool_] = threads <= limits.threads
    within &= shape.workgroup_bytes(columns) <= device.workgroup_bytes - _RESERVED
    registers = shape.registers(columns)
    within &= (registers <= _MOST_REGISTERS) & (registers * threads <= device.registers)
    rows, width, depth = shape.tile(columns)
    # Stages that exceed the number of iterations would be empty.
    within &= columns["stages"] <= np.ceil(shape.product.terms / depth)
    if shape.across[1]:
        within &= columns["columns"] * shape.nbytes >= ROW_BYTES
    smallest = shape.declared[0].columns
    for size, extent, least in (
        (rows, shape.product.rows, ROWS),
        (width, shape.product.columns, smallest),
    ):
        within &= size <= max(least, 1 << (extent - 1).bit_length())
    return within


def cost(shape: Shape, device: Device, columns: Columns) -> Estimate:
    """Return the estimated seconds of a product for each candidate."""
    product = shape.product
    rows, width, depth = shape.tile(columns)
    groups = (columns["groups_y"] * columns["groups_x"]).astype(np.float64)
    threads = groups * WARPGROUP_SIZE
    blocks = product.batch * np.ceil(product.rows / rows) * np.ceil(product.columns / width)
    turns = np.ceil(product.terms / depth)
    registers = shape.registers(columns)
    nbytes = shape.workgroup_bytes(columns)
    rounds, at_once = occupancy(device, blocks, threads, registers, nbytes)

    # Each fragment reads its own rows and columns from workgroup memory.
    fragments = rows / ROWS * width / columns["columns"]
    read = fragments * (ROWS + columns["columns"]) * depth * shape.nbytes / _READ
    multiply = np.maximum(rows * width * depth * shape.nbytes / _RATE, read)
    elements = depth * (rows + width) * shape.nbytes
    indices = product_cost.INDEX_OPERATIONS * (1 + max(product.digits))
    copy = elements / CHUNK * (_COPY + indices) / device.lanes
    results = rows * width * (product.epilogue + _COPY) / device.lanes
    hidden = np.minimum(1.0, at_once * groups / _AT_WORK)
    compute = rounds * (turns * (multiply / hidden + copy) + results) / device.clock
    waits = device.memory_latency + 2 * device.barrier
    # A turn of one stage waits for its loads and twice for its block. With more, the loads of a
    # turn have the time of the others.
    stalls = rounds / at_once * turns * waits / device.clock / columns["stages"]
    through_cache = blocks * turns * elements / device.cache_bandwidth
    least = (product.rows + product.columns) * shape.nbytes
    memory = np.full(len(rows), product.batch * product.terms * least / device.bandwidth)
    overhead = device.launch_s + stalls
    seconds = np.maximum.reduce([compute, through_cache, memory]) + overhead
    terms = {"compute": compute, "l2": through_cache, "memory": memory, "overhead": overhead}
    return Estimate(seconds, terms | {"tiles": blocks, "registers": registers})
