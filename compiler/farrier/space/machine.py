"""The parameters of a machine for the analytic cost models: throughputs in cycles, sizes in bytes.

The backend of a target defines them. Only ratios of them rank candidates, so they need not be exact
for every model of a family. The defaults describe the simplest core: in order, one instruction a
cycle, with the memory of a small board.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TypeAlias, overload

import numpy as np
import numpy.typing as npt

from farrier.ir.types import DType
from farrier.space.space import Floats

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """The costs of operations on one core. `memory_bandwidth` is that of all threads together, and
    `core_bandwidth` the largest share of it that one core can use."""

    lanes: int  # The f32 elements of a vector register.
    registers: int
    threads: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    hertz: float = 1e9
    fma_ports: float = 1.0  # Vector multiply-adds a cycle.
    load_ports: float = 1.0  # Vector or scalar loads a cycle.
    issue: float = 1.0  # Instructions a cycle.
    # Cycles from one multiply-add, or dot product, to the next that depends on it.
    fma_latency: float = 4.0
    overlap: float = 0.0  # The instructions that begin while earlier ones wait.
    window: float = 1.0  # The instructions that a core looks ahead during a long load.
    l2_bandwidth: float = 8.0  # Bytes a cycle from the second-level cache.
    l3_bandwidth: float = 4.0  # Bytes a cycle from the last-level cache.
    shared_bandwidth: float = 4.0  # Bytes a cycle of data that another core reads as well.
    miss: float = 0.0  # The unhidden cycles of each scattered line beyond the first-level cache.
    remote_bandwidth: float = 1.0  # Bytes a cycle of data that another core has just written.
    memory_bandwidth: float = 1e9  # Bytes a second.
    core_bandwidth: float = 1e9  # Bytes a second.
    memory_latency: float = 0.15e-6  # Seconds from a load to the arrival of its data from memory.
    unroll: int = 1  # The most steps of a sum in one iteration.
    exposed: float = 1.0  # The share of the time of memory traffic that arithmetic does not hide.
    fused: bool = False  # Set if one instruction multiplies floats and adds.
    folds_loads: bool = False  # Set if a multiply-add may read a factor from memory.
    # Set if a multiply-add may take one lane of a vector as factor for all lanes.
    by_lane: bool = False

    def for_elements(self, dtype: DType) -> Machine:
        """Return the parameters for kernels whose vectors hold elements of `dtype`, of at least 32
        bits: the number of registers is the same, with fewer lanes for wider elements."""
        lanes = max(1, self.lanes * 32 // max(dtype.bits, 32))
        return self if lanes == self.lanes else dataclasses.replace(self, lanes=lanes)

    @property
    def has_caches(self) -> bool:
        """Check whether some memory is slower than the nearest."""
        return self.l1_bytes < max(self.l2_bytes, self.l3_bytes)

    @property
    def fork_join(self) -> float:
        """The overhead of a parallel loop in seconds, measured by `bench/pool.py`, including the
        wait for the last thread."""
        return 0.4e-6 + 0.05e-6 * self.threads

    @property
    def peak(self) -> float:
        """The f32 operations per second of one core; a multiply-add counts as two."""
        return 2 * self.lanes * self.fma_ports * self.hertz

    def features(self) -> dict[str, float]:
        """Return the features of the machine for the learned model: the logarithms of all
        parameters."""
        figures = dataclasses.asdict(self)
        return {f"machine.{name}": math.log2(1.0 + value) for name, value in figures.items()}

    def fits(
        self, vectors: Ints, points: Ints, dtype: DType = DType.F32, held: Ints | int = 1
    ) -> npt.NDArray[np.bool_]:
        """Check whether the vector registers can hold a register tile, for each candidate.

        The tile has `vectors` × `points` vectors of sums of `dtype`. One step of the sum also needs
        registers for its `vectors` vectors, and for `held` points at the same time: 1 if points are
        broadcast one after the other.

        Some registers are left to LLVM, which spills otherwise: two of 32 registers, one of 16,
        since tiles of 12 sums hide a latency that tiles of 10 do not. Tiles that are closer to
        square, 3 by 4 of 16, need none to spare, unless a product takes a register before it is
        added. For tiles of one vector LLVM computes the sums in the registers of the broadcasts,
        which takes one more.
        """
        live = vectors * points + vectors + held
        # Lanes of held vectors need no register for a broadcast.
        spare = np.where(np.asarray(held) > 1, 1, self.registers - self.registers * 15 // 16)
        fits: npt.NDArray[np.bool_] = live <= np.maximum(self.registers - spare, 4)
        if self.registers <= 16 and self.fused and dtype.is_float:
            fits |= (live <= self.registers) & (vectors > 1) & (vectors <= points)
        return fits

    @overload
    def memory_seconds(self, nbytes: float, share: float) -> float: ...

    @overload
    def memory_seconds(self, nbytes: float, share: Floats) -> Floats: ...

    def memory_seconds(self, nbytes: float, share: Floats | float) -> Floats | float:
        """Return the seconds to read `nbytes` from memory, of which each thread reads the fraction
        `share`: a core waits for all data that it reads, even if others read the same data."""
        return nbytes * np.maximum(share / self.core_bandwidth, 1 / self.memory_bandwidth)

    def bandwidth(self, nbytes: int) -> float:
        """Return the bytes per cycle at which each core streams through its share of `nbytes`: from
        the second-level cache if the share fits that cache, else from memory."""
        near = nbytes / self.threads <= 0.7 * self.l2_bytes
        return self.l2_bandwidth if near else self.l3_bandwidth
