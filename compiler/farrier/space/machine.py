"""The machine as the analytic models see it: throughputs in cycles, sizes in bytes.

The backend of a target states its figures. The ratio of figures ranks candidates, so they need not
be exact for every model of a family. A figure that a backend does not state is that of the simplest
core: one instruction a cycle, in order, and a small board's memory.
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
    """Costs of one core; `memory_bandwidth` is that of all threads together, `core_bandwidth` what
    one of them has of it at most."""

    lanes: int  # f32 elements of a vector register
    registers: int
    threads: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    hertz: float = 1e9
    fma_ports: float = 1.0  # vector multiply-adds a cycle
    load_ports: float = 1.0  # vector or scalar loads a cycle
    issue: float = 1.0  # instructions a cycle
    fma_latency: float = 4.0  # cycles from one multiply-add, or dot product, to the next
    overlap: float = 0.0  # instructions that begin while what comes before them waits
    window: float = 1.0  # instructions that a core looks ahead while a load takes long
    l2_bandwidth: float = 8.0  # bytes a cycle from the second-level cache
    l3_bandwidth: float = 4.0  # bytes a cycle from the last-level cache
    shared_bandwidth: float = 4.0  # bytes a cycle of what another core reads as well
    miss: float = 0.0  # cycles that show of each scattered line beyond the first-level cache
    remote_bandwidth: float = 1.0  # bytes a cycle of what another core has just written
    memory_bandwidth: float = 1e9  # bytes a second
    core_bandwidth: float = 1e9  # likewise
    memory_latency: float = 0.15e-6  # seconds until a load from memory is there
    unroll: int = 1  # steps of a sum in one iteration, at most
    exposed: float = 1.0  # of the time of memory traffic, what arithmetic does not hide
    fused: bool = False  # whether one instruction multiplies floats and adds
    folds_loads: bool = False  # whether a multiply-add may take a factor from memory
    by_lane: bool = False  # whether it takes as factor one lane of a vector, for all lanes

    def for_elements(self, dtype: DType) -> Machine:
        """Return the machine for kernels whose vectors hold elements of `dtype`, which has 32 bits
        or more: the registers are the same, with fewer lanes for wider elements."""
        lanes = max(1, self.lanes * 32 // max(dtype.bits, 32))
        return self if lanes == self.lanes else dataclasses.replace(self, lanes=lanes)

    @property
    def fork_join(self) -> float:
        """Seconds that a parallel loop costs (`bench/pool.py`), late threads included."""
        return 0.4e-6 + 0.05e-6 * self.threads

    @property
    def peak(self) -> float:
        """Operations on f32 a second of one core; a multiply-add counts two."""
        return 2 * self.lanes * self.fma_ports * self.hertz

    def features(self) -> dict[str, float]:
        """Its vector, for the learned model: logarithms of all figures."""
        figures = dataclasses.asdict(self)
        return {f"machine.{name}": math.log2(1.0 + value) for name, value in figures.items()}

    def fits(
        self, vectors: Ints, points: Ints, dtype: DType = DType.F32, held: Ints | int = 1
    ) -> npt.NDArray[np.bool_]:
        """Whether the sums of `dtype` of tiles of `vectors` vectors by `points` points stay in
        registers, with one step's vectors and `held` of the points: a broadcast, or a vector of
        each point.

        What is left over is for LLVM, which spills without: two of 32 registers, one of 16, tiles
        of 12 sums hiding the latency that those of 10 do not. Squarer tiles need not even that, 3
        by 4 of 16, unless a product takes a register before it is added; of one vector LLVM makes
        the sums in the registers of the broadcasts, which takes one more.
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
        """To read `nbytes` from memory, `share` of it by each thread: a core waits no less for what
        others read as well."""
        return nbytes * np.maximum(share / self.core_bandwidth, 1 / self.memory_bandwidth)

    def bandwidth(self, nbytes: int) -> float:
        """Bytes a cycle at which each core streams through its share of `nbytes`, from the
        second-level cache where that holds it."""
        near = nbytes / self.threads <= 0.7 * self.l2_bytes
        return self.l2_bandwidth if near else self.l3_bandwidth
