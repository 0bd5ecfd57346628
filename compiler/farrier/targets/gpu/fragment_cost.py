"""The analytic cost model of a matrix product that subgroups compute on fragments (tiles
distributed over the registers of a subgroup), as tensor cores do."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from farrier.intrinsics.fragments import FragmentProduct
from farrier.space import Columns, Estimate
from farrier.space.space import Floats
from farrier.targets.gpu import product_cost
from farrier.targets.gpu.device import Device, Limits
from farrier.targets.gpu.occupancy import occupancy

# The 16-bit multiplications that a unit starts per cycle: those of sm_75, the slowest architecture
# with tensor cores (CUDA C++ Programming Guide, arithmetic throughput).
RATE = 512
CHUNK = 16  # Bytes that a thread copies at once.
MATRIX = 8  # Rows of CHUNK bytes that a subgroup reads at once.
_PADDING = 8  # Elements of padding in a row of results.
COPY = 8  # The operations of a copy, apart from its index computation.
# The registers of a thread apart from fragments: ptxas, for tiles of 64 by 64, within a tenth.
_REGISTERS = 50
_WORD = 4  # Bytes of a register.
# The most bytes that a thread loads early for the next iteration; more would leave too few
# registers.
_MOST_KEPT = 64
_MOST_REGISTERS = 255  # The most registers of a thread, on all architectures.


@dataclasses.dataclass(frozen=True)
class Shape:
    """The extents of a product, and the declaration of the fragment product that computes it."""

    product: product_cost.Shape
    declared: FragmentProduct

    def tile(self, columns: Columns) -> tuple[Floats, Floats, Floats]:
        """Return three numbers for each candidate: the rows and the columns of the tile that a
        block computes, and the number of terms that the block adds in one iteration of its main
        loop."""
        rows = columns["groups_y"] * columns["each_y"] * self.declared.rows
        width = columns["groups_x"] * columns["each_x"] * self.declared.columns
        depth = columns["steps"] * self.declared.depth
        return rows.astype(np.float64), width.astype(np.float64), depth.astype(np.float64)

    def workgroup_bytes(self, columns: Columns) -> Floats:
        """Return the bytes of workgroup memory of a block."""
        rows, width, depth = self.tile(columns)
        left, right = self.product.element_bytes
        results = columns["groups_y"] * self.declared.rows * (width + _PADDING)
        factors: Floats = rows * depth * left + width * depth * right
        return columns["stages"] * factors + results * self.declared.total.nbytes

    def registers(self, columns: Columns) -> Floats:
        """Return the approximate number of registers of a thread."""
        fragments = columns["each_y"] * columns["each_x"] * 8.0
        own = _REGISTERS + fragments + 4.0 * (columns["each_y"] + columns["each_x"])
        return own + self.is_kept(columns) * self.copied_each(columns) / _WORD

    def is_kept(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Check for each candidate whether threads load the factors of the next iteration into
        registers. They do so if `stages` is larger than the number of stages for which the device
        has asynchronous copies."""
        kept: npt.NDArray[np.bool_] = columns["stages"] > self.declared.stages
        return kept

    def copied_each(self, columns: Columns) -> Floats:
        """Return the bytes that each thread copies in one iteration of the main loop."""
        rows, width, depth = self.tile(columns)
        left, right = self.product.element_bytes
        threads = columns["groups_y"] * columns["groups_x"] * 32
        return depth * (rows * left + width * right) / threads


def allowed(shape: Shape, columns: Columns, limits: Limits) -> npt.NDArray[np.bool_]:
    """Check for each candidate that it does not exceed the limits of the device, and that the tile
    of a block is not much larger than the product."""
    threads = columns["groups_y"] * columns["groups_x"] * 32
    within: npt.NDArray[np.bool_] = threads <= limits.threads
    within &= shape.workgroup_bytes(columns) <= limits.workgroup_bytes
    within &= shape.registers(columns) <= _MOST_REGISTERS
    within &= columns["stages"] <= max(shape.declared.stages, 2)
    within &= ~shape.is_kept(columns) | (shape.copied_each(columns) <= _MOST_KEPT)
    # Stages that exceed the number of iterations would be empty.
    turns = -(-shape.product.terms // (columns["steps"] * shape.declared.depth))
    within &= columns["stages"] <= turns
    rows, width, _ = shape.tile(columns)
    for size, extent in ((rows, shape.product.rows), (width, shape.product.columns)):
        within &= size <= max(shape.declared.rows, 1 << (extent - 1).bit_length())
    return within


def cost(shape: Shape, device: Device, columns: Columns) -> Estimate:
    """Return the estimated seconds of a product for each candidate."""
    product = shape.product
    rows, width, depth = shape.tile(columns)
    groups = (columns["groups_y"] * columns["groups_x"]).astype(np.float64)
    threads = groups * 32
    blocks = product.batch * np.ceil(product.rows / rows) * np.ceil(product.columns / width)
    turns = np.ceil(product.terms / depth)
    registers = shape.registers(columns)
    nbytes = shape.workgroup_bytes(columns)
    rounds, at_once = occupancy(device, blocks, threads, registers, nbytes)

    multiply = rows * width * depth / (RATE if shape.declared.left.nbytes <= 2 else RATE / 2)
    elements = depth * (rows * product.element_bytes[0] + width * product.element_bytes[1])
    indices = product_cost.INDEX_OPERATIONS * (1 + max(product.digits))
    copy = elements / CHUNK * (COPY + indices) / device.lanes
    results = rows * width * (product.epilogue + COPY) / device.lanes
    # Few subgroups leave the unit idle while each waits for its own loads.
    hidden = np.minimum(1.0, at_once * groups / 4)
    compute = rounds * (turns * (multiply + copy) / hidden + results) / device.clock
    waits = device.memory_latency + 2 * device.barrier
    # A turn of one stage waits for its loads and twice for its block. With more, the loads of a
    # turn have the time of the others.
    stages = columns["stages"]
    stalls = rounds / at_once * turns * waits / device.clock / stages
    through_cache = blocks * turns * elements / device.cache_bandwidth
    least = product.rows * product.element_bytes[0] + product.columns * product.element_bytes[1]
    memory = np.full(len(rows), product.batch * product.terms * least / device.bandwidth)
    overhead = device.launch_s + stalls
    seconds = np.maximum.reduce([compute, through_cache, memory]) + overhead
    terms = {"compute": compute, "l2": through_cache, "memory": memory, "overhead": overhead}
    return Estimate(seconds, terms | {"tiles": blocks, "registers": registers})
